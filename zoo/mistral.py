"""Mistral: LLaMA with a sliding attention window in all layers.

Versions since 0.2 of the 7 billion parameter model have the same layers without a window.

Derived from: `llama`.
Paper: Jiang et al. 2023, "Mistral 7B", arXiv:2310.06825. Reference: `transformers.models.mistral`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size, TokenId
from kerasformer.models.gated_decoder import GatedDecoder, GatedDecoderConfig
from kerasformer.zoo import llama


@dataclass(frozen=True, kw_only=True)
class MistralConfig(GatedDecoderConfig):
    """Configuration of Mistral; the defaults are those of the model of 7 billion parameters."""

    model_type = "mistral"

    max_length: Size = hf("max_position_embeddings", 131072)
    intermediate_dim: Size = hf("intermediate_size", 14336)
    num_key_value_heads: Size | None = hf("num_key_value_heads", 8)
    window_size: Size | None = hf("sliding_window", 4096)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)

    def window(self, index: int) -> int | None:
        """Returns the size of the sliding window, which is the same in all layers."""
        return self.window_size


class Mistral(GatedDecoder):
    """Mistral without head."""

    config_type = MistralConfig


MODELS = task_models.heads_like(llama.MODELS, Mistral, task_models.CausalQuestionAnswering)

"""Qwen2: LLaMA with biases of queries, keys and values, and optional sliding windows in its last layers.

Qwen1.5 of the same `model_type` and Qwen2.5 have the same architecture.

Derived from: `llama`.
Paper: Yang et al. 2024, "Qwen2 Technical Report", arXiv:2407.10671. Reference: `transformers.models.qwen2`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Count, Size
from kerasformer.models.gated_decoder import FULL, SLIDING, GatedDecoder, LayerWindowConfig
from kerasformer.zoo import llama


@dataclass(frozen=True, kw_only=True)
class Qwen2Config(LayerWindowConfig):
    """Configuration of Qwen2; the defaults are those of the reference class."""

    model_type = "qwen2"
    counterparts = {"num_key_value_heads": "num_heads"}
    required = {"use_mrope": (False, None)}

    vocab_size: Size = hf("vocab_size", 151936)
    max_length: Size = hf("max_position_embeddings", 32768)
    intermediate_dim: Size = hf("intermediate_size", 22016)
    num_key_value_heads: Size | None = hf("num_key_value_heads", 32)
    full_layers: Count = hf("max_window_layers", 28)

    @property
    def attention_bias(self) -> bool:
        """Whether the projections of queries, keys and values have a bias."""
        return True

    @property
    def output_bias(self) -> bool:
        """Whether the output projection of the attention has a bias."""
        return False

    def default_layer_types(self) -> list[str]:
        """Returns full attention for the first `full_layers` layers, and a sliding window for the others."""
        return [FULL if index < self.full_layers else SLIDING for index in range(self.num_layers)]


class Qwen2(GatedDecoder):
    """Qwen2 without head."""

    config_type = Qwen2Config


MODELS = task_models.heads_like(llama.MODELS, Qwen2)

"""Granite: LLaMA with constant factors of embeddings, attention scores, residual branches and logits.

The dense models of Granite 3 have this architecture; those with experts or state-space layers have others.

Derived from: `llama`.
Paper: Granite Team, IBM 2024, "Granite 3.0 Language Models"; factors: Yang et al. 2022, "Tensor Programs V: Tuning
Large Neural Networks via Zero-Shot Hyperparameter Transfer", arXiv:2203.03466.
Reference: `transformers.models.granite`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import hf
from kerasformer.models.config_types import Positive, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.gated_decoder import GatedDecoder, GatedDecoderConfig
from kerasformer.models.task_models import CausalFeatures, heads


@dataclass(frozen=True, kw_only=True)
class GraniteConfig(GatedDecoderConfig):
    """Configuration of Granite; the defaults are those of the reference class.

    Attributes:
        embedding_factor: Factor of the token embeddings at the input.
        score_scale: Factor of the attention scores.
        residual_factor: Factor of the outputs of attention and feed-forward network.
        logit_divisor: Number by which the logits are divided.
    """

    model_type = "granite"
    same_as = {"num_key_value_heads": "num_heads"}
    # A setting of tensor parallelism, which affects only the order of summation.
    ignored = frozenset({"pretraining_tp"})

    attention_bias: bool = hf("attention_bias", False)
    mlp_bias: bool = hf("mlp_bias", False)
    embedding_factor: Positive = hf("embedding_multiplier", 1.0)
    score_scale: Positive = hf("attention_multiplier", 1.0)
    residual_factor: Positive = hf("residual_multiplier", 1.0)
    logit_divisor: Positive = hf("logits_scaling", 1.0)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)


class Granite(GatedDecoder):
    """Granite without head."""

    config_type = GraniteConfig

    def layer_options(self, index: int) -> dict[str, Any]:
        """Returns the factor of the outputs of attention and feed-forward network."""
        return {"residual_scale": self.config.residual_factor}

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of LLaMA's attention, and the factor of its scores."""
        return {**super().attention_options(index), "scale": self.config.score_scale}


class GraniteCausalLM(CausalLM, backbone=Granite):
    """Granite for text generation."""

    def head_options(self) -> dict[str, Any]:
        """Adds the factor of the logits."""
        return {**super().head_options(), "scale": 1.0 / self.config.logit_divisor}


MODELS = heads(Granite, GraniteCausalLM, CausalFeatures)

"""Falcon-H1: LLaMA with Mamba-2 beside the attention of each layer.

Constant factors scale embeddings, logits, keys, and the inputs and outputs of the parts of a layer. Mamba-2 keeps a
matrix of fixed size for each head, beside the keys and values of the attention.

Derived from: `llama`.
Paper: Zuo et al. 2025, "Falcon-H1: A Family of Hybrid-Head Language Models Redefining Efficiency and Performance",
arXiv:2507.22448.
Reference: `transformers.models.falcon_h1`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import ParallelMixer
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import hf
from kerasformer.models.config_types import Epsilon, Positive, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.gated_decoder import GatedDecoder
from kerasformer.models.mamba2_decoder import Mamba2DecoderConfig, mamba2, mamba2_rows
from kerasformer.models.task_models import CausalFeatures, heads
from kerasformer.models.weight_table import Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class FalconH1Config(Mamba2DecoderConfig):
    """Configuration of Falcon-H1; the defaults are those of the reference class.

    Attributes:
        state_size: Size of all heads of Mamba-2; `expansion` times the hidden size if it is `None`.
        state_norm: Whether Mamba-2 has a norm.
        norm_before_gate: Whether this norm is before the gate, which is unsupported.
        embedding_factor: Factor of the token embeddings at the input.
        logit_factor: Factor of the logits.
        key_factor: Factor of the keys.
        attention_input_factor: Factor of the input of the attention.
        attention_factor: Factor of its output.
        state_input_factor: Factor of the input of Mamba-2.
        state_factor: Factor of its output.
        state_part_factors: Factors of its gate, values, keys, queries and steps; 1 by default.
        feed_forward_factors: Factors of what the feed-forward network activates, and of its output; 1 by default.
    """

    model_type = "falcon_h1"
    same_as = {"num_key_value_heads": "num_heads"}
    required = {**Mamba2DecoderConfig.required, "projectors_bias": (False,), "attn_layer_indices": (None,)}
    ignored = frozenset("mamba_chunk_size mamba_use_mlp mlp_expansion_factor num_logits_to_keep".split())

    vocab_size: Size = hf("vocab_size", 128000)
    max_length: Size = hf("max_position_embeddings", 8192)
    intermediate_dim: Size = hf("intermediate_size", 14336)
    num_key_value_heads: Size | None = hf("num_key_value_heads", 8)
    epsilon: Epsilon = hf("rms_norm_eps", 1e-5)
    attention_bias: bool = hf("attention_bias", False)
    mlp_bias: bool = hf("mlp_bias", False)
    state_size: Size | None = hf("mamba_d_ssm", 1024)
    state_norm: bool = hf("mamba_rms_norm", False)
    norm_before_gate: bool = hf("mamba_norm_before_gate", True)
    embedding_factor: Positive = hf("embedding_multiplier", 1.0)
    logit_factor: Positive = hf("lm_head_multiplier", 1.0)
    key_factor: Positive = hf("key_multiplier", 1.0)
    attention_input_factor: Positive = hf("attention_in_multiplier", 1.0)
    attention_factor: Positive = hf("attention_out_multiplier", 1.0)
    state_input_factor: Positive = hf("ssm_in_multiplier", 1.0)
    state_factor: Positive = hf("ssm_out_multiplier", 1.0)
    state_part_factors: list[Positive] | None = hf("ssm_multipliers", None)
    feed_forward_factors: list[Positive] | None = hf("mlp_multipliers", None)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)

    def __post_init__(self) -> None:
        """Sets the default factors, and validates their numbers and the norm."""
        super().__post_init__()
        for name, key, count in (("state_part_factors", "ssm", 5), ("feed_forward_factors", "mlp", 2)):
            object.__setattr__(self, name, getattr(self, name) or [1.0] * count)
            if len(factors := getattr(self, name)) != count:
                raise UnsupportedConfigError(f"{key}_multipliers must be {count} numbers. Received: {factors}")
        if self.state_norm and self.norm_before_gate:
            raise UnsupportedConfigError(
                "mamba_rms_norm=True needs mamba_norm_before_gate=False. Received: mamba_norm_before_gate=True"
            )

    @property
    def state_inner_dim(self) -> int:
        """Size of all heads of Mamba-2."""
        return super().state_inner_dim if self.state_size is None else self.state_size


class FalconH1(GatedDecoder):
    """Falcon-H1 without head."""

    config_type = FalconH1Config

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of LLaMA's attention; the factor of the keys is one of the scores."""
        size = self.config.head_dim or self.config.hidden_dim // self.config.num_heads
        return {**super().attention_options(index), "scale": self.config.key_factor / size**0.5}

    def make_attention(self, index: int) -> keras.layers.Layer:
        """Creates attention and Mamba-2 side by side."""
        config = self.config
        scales = [config.state_input_factor * factor for factor in config.state_part_factors]
        return ParallelMixer(
            super().make_attention(index),
            mamba2(config, self.initializer, has_norm=config.state_norm, input_scales=scales),
            config.attention_input_factor,
            config.attention_factor,
            config.state_factor,
            name="mixer",
        )

    def feed_forward_options(self, index: int) -> LayerArguments:
        """Returns the options of LLaMA's feed-forward network, and its factors."""
        gate, output = self.config.feed_forward_factors
        return {**super().feed_forward_options(index), "gate_scale": gate, "output_scale": output}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        config = self.config
        layer = nested(mamba2_rows(config, config.state_norm), "mixer/", "")
        for path in ("query", "key", "value", "output"):
            layer += dense(f"mixer/attention/{path}", f"self_attn.{path[0]}_proj", bias=config.attention_bias)
        for path, name in {"gate": "gate_proj", "up": "up_proj", "output": "down_proj"}.items():
            layer += dense(f"feed_forward/{path}", f"feed_forward.{name}", bias=config.mlp_bias)
        layer += norm("attention_norm", "input_layernorm", bias=False)
        layer += norm("feed_forward_norm", "pre_ff_layernorm", bias=False)
        return [
            *embedding("tokens", "embed_tokens"),
            *repeat(config.num_layers, nested(layer, "decoder/layer_{i}/", "layers.{i}.")),
            *norm("decoder/final_norm", "final_layernorm", bias=False),
        ]


class FalconH1CausalLM(CausalLM, backbone=FalconH1):
    """Falcon-H1 for text generation."""

    def head_options(self) -> dict[str, Any]:
        """Adds the factor of the logits."""
        return {**super().head_options(), "scale": self.config.logit_factor}


MODELS = heads(FalconH1, FalconH1CausalLM, CausalFeatures)

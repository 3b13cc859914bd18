"""Seed-OSS: LLaMA with biases of queries, keys and values.

An architecture outside of the package, for the tests of `kerasformer.zoo.register` and `kerasformer.tools.testing`.

Derived from: `llama`.
Paper: ByteDance Seed 2025, "Seed-OSS Open-Source Models", https://github.com/ByteDance-Seed/seed-oss.
Reference: `transformers.models.seed_oss`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Rate, Size, TokenId
from kerasformer.models.gated_decoder import GatedDecoder, GatedDecoderConfig
from kerasformer.zoo import llama


@dataclass(frozen=True, kw_only=True)
class SeedOssConfig(GatedDecoderConfig):
    """Configuration of Seed-OSS; the defaults are those of the reference class."""

    model_type = "seed_oss"
    ignored = frozenset({"pretraining_tp"})  # affects only the order of summation

    vocab_size: Size = hf("vocab_size", 155136)
    max_length: Size = hf("max_position_embeddings", 524288)
    intermediate_dim: Size = hf("intermediate_size", 27648)
    num_layers: int = hf("num_hidden_layers", 64)
    num_heads: Size = hf("num_attention_heads", 80)
    num_key_value_heads: Size | None = hf("num_key_value_heads", 8)
    head_dim: Size | None = hf("head_dim", 128)
    attention_bias: bool = hf("attention_bias", True)
    output_bias: bool = hf("attention_out_bias", False)
    mlp_bias: bool = hf("mlp_bias", False)
    residual_dropout: Rate = hf("residual_dropout", 0.1)
    pad_token_id: TokenId | None = hf("pad_token_id", 1)
    bos_token_id: TokenId | None = hf("bos_token_id", 0)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)


class SeedOss(GatedDecoder):
    """Seed-OSS without head."""

    config_type = SeedOssConfig


MODELS = task_models.heads_like(llama.MODELS, SeedOss)

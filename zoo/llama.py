"""LLaMA: a decoder-only language model with rotary positions and grouped-query attention.

Llama 2, 3 and 3.2, TinyLlama, SmolLM and SmolLM2 have the same architecture.

Derived from: the Transformer.
Paper: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", arXiv:2302.13971; grouped heads and
longer texts: Llama Team 2024, "The Llama 3 Herd of Models", arXiv:2407.21783. Reference: `transformers.models.llama`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kerasformer.models.config import hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.rotary_config import RotaryConfig
from kerasformer.models.task_models import CausalClassification, CausalFeatures, by_task
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(RotaryConfig):
    """Configuration of LLaMA; the defaults are those of the model of 7 billion parameters."""

    model_type = "llama"
    # A setting of tensor parallelism, which affects only the order of summation.
    ignored = frozenset({"pretraining_tp"})

    vocab_size: Size = hf("vocab_size", 32000)
    max_length: Size = hf("max_position_embeddings", 2048)
    hidden_dim: Size = hf("hidden_size", 4096)
    intermediate_dim: Size = hf("intermediate_size", 11008)
    num_layers: Layers = hf("num_hidden_layers", 32)
    num_heads: Size = hf("num_attention_heads", 32)
    num_key_value_heads: Size | None = hf("num_key_value_heads", None)
    head_dim: Size | None = hf("head_dim", None)
    hidden_act: str = hf("hidden_act", "silu")
    attention_bias: bool = hf("attention_bias", False)
    mlp_bias: bool = hf("mlp_bias", False)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    epsilon: Epsilon = hf("rms_norm_eps", 1e-6)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", False)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)


class Llama(CausalDecoder):
    """LLaMA without head."""

    config_type = LlamaConfig
    norm = "rms_norm"
    # Ignored: the rotary frequencies of older files.
    names = Names(
        "model.",
        (r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",),
        shared_mark="layers.0.mlp.gate_proj.weight",
        tokens="embed_tokens.weight",
    )

    def attention_options(self, index: int) -> dict[str, Any]:
        """Returns the sizes and rotary positions of grouped heads."""
        config = self.config
        heads = {"head_dim": config.head_dim, "num_key_value_heads": config.num_key_value_heads}
        return {**heads, "use_bias": config.attention_bias, "rotary": config.rotary}

    def feed_forward_options(self, index: int) -> dict[str, Any]:
        """Returns the options of a gated feed-forward network."""
        return {"gated": True, "use_bias": self.config.mlp_bias}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        config = self.config
        layer = [
            *norm("attention_norm", "input_layernorm", bias=False),
            *norm("feed_forward_norm", "post_attention_layernorm", bias=False),
        ]
        for path, tensor in {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}.items():
            layer += dense(f"attention/{path}", f"self_attn.{tensor}", bias=config.attention_bias)
        for path, tensor in {"gate": "gate_proj", "up": "up_proj", "output": "down_proj"}.items():
            layer += dense(f"feed_forward/{path}", f"mlp.{tensor}", bias=config.mlp_bias)
        return [
            *embedding("tokens", "embed_tokens"),
            *repeat(config.num_layers, nested(layer, "decoder/layer_{i}/", "layers.{i}.")),
            *norm("decoder/final_norm", "norm", bias=False),
        ]


class LlamaCausalLM(CausalLM, backbone=Llama):
    """LLaMA for text generation."""


class LlamaCausalFeatures(CausalFeatures, backbone=Llama):
    """LLaMA for feature extraction: hidden states of each token."""


class LlamaCausalClassification(CausalClassification, backbone=Llama):
    """LLaMA for text classification, from the last real token."""

    head_table = (Row(("kernel",), "score.weight", transpose=True),)


MODELS = by_task(LlamaCausalLM, LlamaCausalFeatures, LlamaCausalClassification)

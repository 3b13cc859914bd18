"""CTRL: a decoder-only language model that a control code at the start of a text steers.

Derived from: the Transformer.
Paper: Keskar et al. 2019, "CTRL: A Conditional Transformer Language Model for Controllable Generation",
arXiv:1909.05858. Reference: `transformers.models.ctrl`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import keras

from kerasformer.layers import SinusoidalPositions, normalization
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.task_models import CausalClassification, CausalFeatures, heads
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class CtrlConfig(Config):
    """Configuration of CTRL; the defaults are those of the published model.

    Attributes:
        epsilon: Epsilon of the norms of the layers.
        final_epsilon: Epsilon of the norm after the last layer.
    """

    model_type = "ctrl"
    hidden_act: ClassVar[str] = "relu"
    attention_dropout: ClassVar[float] = 0.0
    epsilon: ClassVar[float] = 1e-6
    # Settings of GPT-2's model with two heads, and a dropout rate that the reference does not use.
    ignored = frozenset(
        """attn_pdrop summary_type summary_use_proj summary_activation summary_proj_to_labels
        summary_first_dropout""".split()
    )

    vocab_size: Size = hf("vocab_size", 246534)
    max_length: Size = hf("n_positions", 256, "max_position_embeddings")
    hidden_dim: Size = hf("n_embd", 1280, "hidden_size")
    intermediate_dim: Size = hf("dff", 8192)
    num_layers: Layers = hf("n_layer", 48, "num_hidden_layers")
    num_heads: Size = hf("n_head", 16, "num_attention_heads")
    residual_dropout: Rate = hf("resid_pdrop", 0.1)
    embedding_dropout: Rate = hf("embd_pdrop", 0.1)
    final_epsilon: Epsilon = hf("layer_norm_epsilon", 1e-6)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", True)
    bos_token_id: TokenId | None = hf("bos_token_id", None)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", None)


class Ctrl(CausalDecoder):
    """CTRL without head."""

    config_type = CtrlConfig
    architecture_prefix = "CTRL"
    embedding_dropout = property(lambda self: self.config.embedding_dropout)
    hidden_dropout = property(lambda self: self.config.residual_dropout)
    embedding_scale = property(lambda self: math.sqrt(self.config.hidden_dim))
    # Ignored: the sinusoids of older files.
    names = Names("transformer.", ("pos_encoding",), tokens="w.weight")

    def make_positions(self) -> SinusoidalPositions:
        """Creates the sinusoids, where all sines precede all cosines."""
        return SinusoidalPositions(self.config.max_length, self.config.hidden_dim, interleaved=False, name="positions")

    def make_norm(self, name: str) -> keras.layers.Layer:
        """Creates the norm after the last layer."""
        return normalization(self.norm, self.config.final_epsilon, name=name)

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = [
            *norm("attention_norm", "layernorm1"),
            *dense("attention/query", "multi_head_attention.Wq"),
            *dense("attention/key", "multi_head_attention.Wk"),
            *dense("attention/value", "multi_head_attention.Wv"),
            *dense("attention/output", "multi_head_attention.dense"),
            *norm("feed_forward_norm", "layernorm2"),
            *dense("feed_forward/intermediate", "ffn.0"),
            *dense("feed_forward/output", "ffn.2"),
        ]
        return [
            *embedding("tokens", "w"),
            *repeat(self.config.num_layers, nested(layer, "decoder/layer_{i}/", "h.{i}.")),
            *norm("decoder/final_norm", "layernorm"),
        ]


class CtrlCausalLM(CausalLM, backbone=Ctrl):
    """CTRL for text generation; the output layer has a bias."""

    architecture = "CTRLLMHeadModel"
    head_table = (*CausalLM.head_table, Row(("bias",), "lm_head.bias"))

    def head_options(self) -> LayerArguments:
        """Returns further arguments of the output layer."""
        return {**super().head_options(), "use_bias": True}


class CtrlCausalClassification(CausalClassification, backbone=Ctrl):
    """CTRL for text classification, from the last real token."""

    head_table = (Row(("kernel",), "classifier.weight", transpose=True),)


MODELS = heads(Ctrl, CtrlCausalLM, CausalFeatures, CtrlCausalClassification)

"""Transformer: the original encoder-decoder with attention instead of recurrence, to be trained from scratch.

Derived from: recurrent encoder-decoders with attention.
Paper: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import keras

from kerasformer.layers import MultiHeadAttention, SinusoidalPositions
from kerasformer.layers.layer_types import LayerConfig
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import Seq2SeqLM
from kerasformer.models.creation import normal
from kerasformer.models.encoder_decoder import EncoderDecoder, Stack, bart_rows
from kerasformer.models.task_models import heads
from kerasformer.models.weight_table import Names, Row


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(Config):
    """Configuration of the Transformer; the defaults are those of the base model for English and German.

    Source and target share a vocabulary, whose embeddings are also the output projection. No class of `transformers`
    has this `model_type`.
    """

    model_type = "transformer"

    vocab_size: Size = hf("vocab_size", 37000)
    max_length: Size = hf("max_position_embeddings", 512)
    hidden_dim: Size = hf("d_model", 512)
    num_layers: Layers = hf("encoder_layers", 6)
    num_decoder_layers: Layers = hf("decoder_layers", 6)
    num_heads: Size = hf("num_attention_heads", 8)
    intermediate_dim: Size = hf("ffn_dim", 2048)
    hidden_act: str = hf("activation_function", "relu")
    dropout: Rate = hf("dropout", 0.1)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    activation_dropout: Rate = hf("activation_dropout", 0.0)
    tied: bool = hf("tie_word_embeddings", True)
    epsilon: Epsilon = hf("layer_norm_eps", 1e-5)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 1)
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", 0)


class Transformer(EncoderDecoder):
    """The Transformer without head; the projections of the attention have no biases, as in the paper."""

    config_type = TransformerConfig
    names = Names("model.", tokens="shared.weight")

    @property
    def embedding_scale(self) -> float:
        """Factor of the token embeddings at the input."""
        return math.sqrt(self.config.hidden_dim)

    @property
    def initializer(self) -> LayerConfig:
        """Initializer of all kernels."""
        return keras.initializers.serialize(keras.initializers.GlorotUniform())

    @property
    def token_initializer(self) -> LayerConfig:
        """Initializer of the token embeddings, whose entries have the variance 1 after scaling."""
        return normal(self.config.hidden_dim**-0.5)

    def make_positions(self, stack: Stack) -> SinusoidalPositions:
        """Creates the sinusoids, where sines and cosines alternate."""
        return SinusoidalPositions(self.config.max_length, self.config.hidden_dim, name=f"{stack}_positions")

    def make_attention(self, stack: Stack, name: str, **options: Any) -> MultiHeadAttention:
        """Creates attention without biases."""
        return super().make_attention(stack, name, use_bias=False, **options)

    def rows(self) -> list[Row]:
        """Returns the weight table: the names of BART, without biases in the attention."""
        return [row for row in bart_rows(self) if not re.search(r"attention/\w+/bias", row.variables[0])]


class TransformerSeq2SeqLM(Seq2SeqLM, backbone=Transformer):
    """The Transformer for translation and other text-to-text generation."""

    in_transformers = False


MODELS = heads(Transformer, TransformerSeq2SeqLM)

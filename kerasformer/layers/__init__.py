"""Keras layers that mirror their PyTorch counterparts, in `keras.ops` only."""

# ruff: noqa: E402 - where Keras is missing, the error is ours, and names the extra that brings it
from kerasformer.errors import require

require("keras", "tensorflow")

from kerasformer.layers.activations import activation
from kerasformer.layers.attention import (
    AttentionHead,
    MultiHeadAttention,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)
from kerasformer.layers.cache import FixedCache, GrowingCache, LayerCache, RowCaches, StaticCache
from kerasformer.layers.core import Dense, Dropout, Embedding, LayerNormalization, RMSNormalization
from kerasformer.layers.embeddings import TransformerEmbeddings
from kerasformer.layers.feed_forward import FeedForward, normalization
from kerasformer.layers.heads import ClassificationHead, MaskedLMHead
from kerasformer.layers.positions import RelativePositionBias, RotaryEmbedding, SinusoidalPositions, alibi_bias
from kerasformer.layers.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
)

__all__ = [
    "AttentionHead",
    "ClassificationHead",
    "Decoder",
    "DecoderLayer",
    "Dense",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "FixedCache",
    "GrowingCache",
    "LayerCache",
    "LayerNormalization",
    "MaskedLMHead",
    "MultiHeadAttention",
    "RMSNormalization",
    "RelativePositionBias",
    "RotaryEmbedding",
    "RowCaches",
    "SinusoidalPositions",
    "StaticCache",
    "TransformerEmbeddings",
    "activation",
    "alibi_bias",
    "causal_mask",
    "normalization",
    "padding_mask",
    "scaled_dot_product_attention",
]

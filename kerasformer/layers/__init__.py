"""Transformer layers written in `keras.ops`, equivalent to their PyTorch counterparts."""

# ruff: noqa: E402 - checked first, so that the error names the extra to install where Keras is missing
from kerasformer.extras import require

require("keras", "tensorflow")

from kerasformer.layers import primitives
from kerasformer.layers.activations import activation
from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.attention_call import AttentionCall, HeadAttentionCall
from kerasformer.layers.attention_head import AttentionHead, scaled_dot_product_attention
from kerasformer.layers.attention_spec import AttentionSpec, Rotary, RotaryScaling
from kerasformer.layers.blocks import DecoderLayer, EncoderLayer, MaskedEncoderLayer
from kerasformer.layers.bottleneck import BottleneckEncoderLayer, NormalizedDense
from kerasformer.layers.cache import (
    CacheScales,
    CacheSpec,
    FixedCache,
    GrowingCache,
    LayerCache,
    RecurrentCache,
    RollingCache,
    RowCaches,
    ShiftingCache,
    StaticCache,
    cache_of_slots,
)
from kerasformer.layers.convolution import ShortConvolution
from kerasformer.layers.core import PACKAGE, Composite, Dense, Dropout, Embedding, merged_lora, unpacked
from kerasformer.layers.disentangled import ConvolutionEncoderLayer, DisentangledAttention, RelativeEmbeddings
from kerasformer.layers.embeddings import TransformerEmbeddings
from kerasformer.layers.feed_forward import FeedForward
from kerasformer.layers.functional import causal_mask
from kerasformer.layers.gated_delta import GatedDeltaNet
from kerasformer.layers.heads import ClassificationHead, FeedForwardHead, LMHead, MaskedLMHead
from kerasformer.layers.layer_types import LayerArguments, LayerConfig, LayerOptions, Outputs
from kerasformer.layers.losses import SmoothedCrossentropy
from kerasformer.layers.mamba2 import Mamba2
from kerasformer.layers.masks import padding_mask
from kerasformer.layers.merged import MergedAttention, MergedDecoderLayer
from kerasformer.layers.metrics import MaskedAccuracy
from kerasformer.layers.multi_vectors import MultiVectorHead
from kerasformer.layers.norms import (
    ElementwiseAffine,
    HeadNormalization,
    LayerNormalization,
    RMSNormalization,
    normalization,
)
from kerasformer.layers.parallel_mixer import ParallelMixer
from kerasformer.layers.positions import RelativePositionBias, SinusoidalPositions, alibi_bias, sinusoids
from kerasformer.layers.primitives import Primitives, lowering
from kerasformer.layers.random_blocks import SparseBlocks
from kerasformer.layers.recurrent_layer import RecurrentLayer
from kerasformer.layers.sentence import Projection, SentenceHead, SentencePooling, VectorDropout
from kerasformer.layers.spans import SpanHead
from kerasformer.layers.special_attention import (
    BlockSparseAttention,
    GatedAttention,
    GlobalMultiHeadAttention,
    RelativeAttention,
    UnevenWindowAttention,
)
from kerasformer.layers.stacks import Decoder, Encoder
from kerasformer.layers.tensor import Shape, Tensor, split_heads
from kerasformer.layers.token_mixer import TokenMixer
from kerasformer.layers.visibility import Visibility

__all__ = [
    "AttentionCall",
    "AttentionHead",
    "AttentionSpec",
    "BlockSparseAttention",
    "BottleneckEncoderLayer",
    "CacheScales",
    "CacheSpec",
    "ClassificationHead",
    "Composite",
    "ConvolutionEncoderLayer",
    "Decoder",
    "DecoderLayer",
    "Dense",
    "DisentangledAttention",
    "Dropout",
    "ElementwiseAffine",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "FeedForwardHead",
    "FixedCache",
    "GatedAttention",
    "GatedDeltaNet",
    "GlobalMultiHeadAttention",
    "GrowingCache",
    "HeadAttentionCall",
    "HeadNormalization",
    "LMHead",
    "LayerArguments",
    "LayerCache",
    "LayerConfig",
    "LayerNormalization",
    "LayerOptions",
    "Mamba2",
    "MaskedAccuracy",
    "MaskedEncoderLayer",
    "MaskedLMHead",
    "MergedAttention",
    "MergedDecoderLayer",
    "MultiHeadAttention",
    "NormalizedDense",
    "Outputs",
    "PACKAGE",
    "ParallelMixer",
    "Primitives",
    "Projection",
    "RMSNormalization",
    "RecurrentCache",
    "RecurrentLayer",
    "RelativeAttention",
    "RelativeEmbeddings",
    "RelativePositionBias",
    "RollingCache",
    "Rotary",
    "RotaryScaling",
    "RowCaches",
    "MultiVectorHead",
    "SentenceHead",
    "SentencePooling",
    "Shape",
    "ShiftingCache",
    "ShortConvolution",
    "SinusoidalPositions",
    "SmoothedCrossentropy",
    "SpanHead",
    "SparseBlocks",
    "StaticCache",
    "Tensor",
    "TokenMixer",
    "TransformerEmbeddings",
    "UnevenWindowAttention",
    "VectorDropout",
    "Visibility",
    "activation",
    "alibi_bias",
    "cache_of_slots",
    "causal_mask",
    "lowering",
    "merged_lora",
    "normalization",
    "padding_mask",
    "primitives",
    "scaled_dot_product_attention",
    "sinusoids",
    "split_heads",
    "unpacked",
]

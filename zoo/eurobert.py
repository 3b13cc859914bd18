"""EuroBERT: an encoder with the layers of LLaMA, for European languages, mathematics and code.

Derived from: `bert`.
Paper: Boizard et al. 2025, "EuroBERT: Scaling Multilingual Encoders for European Languages", arXiv:2503.05500.
Reference: `transformers.models.eurobert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import keras

from kerasformer.layers import ClassificationHead, EncoderLayer, FeedForward, LMHead, normalization
from kerasformer.layers.layer_types import LayerArguments, Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.models import gated_decoder, task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Epsilon, Layers, Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS, POSITION_IDS
from kerasformer.models.weight_table import Names, Row, dense, embedding, norm, output_matrix


@dataclass(frozen=True, kw_only=True)
class EuroBertConfig(gated_decoder.GatedDecoderConfig):
    """Configuration of EuroBERT; the defaults are those of the model of 210 million parameters.

    Attributes:
        pooling: What a text is classified from: the first token (`"bos"`), the mean of its tokens, or the scores of all
            tokens, whose mean is its score (`"late"`).
    """

    model_type = "eurobert"
    same_as = {"num_key_value_heads": "num_heads"}
    required = {"is_decoder": (False,)}
    # A setting of tensor parallelism, which affects only the order of summation; a rate that the reference lacks.
    ignored = frozenset({"pretraining_tp", "hidden_dropout"})
    num_segments: ClassVar[int] = 0
    hidden_dropout: ClassVar[float] = 0.0
    head_dropout: ClassVar[float] = 0.0

    vocab_size: Size = hf("vocab_size", 128256)
    max_length: Size = hf("max_position_embeddings", 8192)
    hidden_dim: Size = hf("hidden_size", 768)
    intermediate_dim: Size = hf("intermediate_size", 3072)
    num_layers: Layers = hf("num_hidden_layers", 12)
    num_heads: Size = hf("num_attention_heads", 12)
    epsilon: Epsilon = hf("rms_norm_eps", 1e-5)
    attention_bias: bool = hf("attention_bias", False)
    mlp_bias: bool = hf("mlp_bias", False)
    pooling: Literal["bos", "mean", "late"] = hf("classifier_pooling", "late", "clf_pooling")
    pad_token_id: TokenId | None = hf("pad_token_id", 128001)
    bos_token_id: TokenId | None = hf("bos_token_id", 128000)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 128001)
    mask_token_id: TokenId | None = hf("mask_token_id", 128002)


class EuroBert(BidirectionalEncoder):
    """EuroBERT without head."""

    config_type = EuroBertConfig
    input_arrays = (INPUT_IDS, ATTENTION_MASK, POSITION_IDS)
    # Ignored: the rotary frequencies of older files.
    names = Names("model.", (r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",), tokens="embed_tokens.weight")

    def make_embeddings(self, **options: Any) -> keras.layers.Layer:
        """Creates embeddings of tokens alone, which nothing normalizes."""
        return super().make_embeddings(max_length=None, epsilon=None, **options)

    def make_layer(self, index: int, kind: type[EncoderLayer] | None = None, **options: Any) -> EncoderLayer:
        """Creates a layer that normalizes the inputs of attention and feed-forward network."""
        return super().make_layer(index, kind, order="pre_norm", norm="rms_norm", **options)

    def make_feed_forward(self, **options: Any) -> FeedForward:
        """Creates a gated feed-forward network."""
        return super().make_feed_forward(gated=True, use_bias=self.config.mlp_bias, **options)

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of LLaMA's attention."""
        return gated_decoder.attention_options(self.config, index)

    def make_final_norm(self) -> keras.layers.Layer:
        """Creates the norm of the output."""
        return normalization("rms_norm", self.config.epsilon, name="final_norm")

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        return [
            *embedding("embeddings/tokens", "embed_tokens"),
            *self.layer_rows(gated_decoder.layer_table(self.config), "layers.{}.".format),
            *norm("encoder/final_norm", "norm", bias=False),
        ]


class EuroBertFillMask(task_models.FillMask, backbone=EuroBert):
    """EuroBERT for masked language modelling, with an output layer alone."""

    head_table = (output_matrix("lm_head.weight"), Row(("bias",), "lm_head.bias"))

    def make_head(self) -> keras.layers.Layer:
        """Creates the output layer."""
        config = self.config
        options = {"kernel_initializer": self.backbone.initializer, **self.head_options()}
        return LMHead(config.vocab_size, tied=config.tied, use_bias=config.mlp_bias, name="head", **options)

    def head_rows(self) -> list[Row]:
        """Returns the rows of the head, without the bias that it may lack."""
        return [row for row in super().head_rows() if self.config.mlp_bias or row.variables != ("bias",)]


class EuroBertTextClassification(task_models.TextClassification, backbone=EuroBert):
    """EuroBERT for text classification, from the first token or the mean of all tokens, or by the mean of scores."""

    count = None
    head_table = (*dense("dense", "dense"), *dense("output", "classifier"))

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of two dense layers."""
        return ClassificationHead(self.config.num_labels, self.config.hidden_dim, "gelu", name="head")

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores."""
        if self.config.pooling != "late":
            return super().answer(states, inputs, training)
        return task_models.mean_of_tokens(self.head(states["output"], training=training), inputs.get("attention_mask"))


MODELS = task_models.heads(
    EuroBert,
    task_models.FeatureExtraction,
    EuroBertFillMask,
    EuroBertTextClassification,
    task_models.TokenClassification,
)

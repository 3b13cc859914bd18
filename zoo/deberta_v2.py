"""DeBERTa v2 and v3: an encoder with disentangled attention, separate vectors for content and relative position.

Paper: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", arXiv:2006.03654; version 3:
arXiv:2111.09543. Reference: `transformers.models.deberta_v2`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from kerasformer import layers
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Count, Distance, Epsilon, Layers, Rate, Size
from kerasformer.models.encoder import BidirectionalEncoder, EncoderConfig, bert_layer_table
from kerasformer.models.weight_table import Names, Row, convolution, dense, embedding, norm


@dataclass(frozen=True, kw_only=True)
class DebertaV2Config(EncoderConfig):
    """Configuration of DeBERTa v2 and v3; the defaults are those of `transformers`."""

    model_type = "deberta-v2"
    required = {"tie_word_embeddings": (True,), "conv_groups": (1,)}
    ignored = frozenset({"attention_head_size", "pooler_hidden_size"})  # determined by the shapes of the tensors

    vocab_size: Size = hf("vocab_size", 128100)
    embedding_dim: Size | None = hf("embedding_size", None)
    hidden_dim: Size = hf("hidden_size", 1536)
    num_layers: Layers = hf("num_hidden_layers", 24)
    num_heads: Size = hf("num_attention_heads", 24)
    intermediate_dim: Size = hf("intermediate_size", 6144)
    classifier_dropout: Rate | None = hf("cls_dropout", None)
    max_length: Distance = hf("max_position_embeddings", 512)
    num_segments: Count = hf("type_vocab_size", 0)
    epsilon: Epsilon = hf("layer_norm_eps", 1e-7)
    relative_attention: bool = hf("relative_attention", False)
    relative_terms: str | list[str] | None = hf("pos_att_type", None)
    relative_norm: str = hf("norm_rel_ebd", "none")
    max_distance: int = hf("max_relative_positions", -1)
    num_buckets: int = hf("position_buckets", -1)
    share_projections: bool = hf("share_att_key", False)
    absolute_positions: bool = hf("position_biased_input", True)
    convolution_size: Count = hf("conv_kernel_size", 0)
    convolution_act: str = hf("conv_act", "tanh")
    pooler_act: str = hf("pooler_hidden_act", "gelu")
    pooler_dropout: Rate = hf("pooler_dropout", 0.0)
    legacy: bool = hf("legacy", True)


class DebertaV2(BidirectionalEncoder):
    """DeBERTa without head."""

    config_type = DebertaV2Config
    attention_type = layers.DisentangledAttention
    blind_padding = True
    # Ignored: tied copies, buffers, the discriminator head of the pretraining of version 3.
    names = Names(
        "deberta.",
        (r"(cls\.predictions\.decoder|mask_predictions|encoder\.LayerNorm)\..*", r"embeddings\.position_.*"),
        mark="encoder.layer.0.attention.self.query_proj.weight",
    )

    def make_embeddings(self, **options: Any) -> layers.TransformerEmbeddings:
        """Creates embeddings without absolute positions if only the attention uses positions."""
        config = self.config
        options["max_length"] = config.max_length if config.absolute_positions else None
        options["embedding_dim"] = self.projected_dim
        return super().make_embeddings(projection_first=True, projection_bias=False, **options)

    def make_layer(self, index: int, kind: Any = layers.EncoderLayer, **options: Any) -> layers.EncoderLayer:
        """Creates a layer; the first one has a convolution in models with one."""
        if index == 0 and self.config.convolution_size:
            kind = layers.ConvolutionEncoderLayer
            options |= {"kernel_size": self.config.convolution_size, "activation": self.config.convolution_act}
        return super().make_layer(index, kind, **options)

    def attention_options(self, index: int) -> dict[str, Any]:
        """Returns the terms for relative positions."""
        config = self.config
        terms = {"terms": config.relative_terms, "positions": config.relative_attention}
        return {**terms, "share_projections": config.share_projections, "relative_dropout": config.hidden_dropout}

    def make_relative(self) -> layers.RelativeEmbeddings | None:
        """Creates the embeddings of relative positions."""
        config = self.config
        if not config.relative_attention:
            return None
        epsilon = config.epsilon if "layer_norm" in config.relative_norm.lower() else None
        sizes = (config.max_length, config.hidden_dim, config.max_distance, config.num_buckets)
        return layers.RelativeEmbeddings(*sizes, epsilon, self.initializer, name="relative")

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = bert_layer_table("attention.self.{}_proj")
        for name in ("key", "query"):
            if getattr(self.encoder.layers[0].attention, f"relative_{name}") is not None:
                layer += dense(f"attention/relative_{name}", f"attention.self.pos_{name}_proj")
        rows = self.embedding_rows("embeddings.embed_proj") + self.layer_rows(layer, "encoder.layer.{}.".format)
        if self.relative is not None:
            rows += embedding("relative", "encoder.rel_embeddings")
            rows += norm("relative/norm", "encoder.LayerNorm") if self.relative.norm is not None else []
        if size := self.config.convolution_size:
            rows += convolution("encoder/layer_0/convolution", "encoder.conv.conv", size)
            rows += norm("encoder/layer_0/convolution_norm", "encoder.conv.LayerNorm")
        return rows


class DebertaV2Features(task_models.FeatureExtraction, backbone=DebertaV2):
    """DeBERTa for feature extraction: hidden states of each token."""


class DebertaV2FillMask(task_models.FillMask, backbone=DebertaV2):
    """DeBERTa for masked language modelling, with the head of `transformers` (`legacy`) or of the pretraining."""

    head_table = (*task_models.BERT_PREDICTIONS, *task_models.prediction_rows("lm_predictions.lm_head"))

    @classmethod
    def config_for(cls, config: DebertaV2Config, tensors: Collection[str]) -> DebertaV2Config:
        """Detects the head of the pretraining, which files of version 3 contain but do not specify."""
        return replace(config, legacy=False) if "lm_predictions.lm_head.bias" in tensors else config

    def head_rows(self) -> list[Row]:
        """Returns the rows of the head of this model."""
        return [row for row in self.head_table if row.tensor.startswith("cls.") == self.config.legacy]


class DebertaV2TextClassification(task_models.DenseTextClassification, backbone=DebertaV2):
    """DeBERTa for text classification; a dense layer of the head is the pooler."""

    head_table = (*dense("dense", "pooler.dense"), *dense("output", "classifier"))


class DebertaV2TokenClassification(task_models.TokenClassification, backbone=DebertaV2):
    """DeBERTa for token classification, such as named entity recognition."""


class DebertaV2QuestionAnswering(task_models.QuestionAnswering, backbone=DebertaV2):
    """DeBERTa for extractive question answering."""


MODELS = task_models.by_task(
    DebertaV2Features,
    DebertaV2FillMask,
    DebertaV2TextClassification,
    DebertaV2TokenClassification,
    DebertaV2QuestionAnswering,
)

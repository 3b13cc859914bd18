"""DeBERTa: an encoder with disentangled attention, separate vectors for content and relative position.

Derived from: `bert`.
Paper: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", arXiv:2006.03654.
Reference: `transformers.models.deberta`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from kerasformer import layers
from kerasformer.files.tensors import TensorFile
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Count, Distance, Epsilon, Rate, Size
from kerasformer.models.encoder import TOKENS, BidirectionalEncoder, EncoderConfig, bert_layer_table
from kerasformer.models.weight_table import Names, Row, dense, embedding, fused


@dataclass(frozen=True, kw_only=True)
class DebertaConfig(EncoderConfig):
    """Configuration of DeBERTa; the defaults are those of `transformers`."""

    model_type = "deberta"
    required = {"talking_head": (False, None)}
    # Determined by the shapes of the tensors, or another name of `pad_token_id`.
    ignored = frozenset({"attention_head_size", "pooler_hidden_size", "padding_idx"})

    vocab_size: Size = hf("vocab_size", 50265)
    embedding_dim: Size | None = hf("embedding_size", None)
    classifier_dropout: Rate | None = hf("cls_dropout", None)
    max_length: Distance = hf("max_position_embeddings", 512)
    num_segments: Count = hf("type_vocab_size", 0)
    epsilon: Epsilon = hf("layer_norm_eps", 1e-7)
    relative_attention: bool = hf("relative_attention", False)
    relative_terms: str | list[str] | None = hf("pos_att_type", None)
    max_distance: int = hf("max_relative_positions", -1)
    absolute_positions: bool = hf("position_biased_input", True)
    pooler_act: str = hf("pooler_hidden_act", "gelu")
    pooler_dropout: Rate = hf("pooler_dropout", 0.0)
    legacy: bool = hf("legacy", True)


class Deberta(BidirectionalEncoder):
    """DeBERTa without head."""

    config_type = DebertaConfig
    attention_type = layers.DisentangledAttention
    zero_padding = True
    blind_padding = True
    # Ignored: buffers, unused positions.
    names = Names("deberta.", (r"embeddings\.position_.*",), tokens=TOKENS)

    def make_embeddings(self, **options: Any) -> layers.TransformerEmbeddings:
        """Creates embeddings without absolute positions if only the attention uses positions."""
        config = self.config
        options["max_length"] = config.max_length if config.absolute_positions else None
        options["embedding_dim"] = self.projected_dim
        return super().make_embeddings(projection_first=True, projection_bias=False, **options)

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the terms for relative positions; the scale counts every name in the configuration."""
        config = self.config
        names = config.relative_terms or ()
        count = 1 + len(names.split("|") if isinstance(names, str) else names)
        scale = 1 / math.sqrt(config.hidden_dim // config.num_heads * count)
        terms = {"terms": config.relative_terms, "positions": config.relative_attention}
        return {**terms, "scale": scale, "key_bias": False, "relative_dropout": config.hidden_dropout}

    def make_relative(self, **options: Any) -> layers.RelativeEmbeddings | None:
        """Creates the embeddings of relative positions."""
        config = self.config
        if not config.relative_attention:
            return None
        sizes = (config.max_length, config.hidden_dim, config.max_distance)
        return layers.RelativeEmbeddings(*sizes, initializer=self.initializer, name="relative", **options)

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = [*bert_layer_table(None), *self.attention_rows(self.encoder.layers[0].attention)]
        rows = self.embedding_rows("embeddings.embed_proj") + self.layer_rows(layer, "encoder.layer.{}.".format)
        return rows if self.relative is None else rows + embedding("relative", "encoder.rel_embeddings")

    def attention_rows(self, attention: layers.DisentangledAttention) -> list[Row]:
        """Returns the rows of the projections of an attention layer, of which query, key and value are one tensor."""
        paths = [f"attention/{name}" for name in ("query", "key", "value")]
        rows = fused(paths, "attention.self.in_proj", bias=False, groups=attention.spec.num_heads)
        rows += [Row((f"attention/{name}/bias",), f"attention.self.{name[0]}_bias") for name in ("query", "value")]
        if attention.relative_key is not None:
            rows += dense("attention/relative_key", "attention.self.pos_proj", bias=False)
        if attention.relative_query is not None:
            rows += dense("attention/relative_query", "attention.self.pos_q_proj")
        return rows


_PRETRAINING_HEAD = task_models.prediction_rows("lm_predictions.lm_head")


class DebertaFillMask(task_models.FillMask, backbone=Deberta):
    """DeBERTa for masked language modelling, with the head of `transformers` (`legacy`) or of the pretraining."""

    head_table = (
        *task_models.BERT_PREDICTIONS,
        *(replace(row, preferred=None) for row in _PRETRAINING_HEAD if not row.tied),
    )

    @classmethod
    def config_for(cls, config: Any, tensors: TensorFile) -> Config:
        """Detects the head of the pretraining, which files of the authors contain but do not specify."""
        of_pretraining = "lm_predictions.lm_head.bias" in tensors
        return super().config_for(replace(config, legacy=False) if of_pretraining else config, tensors)

    @classmethod
    def ties(cls, config: DebertaConfig) -> dict[str, str]:
        """See `PretrainedModel.ties`; the head of the pretraining has no matrix of its own."""
        return super().ties(config) if config.legacy else {}

    @property
    def tied(self) -> bool:
        """Whether the matrix of the scores is the table of token embeddings."""
        return super().tied or not self.config.legacy

    def head_rows(self) -> list[Row]:
        """Returns the rows of the head of this model."""
        return [row for row in super().head_rows() if row.tensor.startswith("cls.") == self.config.legacy]


class DebertaTextClassification(task_models.DenseTextClassification, backbone=Deberta):
    """DeBERTa for text classification; a dense layer of the head is the pooler."""

    head_table = (*dense("dense", "pooler.dense"), *dense("output", "classifier"))


MODELS = task_models.heads(
    Deberta,
    task_models.FeatureExtraction,
    DebertaFillMask,
    DebertaTextClassification,
    task_models.TokenClassification,
    task_models.QuestionAnswering,
)

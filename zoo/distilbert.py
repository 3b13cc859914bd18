"""DistilBERT: half of BERT's layers, taught by BERT; it has no segments and no pooler.

Paper: Sanh et al. 2019, "DistilBERT, a distilled version of BERT", arXiv:1910.01108.
Reference: `transformers.models.distilbert`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kerasformer.layers import ClassificationHead
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Layers, Rate, Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder
from kerasformer.models.pretrained import by_task
from kerasformer.models.task_models import (
    FeatureExtraction,
    FillMask,
    QuestionAnswering,
    TextClassification,
    TokenClassification,
)
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(Config):
    """Configuration of DistilBERT; the defaults are those of `distilbert-base-uncased`."""

    model_type = "distilbert"
    required = {"tie_word_embeddings": (True,), "tie_weights_": (True,), "pruned_heads": ({}, None)}
    num_segments: ClassVar[int] = 0
    epsilon: ClassVar[float] = 1e-12

    vocab_size: Size = hf("vocab_size", 30522)
    hidden_dim: Size = hf("dim", 768, "hidden_size")
    num_layers: Layers = hf("n_layers", 6, "num_hidden_layers")
    num_heads: Size = hf("n_heads", 12, "num_attention_heads")
    intermediate_dim: Size = hf("hidden_dim", 3072)
    hidden_act: str = hf("activation", "gelu")
    hidden_dropout: Rate = hf("dropout", 0.1)
    attention_dropout: Rate = hf("attention_dropout", 0.1)
    answer_dropout: Rate = hf("qa_dropout", 0.1)
    classifier_dropout: Rate = hf("seq_classif_dropout", 0.2)
    max_length: Size = hf("max_position_embeddings", 512)
    # Says how the table of positions began; checkpoints hold the table itself.
    sinusoidal: bool = hf("sinusoidal_pos_embds", False)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)

    @property
    def head_dropout(self) -> float:
        """Dropout before the classifier of tokens."""
        return self.hidden_dropout


class DistilBert(BidirectionalEncoder):
    """DistilBERT without head."""

    config_type = DistilBertConfig
    # Left over without loss: the tied copy of the token table, and a buffer.
    names = Names(
        "distilbert.",
        (r"vocab_projector\.weight", r"embeddings\.position_ids"),
        mark="transformer.layer.0.attention.q_lin.weight",
    )

    def rows(self) -> list[Row]:
        """The weight table."""
        layer = [
            *dense("attention/query", "attention.q_lin"),
            *dense("attention/key", "attention.k_lin"),
            *dense("attention/value", "attention.v_lin"),
            *dense("attention/output", "attention.out_lin"),
            *norm("attention_norm", "sa_layer_norm"),
            *dense("feed_forward/intermediate", "ffn.lin1"),
            *dense("feed_forward/output", "ffn.lin2"),
            *norm("feed_forward_norm", "output_layer_norm"),
        ]
        return [
            *embedding("embeddings/tokens", "embeddings.word_embeddings"),
            *embedding("embeddings/positions", "embeddings.position_embeddings"),
            *norm("embeddings/norm", "embeddings.LayerNorm"),
            *repeat(self.config.num_layers, nested(layer, "encoder/layer_{i}/", "transformer.layer.{i}.")),
        ]


class DistilBertTextClassification(TextClassification):
    """DistilBERT for classes of texts; a dense layer of the head stands for the pooler."""

    backbone_type = DistilBert
    architecture = "DistilBertForSequenceClassification"
    head_table = (*dense("dense", "pre_classifier"), *dense("output", "classifier"))

    def make_head(self) -> ClassificationHead:
        """Two dense layers."""
        config = self.config
        return ClassificationHead(
            config.num_labels, config.hidden_dim, "relu", dropout=config.classifier_dropout, name="head"
        )


class DistilBertQuestionAnswering(QuestionAnswering):
    """DistilBERT for answers in a text."""

    backbone_type = DistilBert
    architecture = "DistilBertForQuestionAnswering"
    head_table = dense("output", "qa_outputs")

    def make_head(self) -> ClassificationHead:
        """Dropout and one dense layer."""
        return ClassificationHead(2, dropout=self.config.answer_dropout, name="head")


PREDICTIONS = (
    *dense("dense", "vocab_transform"),
    *norm("norm", "vocab_layer_norm"),
    Row(("bias",), "vocab_projector.bias"),
)


class DistilBertFeatureExtraction(FeatureExtraction):
    """DistilBERT for the hidden states of a text."""

    backbone_type = DistilBert
    architecture = "DistilBertModel"


class DistilBertFillMask(FillMask):
    """DistilBERT for masked words."""

    backbone_type = DistilBert
    architecture = "DistilBertForMaskedLM"
    head_table = PREDICTIONS


class DistilBertTokenClassification(TokenClassification):
    """DistilBERT for classes of tokens, such as entities."""

    backbone_type = DistilBert
    architecture = "DistilBertForTokenClassification"
    head_table = dense("output", "classifier")


MODELS = by_task(
    DistilBertFeatureExtraction,
    DistilBertFillMask,
    DistilBertTextClassification,
    DistilBertTokenClassification,
    DistilBertQuestionAnswering,
)

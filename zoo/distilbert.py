"""DistilBERT: a distilled BERT with half of the layers, without segments and pooler.

Derived from: `bert`.
Paper: Sanh et al. 2019, "DistilBERT, a distilled version of BERT", arXiv:1910.01108.
Reference: `transformers.models.distilbert`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kerasformer.layers import ClassificationHead
from kerasformer.models import task_models
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Layers, Rate, Size, TokenId
from kerasformer.models.encoder import TOKENS, BidirectionalEncoder, layer_table
from kerasformer.models.multi_vector_similarity import MultiVectorSimilarity
from kerasformer.models.sparse_similarity import SparseSimilarity
from kerasformer.models.weight_table import Names, Row, dense, norm, output_matrix


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(Config):
    """Configuration of DistilBERT; the defaults are those of `distilbert-base-uncased`."""

    model_type = "distilbert"
    required = {"tie_weights_": (True,)}
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
    # Kept without effect: the initialization of the position table, which checkpoints contain.
    sinusoidal: bool = hf("sinusoidal_pos_embds", False)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", True)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)

    @property
    def head_dropout(self) -> float:
        """Dropout rate before a token classifier."""
        return self.hidden_dropout


class DistilBert(BidirectionalEncoder):
    """DistilBERT without head."""

    config_type = DistilBertConfig
    # Ignored: a buffer.
    names = Names("distilbert.", (r"embeddings\.position_ids",), tokens=TOKENS)

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = layer_table(
            ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm"),
            ("ffn.lin1", "ffn.lin2", "output_layer_norm"),
        )
        return [*self.embedding_rows(), *self.layer_rows(layer, "transformer.layer.{}.".format)]


class DistilBertTextClassification(task_models.TextClassification, backbone=DistilBert):
    """DistilBERT for text classification; a dense layer of the head is the pooler."""

    head_table = (*dense("dense", "pre_classifier"), *dense("output", "classifier"))

    def make_head(self) -> ClassificationHead:
        """Creates a head of two dense layers."""
        config = self.config
        return ClassificationHead(
            config.num_labels, config.hidden_dim, "relu", dropout=config.classifier_dropout, name="head"
        )


class DistilBertQuestionAnswering(task_models.QuestionAnswering, backbone=DistilBert):
    """DistilBERT for extractive question answering."""

    def make_head(self) -> ClassificationHead:
        """Creates a head of dropout and a dense layer."""
        return ClassificationHead(2, dropout=self.config.answer_dropout, name="head")


class DistilBertFeatureExtraction(task_models.FeatureExtraction, backbone=DistilBert):
    """DistilBERT for feature extraction: hidden states of each token."""


class DistilBertFillMask(task_models.FillMask, backbone=DistilBert):
    """DistilBERT for masked language modelling."""

    head_table = (
        *dense("dense", "vocab_transform"),
        *norm("norm", "vocab_layer_norm"),
        Row(("bias",), "vocab_projector.bias"),
        output_matrix("vocab_projector.weight", "projection/kernel"),
    )


MODELS = task_models.heads(
    DistilBert,
    DistilBertFeatureExtraction,
    DistilBertFillMask,
    DistilBertTextClassification,
    task_models.TokenClassification,
    DistilBertQuestionAnswering,
    (SparseSimilarity, DistilBertFillMask),
    MultiVectorSimilarity,
)

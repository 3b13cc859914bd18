"""BERT: an encoder that reads a text in both directions.

Paper: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", arXiv:1810.04805.
Reference: `transformers.models.bert`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder
from kerasformer.models.pretrained import by_task
from kerasformer.models.task_models import (
    FillMask,
    PooledFeatures,
    Pretraining,
    QuestionAnswering,
    TextClassification,
    TokenClassification,
)
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class BertConfig(Config):
    """Configuration of BERT; the defaults are those of `bert-base-uncased`."""

    model_type = "bert"
    required = {
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "tie_word_embeddings": (True,),
        "pruned_heads": ({}, None),
    }

    vocab_size: Size = hf("vocab_size", 30522)
    hidden_dim: Size = hf("hidden_size", 768)
    num_layers: Layers = hf("num_hidden_layers", 12)
    num_heads: Size = hf("num_attention_heads", 12)
    intermediate_dim: Size = hf("intermediate_size", 3072)
    hidden_act: str = hf("hidden_act", "gelu")
    hidden_dropout: Rate = hf("hidden_dropout_prob", 0.1)
    attention_dropout: Rate = hf("attention_probs_dropout_prob", 0.1)
    classifier_dropout: Rate | None = hf("classifier_dropout", None)
    max_length: Size = hf("max_position_embeddings", 512)
    num_segments: Size = hf("type_vocab_size", 2)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    epsilon: Epsilon = hf("layer_norm_eps", 1e-12)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)

    @property
    def head_dropout(self) -> float:
        """Dropout before a classifier."""
        return self.hidden_dropout if self.classifier_dropout is None else self.classifier_dropout


class Bert(BidirectionalEncoder):
    """BERT without head."""

    config_type = BertConfig
    input_names = ("input_ids", "attention_mask", "token_type_ids")
    # Left over without loss: the tied copies of the token table and the output bias, a buffer, an unused pooler.
    names = Names(
        "bert.",
        (r"cls\.predictions\.decoder\..*", r"embeddings\.position_ids", r"pooler\..*"),
        mark="encoder.layer.0.attention.self.query.weight",
    )

    def rows(self) -> list[Row]:
        """The weight table."""
        layer = [
            *dense("attention/query", "attention.self.query"),
            *dense("attention/key", "attention.self.key"),
            *dense("attention/value", "attention.self.value"),
            *dense("attention/output", "attention.output.dense"),
            *norm("attention_norm", "attention.output.LayerNorm"),
            *dense("feed_forward/intermediate", "intermediate.dense"),
            *dense("feed_forward/output", "output.dense"),
            *norm("feed_forward_norm", "output.LayerNorm"),
        ]
        return [
            *embedding("embeddings/tokens", "embeddings.word_embeddings"),
            *embedding("embeddings/positions", "embeddings.position_embeddings"),
            *embedding("embeddings/segments", "embeddings.token_type_embeddings"),
            *norm("embeddings/norm", "embeddings.LayerNorm"),
            *repeat(self.config.num_layers, nested(layer, "encoder/layer_{i}/", "encoder.layer.{i}.")),
            *(dense("pooler", "pooler.dense") if self.pooler is not None else []),
        ]


PREDICTIONS = (
    *dense("dense", "cls.predictions.transform.dense"),
    *norm("norm", "cls.predictions.transform.LayerNorm"),
    Row(("bias",), "cls.predictions.bias"),
)


class BertPretraining(Pretraining):
    """BERT as it was trained: masked words, and whether the second text follows the first."""

    backbone_type = Bert
    architecture = "BertForPreTraining"
    relation = "seq_relationship_logits"
    head_table = (*nested(PREDICTIONS, "predictions/"), *dense("relation/output", "cls.seq_relationship"))


CLASSIFIER = dense("output", "classifier")


class BertPooledFeatures(PooledFeatures):
    """BERT for the hidden states of a text."""

    backbone_type = Bert
    architecture = "BertModel"


class BertFillMask(FillMask):
    """BERT for masked words."""

    backbone_type = Bert
    architecture = "BertForMaskedLM"
    head_table = PREDICTIONS


class BertTextClassification(TextClassification):
    """BERT for classes of texts, by its pooled first token."""

    backbone_type = Bert
    architecture = "BertForSequenceClassification"
    head_table = CLASSIFIER
    pooled = True


class BertTokenClassification(TokenClassification):
    """BERT for classes of tokens, such as entities."""

    backbone_type = Bert
    architecture = "BertForTokenClassification"
    head_table = CLASSIFIER


class BertQuestionAnswering(QuestionAnswering):
    """BERT for answers in a text."""

    backbone_type = Bert
    architecture = "BertForQuestionAnswering"
    head_table = dense("output", "qa_outputs")


MODELS = by_task(
    BertPooledFeatures,
    BertFillMask,
    BertPretraining,
    BertTextClassification,
    BertTokenClassification,
    BertQuestionAnswering,
)

"""BERT: a bidirectional encoder.

Paper: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", arXiv:1810.04805.
Reference: `transformers.models.bert`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models import task_models
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder, layer_table
from kerasformer.models.pretrained import by_task
from kerasformer.models.weight_table import Names, Row, dense, nested


@dataclass(frozen=True, kw_only=True)
class BertConfig(Config):
    """Configuration of BERT; the defaults are those of `bert-base-uncased`."""

    model_type = "bert"
    required = {
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "tie_word_embeddings": (True,),
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
        """Dropout rate before a classifier."""
        return self.hidden_dropout if self.classifier_dropout is None else self.classifier_dropout


class Bert(BidirectionalEncoder):
    """BERT without head."""

    config_type = BertConfig
    # Ignored: tied copies of the token table and of the output bias, a buffer, an unused pooler.
    names = Names(
        "bert.",
        (r"cls\.predictions\.decoder\..*", r"embeddings\.position_ids", r"pooler\..*"),
        mark="encoder.layer.0.attention.self.query.weight",
    )

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = layer_table(
            (
                "attention.self.query",
                "attention.self.key",
                "attention.self.value",
                "attention.output.dense",
                "attention.output.LayerNorm",
            ),
            ("intermediate.dense", "output.dense", "output.LayerNorm"),
        )
        layers = self.layer_rows(layer, "encoder.layer.{}.".format)
        return [*self.embedding_rows(), *layers, *self.pooler_rows("pooler.dense")]


PREDICTIONS = task_models.prediction_rows(
    "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
)


class BertPretraining(task_models.Pretraining):
    """BERT with both heads of its pretraining: masked language modelling and next sentence prediction."""

    backbone_type = Bert
    architecture = "BertForPreTraining"
    relation = "seq_relationship_logits"
    head_table = (*nested(PREDICTIONS, "predictions/"), *dense("relation/output", "cls.seq_relationship"))


class BertPooledFeatures(task_models.PooledFeatures):
    """BERT for feature extraction: hidden states of each token."""

    backbone_type = Bert
    architecture = "BertModel"


class BertFillMask(task_models.FillMask):
    """BERT for masked language modelling."""

    backbone_type = Bert
    architecture = "BertForMaskedLM"
    head_table = PREDICTIONS


class BertTextClassification(task_models.TextClassification):
    """BERT for text classification, with a pooler."""

    backbone_type = Bert
    architecture = "BertForSequenceClassification"
    pooled = True


class BertTokenClassification(task_models.TokenClassification):
    """BERT for token classification, such as named entity recognition."""

    backbone_type = Bert
    architecture = "BertForTokenClassification"


class BertQuestionAnswering(task_models.QuestionAnswering):
    """BERT for extractive question answering."""

    backbone_type = Bert
    architecture = "BertForQuestionAnswering"


MODELS = by_task(
    BertPooledFeatures,
    BertFillMask,
    BertPretraining,
    BertTextClassification,
    BertTokenClassification,
    BertQuestionAnswering,
)

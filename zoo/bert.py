"""BERT: a bidirectional encoder.

Derived from: the Transformer.
Paper: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", arXiv:1810.04805.
Reference: `transformers.models.bert`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Rate, Size
from kerasformer.models.encoder import TOKENS, BidirectionalEncoder, EncoderConfig
from kerasformer.models.multi_vector_similarity import MultiVectorSimilarity
from kerasformer.models.span_extraction import SpanExtraction
from kerasformer.models.sparse_similarity import SparseSimilarity
from kerasformer.models.weight_table import Names, dense, nested


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """Configuration of BERT; the defaults are those of `bert-base-uncased`."""

    model_type = "bert"
    # Written by the code of TinyBERT and by TensorFlow code of Google; the reference does not read them.
    ignored = frozenset(
        """cell emb_size pre_trained structure directionality pooler_fc_size pooler_num_attention_heads
        pooler_num_fc_layers pooler_size_per_head pooler_type""".split()
    )
    required = {
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }

    classifier_dropout: Rate | None = hf("classifier_dropout", None)
    max_length: Size = hf("max_position_embeddings", 512)

    @property
    def head_dropout(self) -> float:
        """Dropout rate before a classifier."""
        return self.hidden_dropout if self.classifier_dropout is None else self.classifier_dropout


class Bert(BidirectionalEncoder):
    """BERT without head."""

    config_type = BertConfig
    # Ignored: a buffer, an unused pooler.
    names = Names("bert.", (r"embeddings\.position_ids", r"pooler\..*"), tokens=TOKENS)


class BertPretraining(task_models.Pretraining, backbone=Bert):
    """BERT with both heads of its pretraining: masked language modelling and next sentence prediction."""

    relation = "seq_relationship_logits"
    head_table = (
        *nested(task_models.BERT_PREDICTIONS, "predictions/"),
        *dense("relation/output", "cls.seq_relationship"),
    )


class BertNextSentencePrediction(task_models.NextSentencePrediction, backbone=Bert):
    """BERT for next sentence prediction."""

    head_table = dense("output", "cls.seq_relationship")


class BertPooledFeatures(task_models.PooledFeatures, backbone=Bert):
    """BERT for feature extraction: hidden states of each token."""


class BertFillMask(task_models.FillMask, backbone=Bert):
    """BERT for masked language modelling."""

    head_table = task_models.BERT_PREDICTIONS


SHARED = task_models.heads(
    Bert,
    BertPooledFeatures,
    BertFillMask,
    BertPretraining,
    task_models.PooledTextClassification,
    task_models.TokenClassification,
    task_models.QuestionAnswering,
)
"""Heads that ALBERT and BigBird have, too."""

MODELS = {
    **SHARED,
    **task_models.heads(
        Bert, BertNextSentencePrediction, SpanExtraction, (SparseSimilarity, BertFillMask), MultiVectorSimilarity
    ),
}

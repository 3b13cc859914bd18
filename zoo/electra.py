"""ELECTRA: BERT trained to detect tokens that a small generator, a masked language model, has replaced.

Derived from: `bert`.
Paper: Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
arXiv:2003.10555. Reference: `transformers.models.electra`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kerasformer.layers import TransformerEmbeddings
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size
from kerasformer.models.encoder import TOKENS, BidirectionalEncoder, bert_layer_table
from kerasformer.models.weight_table import Names, Row, dense, norm, output_matrix
from kerasformer.zoo.bert import BertConfig


@dataclass(frozen=True, kw_only=True)
class ElectraConfig(BertConfig):
    """Configuration of ELECTRA; the defaults are those of `google/electra-small-discriminator`."""

    model_type = "electra"
    # Settings of the head for multiple choice.
    ignored = frozenset("summary_activation summary_last_dropout summary_type summary_use_proj".split())
    # The activation in a text classifier, whatever that of the layers is.
    pooler_act: ClassVar[str] = "gelu"

    embedding_dim: Size = hf("embedding_size", 128)
    hidden_dim: Size = hf("hidden_size", 256)
    num_heads: Size = hf("num_attention_heads", 4)
    intermediate_dim: Size = hf("intermediate_size", 1024)


class Electra(BidirectionalEncoder):
    """ELECTRA without head: the generator or the discriminator."""

    config_type = ElectraConfig
    # Ignored: a buffer.
    names = Names("electra.", (r"embeddings\.position_ids",), tokens=TOKENS)

    def make_embeddings(self, **options: Any) -> TransformerEmbeddings:
        """Creates embeddings, which are projected if their size is not that of the hidden states."""
        return super().make_embeddings(embedding_dim=self.projected_dim, **options)

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layers = self.layer_rows(bert_layer_table(), "encoder.layer.{}.".format)
        return [*self.embedding_rows("embeddings_project"), *layers]


class ElectraFeatureExtraction(task_models.FeatureExtraction, backbone=Electra):
    """ELECTRA for feature extraction: hidden states of each token."""


class ElectraFillMask(task_models.FillMask, backbone=Electra):
    """Generator of ELECTRA, for masked language modelling."""

    head_activation = "gelu"
    head_table = (
        *dense("dense", "generator_predictions.dense"),
        *norm("norm", "generator_predictions.LayerNorm"),
        Row(("bias",), "generator_lm_head.bias"),
        output_matrix("generator_lm_head.weight", "projection/kernel"),
    )


class ElectraReplacedTokenDetection(task_models.ReplacedTokenDetection, backbone=Electra):
    """Discriminator of ELECTRA with the head of its pretraining."""

    head_table = (
        *dense("dense", "discriminator_predictions.dense"),
        *dense("output", "discriminator_predictions.dense_prediction"),
    )


MODELS = task_models.heads(
    Electra,
    ElectraFeatureExtraction,
    ElectraFillMask,
    ElectraReplacedTokenDetection,
    task_models.DenseTextClassification,
    task_models.TokenClassification,
    task_models.QuestionAnswering,
)

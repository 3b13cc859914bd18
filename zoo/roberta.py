"""RoBERTa: BERT with byte-level tokens and more training data, pretrained without next sentence prediction.

A pair of texts is encoded as `<s> A </s></s> B </s>`, without segments.

Derived from: `bert`.
Paper: Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach", arXiv:1907.11692.
Reference: `transformers.models.roberta`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Rate, Size
from kerasformer.models.encoder import TOKENS
from kerasformer.models.multi_vector_similarity import MultiVectorSimilarity
from kerasformer.models.offset_positions import OffsetConfig, OffsetEncoder
from kerasformer.models.sparse_similarity import SparseSimilarity
from kerasformer.models.weight_table import Names


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(OffsetConfig):
    """Configuration of RoBERTa; the defaults are those of the reference class."""

    model_type = "roberta"
    required = {
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }

    vocab_size: Size = hf("vocab_size", 50265)
    classifier_dropout: Rate | None = hf("classifier_dropout", None)

    @property
    def head_dropout(self) -> float:
        """Dropout rate before a classifier."""
        return self.hidden_dropout if self.classifier_dropout is None else self.classifier_dropout


class Roberta(OffsetEncoder):
    """RoBERTa without head."""

    config_type = RobertaConfig
    # Ignored: a buffer, an unused pooler.
    names = Names("roberta.", (r"embeddings\.position_ids", r"pooler\..*"), tokens=TOKENS)


MODELS = task_models.heads(
    Roberta,
    task_models.PooledFeatures,
    task_models.GeluFillMask,
    task_models.DenseTextClassification,
    task_models.TokenClassification,
    task_models.QuestionAnswering,
    (SparseSimilarity, task_models.GeluFillMask),
    MultiVectorSimilarity,
)

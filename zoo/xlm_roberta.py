"""XLM-RoBERTa: RoBERTa for 100 languages, with tokens of SentencePiece.

Derived from: `roberta`.
Paper: Conneau et al. 2020, "Unsupervised Cross-lingual Representation Learning at Scale", arXiv:1911.02116.
Reference: `transformers.models.xlm_roberta`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size
from kerasformer.zoo import roberta


@dataclass(frozen=True, kw_only=True)
class XLMRobertaConfig(roberta.RobertaConfig):
    """Configuration of XLM-RoBERTa; the defaults are those of the reference class."""

    model_type = "xlm-roberta"

    vocab_size: Size = hf("vocab_size", 30522)


class XLMRoberta(roberta.Roberta):
    """XLM-RoBERTa without head."""

    config_type = XLMRobertaConfig


MODELS = task_models.heads_like(roberta.MODELS, XLMRoberta)

"""CamemBERT: RoBERTa for French, with tokens of SentencePiece.

Derived from: `roberta`.
Paper: Martin et al. 2020, "CamemBERT: a Tasty French Language Model", arXiv:1911.03894.
Reference: `transformers.models.camembert`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size
from kerasformer.zoo import roberta


@dataclass(frozen=True, kw_only=True)
class CamembertConfig(roberta.RobertaConfig):
    """Configuration of CamemBERT; the defaults are those of the reference class."""

    model_type = "camembert"

    vocab_size: Size = hf("vocab_size", 30522)


class Camembert(roberta.Roberta):
    """CamemBERT without head."""

    config_type = CamembertConfig


MODELS = task_models.heads_like(roberta.MODELS, Camembert)

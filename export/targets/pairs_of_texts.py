"""Tasks on pairs of texts, for targets with pipelines of their own."""

from __future__ import annotations

from kerasformer.bundle import ModelInfo
from kerasformer.errors import ExportError

RANKING, ZERO_SHOT = "text-ranking", "zero-shot-classification"


def nli_classes(target: str, info: ModelInfo) -> tuple[int, int]:
    """Returns the indices of entailment and contradiction, by the rules of `kf.pipeline` and of transformers.

    Args:
        target: Name of the target, for the error message.
        info: Description of a model for zero-shot classification.

    Raises:
        ExportError: The model has no class of entailment, or no other.
    """
    entailments = [index for index, label in enumerate(info.labels) if label.lower().startswith("entail")]
    if not entailments or len(info.labels) < 2:
        raise ExportError(
            f"target={target!r} needs a model for natural language inference for {ZERO_SHOT}, with a class "
            "whose name starts with 'entail' and at least one other. Received: "
            f"{', '.join(info.labels) or 'none'}. Set other names (id2label)"
        )
    return entailments[0], len(info.labels) - 1 if entailments[0] == 0 else 0

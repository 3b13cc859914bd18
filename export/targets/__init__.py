"""Third-party runtimes that bundles are exported for."""

from __future__ import annotations

from kerasformer.errors import ExportError
from kerasformer.export.targets.base import Target
from kerasformer.export.targets.genai import Genai
from kerasformer.export.targets.litert_lm import LitertLm
from kerasformer.export.targets.litert_web import LitertWeb
from kerasformer.export.targets.mediapipe import Mediapipe
from kerasformer.export.targets.optimum import Optimum
from kerasformer.export.targets.saved_model import SavedModel
from kerasformer.export.targets.transformers_js import TransformersJs
from kerasformer.export.targets.triton import Triton

_ALL = (Mediapipe(), LitertLm(), LitertWeb(), TransformersJs(), Optimum(), Genai(), SavedModel(), Triton())

TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
"""Targets by name, in the order of `kerasformer export --list-targets`."""


def find_target(name: str | None) -> Target:
    """Returns the target with a name; without a name, one that has no requirements.

    Raises:
        ExportError: The name is unknown.
    """
    if name is None:
        return Target()
    if name not in TARGETS:
        raise ExportError(f"Unknown target. Expected one of {', '.join(TARGETS)}. Received: {name!r}")
    return TARGETS[name]


__all__ = ["TARGETS", "Target", "find_target"]

"""The JavaScript of a card: the runtimes of browsers that take the plain bundle of a format, as their targets tell."""

from __future__ import annotations

from kerasformer import tested
from kerasformer.bundle import Manifest
from kerasformer.export.targets import TARGETS, Target

_TAKES = {"tflite": "litert-web", "onnx": "transformers.js"}


def section(manifest: Manifest, target: Target) -> str:
    """What that runtime's target says, where tests ran such a model there, and a bundle for it has it already."""
    name = _TAKES.get(manifest.format, "")
    if name in ("", target.name) or not tested.runtimes()[name].covers(manifest.info.task, manifest.info.model_type):
        return ""
    return TARGETS[name].card(manifest)

"""The JavaScript of a card: the runtimes of browsers that take the plain bundle of a format, as their targets tell."""

from __future__ import annotations

from pathlib import Path

from kerasformer import tested
from kerasformer.bundle import Manifest
from kerasformer.export.formats.onnx.onnx_format import SUFFIXES
from kerasformer.export.targets import TARGETS, Target

_TAKES = {"tflite": "litert-web", "onnx": "transformers.js"}

# A table that encoder and decoder share lies in one file beside them, which a browser shows to neither.
_IN_NODE_ALONE = """## transformers.js

In Node it runs this folder. In a browser it needs one that was exported with `--target transformers.js`, whose card has
the programs for both.
"""


def section(manifest: Manifest, target: Target, folder: Path) -> str:
    """What that runtime's target says, where tests ran such a model there, and a bundle for it has it already."""
    name, info = _TAKES.get(manifest.format, ""), manifest.info
    if name in ("", target.name) or not tested.runtimes()[name].covers(info.task, info.model_type):
        return ""
    if manifest.format == "onnx":
        if manifest.recipe.get("name") not in SUFFIXES:
            return ""
        if info.is_encoder_decoder:
            return _IN_NODE_ALONE
    return TARGETS[name].card(manifest, folder)

"""JavaScript programs of a card, by the targets of the browser runtimes that run the plain bundle of a format."""

from __future__ import annotations

from pathlib import Path

from kerasformer import tested
from kerasformer.bundle import Manifest
from kerasformer.export.card.program import ProgramFile
from kerasformer.export.card.quoting import code
from kerasformer.export.formats.onnx.onnx_format import SUFFIXES
from kerasformer.export.targets import TARGETS, Target
from kerasformer.tokenization.tokenizer import TARGET_FILE

_TARGETS = {"tflite": "litert-web", "onnx": "transformers.js"}

# A table that encoder and decoder share is stored in a file beside them, which they cannot read in a browser.
_ONLY_IN_NODE = """## transformers.js

This folder runs in Node. For browsers, export with `--target transformers.js`; the card of that bundle has programs for
both.
"""


def program(manifest: Manifest, target: Target, folder: Path) -> ProgramFile | None:
    """Returns the page of a browser runtime if such models are tested there and it is not the target anyway."""
    page = _page(manifest, target, folder)
    if not page:
        return None
    runtime = TARGETS[_TARGETS[manifest.format]]
    further = [name for name in runtime.app_files if name not in target.app_files and (folder / name).is_file()]
    needs = ", ".join([page.partition("\n")[0].removeprefix("## "), *map(code, further)])
    return ProgramFile("javascript.md", "JavaScript", needs, page)


def _page(manifest: Manifest, target: Target, folder: Path) -> str:
    if (folder / TARGET_FILE).is_file():
        return ""  # its programs read and write texts with one vocabulary
    name, info = _TARGETS.get(manifest.format, ""), manifest.info
    if name in ("", target.name) or not tested.runtimes()[name].covers(info.task, info.model_type):
        return ""
    if manifest.format == "onnx":
        if manifest.recipe.get("name") not in SUFFIXES:
            return ""
        if info.is_encoder_decoder:
            return _ONLY_IN_NODE
    return TARGETS[name].card(manifest, folder)

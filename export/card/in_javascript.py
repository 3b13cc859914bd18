"""JavaScript of a card: a program for LiteRT.js, or a page about transformers.js, by the format of the bundle."""

from __future__ import annotations

from pathlib import Path

from kerasformer import tested
from kerasformer.bundle import Manifest
from kerasformer.export.card.program import ProgramFile, kind, source
from kerasformer.export.card.quoting import code
from kerasformer.export.formats.onnx.onnx_format import SUFFIXES
from kerasformer.export.targets import TARGETS, Target
from kerasformer.tokenization.tokenizer import TARGET_FILE

LITERT_JS = "2.5.3"
"""Version of `@litertjs/core` for which the program is written."""

# A table that encoder and decoder share is stored in a file beside them, which they cannot read in a browser.
_ONLY_IN_NODE = """## transformers.js

This folder runs in Node. For browsers, export with `--target transformers.js`; the card of that bundle has programs for
both.
"""


def program(manifest: Manifest, target: Target, folder: Path) -> ProgramFile | None:
    """Returns the program or page of a browser runtime, if such models are tested there."""
    if (folder / TARGET_FILE).is_file():
        return None  # they read and write texts with one vocabulary
    return _litert_js(manifest, target, folder) if manifest.format == "tflite" else _page(manifest, target, folder)


def _litert_js(manifest: Manifest, target: Target, folder: Path) -> ProgramFile | None:
    """Returns the program for LiteRT.js, which reads the manifest when it runs."""
    if kind(manifest) is None or not (target.name == "litert-web" or _is_tested("litert-web", manifest)):
        return None
    files = ", ".join(map(code, ("kerasformer.json", *_further("litert-web", target, folder))))
    needs = f"`npm install @litertjs/core@{LITERT_JS} @huggingface/tokenizers`; {files}"
    return ProgramFile("model.js", "JavaScript (browsers)", needs, source("model.js"))


def _page(manifest: Manifest, target: Target, folder: Path) -> ProgramFile | None:
    """Returns the page about transformers.js, which is on the card itself if it is the target."""
    name, is_encoder_decoder = "transformers.js", manifest.info.is_encoder_decoder
    if manifest.format != "onnx" or target.name == name or manifest.recipe.get("name") not in SUFFIXES:
        return None
    if target.model_folder is not None or not _is_tested(name, manifest):
        return None
    page = _ONLY_IN_NODE if is_encoder_decoder else TARGETS[name].card(manifest, folder)
    needs = ", ".join([name, *map(code, _further(name, target, folder))])
    return ProgramFile("javascript.md", "JavaScript", needs, page) if page else None


def _is_tested(runtime: str, manifest: Manifest) -> bool:
    return tested.runtimes()[runtime].covers(manifest.info.task, manifest.info.model_type)


def _further(runtime: str, target: Target, folder: Path) -> list[str]:
    """Returns the files that a runtime needs beyond those that the card lists for the target."""
    files = TARGETS[runtime].app_files
    return [name for name in files if name not in target.app_files and (folder / name).is_file()]

"""What a served site needs to run code in its pages: the library for JavaScript, its runtimes, bundles of presets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import kerasformer as kf
from docs.site.colours import PAGE
from kerasformer.tools.web.vendor import vendor

PRESETS = ("sentiment-bert", "embedder-bert", "summarizer-t5", "story-gpt2")
FOLDER = "live"
READY = "ready.json"
"""File by which a page knows that it can run code."""


def write(site: Path, presets: Sequence[str] = PRESETS, runtime_files: Path | None = None) -> None:
    """Adds the folder `live/` to a site.

    Args:
        site: The site.
        presets: Names of the presets to export.
        runtime_files: A folder with the pinned packages of npm, as for `kerasformer web`.
    """
    folder = site / FOLDER
    shutil.copytree(PAGE / "library", folder / "library")
    vendor(folder / "vendor", ["onnx"], runtime_files)
    for name in presets:
        kf.load(name).export(folder / "models" / name, format="onnx", quantize="int8")
    (folder / READY).write_text(json.dumps({"models": presets}), encoding="utf-8")

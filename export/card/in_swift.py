"""Swift program of a card, with LiteRT's `CompiledModel` on iOS and macOS."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.export.card.program import ProgramFile, kind, main_file, source
from kerasformer.export.card.quoting import code


def program(manifest: Manifest) -> ProgramFile | None:
    """Returns the classes that run a model on token ids; they read the manifest when they run."""
    if manifest.format != "tflite" or kind(manifest) is None:
        return None
    package = "package `https://github.com/google-ai-edge/LiteRT`, branch `release/2.3.0`, product `LiteRT`"
    needs = f"{package}; {code(main_file(manifest))} and `kerasformer.json` in the resources"
    return ProgramFile("TextModels.swift", "Swift (iOS, macOS)", needs, source("TextModels.swift"))

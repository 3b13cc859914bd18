"""Kotlin program of a card, with LiteRT's `CompiledModel` on Android."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.export.card.program import ProgramFile, kind, main_file, source
from kerasformer.export.card.quoting import code


def program(manifest: Manifest) -> ProgramFile | None:
    """Returns the classes that run a model on token ids; they read the manifest when they run."""
    if manifest.format != "tflite" or kind(manifest) is None:
        return None
    version = manifest.versions.get("ai-edge-litert", "2.3.0")
    files = f"{code(main_file(manifest))} and `kerasformer.json` in the assets"
    needs = f'`implementation("com.google.ai.edge.litert:litert:{version}")`; {files}'
    return ProgramFile("TextModels.kt", "Kotlin (Android)", needs, source("TextModels.kt"))

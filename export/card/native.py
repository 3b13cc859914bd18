"""Programs of a card that take token ids: in Kotlin, Swift and C++. They read the manifest when they run."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.export.card.program import FOLDER, ProgramFile, kind, main_file, source
from kerasformer.export.card.quoting import code

_HEADER = "bundle.hpp"
_CPP = {
    "tflite": ("litert.cpp", "LiteRT's C++ library, 2.2 or later; C++20"),
    "onnx": ("onnxruntime.cpp", "ONNX Runtime's headers and library, 1.14 or later; C++17"),
}


def programs(manifest: Manifest) -> list[ProgramFile]:
    """Returns the programs for the runtimes of a bundle's format; none for a bundle with other signatures than ours."""
    if manifest.format not in _CPP or kind(manifest) is None:
        return []
    name, needs = _CPP[manifest.format]
    needs = f"{needs}; [nlohmann/json](https://github.com/nlohmann/json); [{_HEADER}]({FOLDER}/{_HEADER})"
    cpp = ProgramFile("main.cpp", "C++", needs, source(name), {_HEADER: source(_HEADER)})
    if manifest.format != "tflite":
        return [cpp]
    files, version = (
        f"{code(main_file(manifest))} and `kerasformer.json`",
        manifest.versions.get("ai-edge-litert", "2.3.0"),
    )
    kotlin = f'`implementation("com.google.ai.edge.litert:litert:{version}")`; {files} in the assets'
    package = "package `https://github.com/google-ai-edge/LiteRT`, branch `release/2.3.0`, product `LiteRT`"
    return [
        ProgramFile("TextModels.kt", "Kotlin (Android)", kotlin, source("TextModels.kt")),
        ProgramFile(
            "TextModels.swift", "Swift (iOS, macOS)", f"{package}; {files} in the resources", source("TextModels.swift")
        ),
        cpp,
    ]

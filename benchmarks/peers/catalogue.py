"""What can be measured: the libraries with their pinned packages, and the variants of each."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.shapes import Shape
from kerasformer.bench.question import Subject


class Peer(Subject, Protocol):
    """One variant of another library; made with a `Place`."""

    def prepare(self) -> None:
        """Writes the files that `load` opens, once, into the folder of the place."""
        ...


@dataclass(frozen=True)
class Place:
    """Where a variant works.

    Attributes:
        variant: Its name.
        shape: The model.
        checkpoint: Of Hugging Face, with random weights.
        folder: What `prepare` writes.
    """

    variant: str
    shape: Shape
    checkpoint: Path
    folder: Path


@dataclass(frozen=True)
class Library:
    """One environment.

    Attributes:
        requirements: Pinned, for pip.
        module: Of `benchmarks.peers`; its class `Model` is the `Peer`.
        variants: Titles in tables, by name.
        shapes: Names of the shapes that each variant is for; all of them where it is not named.
    """

    requirements: tuple[str, ...]
    module: str
    variants: dict[str, str]
    shapes: dict[str, tuple[str, ...]]

    def model(self, place: Place) -> Peer:
        """The variant; imports nothing of the library yet."""
        module: Any = importlib.import_module(f"benchmarks.peers.{self.module}")
        peer: Peer = module.Model(place)
        return peer


_TORCH = "torch==2.13.0"  # a range would admit versions that bring gigabytes for GPUs
_ENCODER = ("bert", "tiny-bert")

LIBRARIES = {
    "transformers": Library(
        (_TORCH, "transformers==5.23.0"),
        "pytorch",
        {"transformers": "transformers, PyTorch f32"},
        {},
    ),
    "keras-hub": Library(
        ("tensorflow==2.21.0", "keras==3.15.1", "keras-hub==0.32.0", "ai-edge-litert==2.3.0"),
        "kerashub",
        {
            "keras-hub": "KerasHub f32, XLA",
            "keras-hub-litert-f32": "KerasHub export to LiteRT f32",
            "keras-hub-litert-int8": "KerasHub export to LiteRT int8",
        },
        {"keras-hub-litert-f32": _ENCODER, "keras-hub-litert-int8": _ENCODER},
    ),
    "ctranslate2": Library(
        ("ctranslate2==4.8.5", "transformers==4.57.6", _TORCH),
        "opennmt",
        {"ctranslate2-f32": "CTranslate2 f32", "ctranslate2-int8": "CTranslate2 int8"},
        {},
    ),
    "optimum": Library(
        ("optimum-onnx[onnxruntime]==0.1.0", "optimum==2.1.0", "transformers==4.57.6", "onnxruntime==1.31.1", _TORCH),
        "optimum_onnx",
        {
            "optimum-f32": "optimum, ONNX Runtime f32",
            "optimum-int8": "optimum, ONNX Runtime int8",
            "optimum-o2-int8": "optimum, ONNX Runtime O2 and int8",
        },
        {"optimum-o2-int8": _ENCODER},
    ),
    "litert-torch": Library(
        (
            "litert-torch==0.10.0",
            "tensorflow==2.21.0",
            "ai-edge-litert==2.3.0",
            "transformers==5.23.0",
            _TORCH,
        ),  # its exporter imports tensorflow without asking for it
        "litert_from_torch",
        {"litert-torch-f32": "litert-torch f32", "litert-torch-int8": "litert-torch int8"},
        {},
    ),
}

OURS = {
    "keras": "kerasformer Keras f32",
    "tflite-none": "kerasformer LiteRT f32",
    "tflite-int8": "kerasformer LiteRT int8",
    "tflite-int4": "kerasformer LiteRT int4",
    "onnx-none": "kerasformer ONNX Runtime f32",
    "onnx-int8": "kerasformer ONNX Runtime int8",
    "onnx-int4": "kerasformer ONNX Runtime int4",
}
"""Titles of what is ours, by `FORMAT-RECIPE`, or `keras`."""


def library_of(variant: str) -> str:
    """Name of the library that has this variant."""
    return next(name for name, library in LIBRARIES.items() if variant in library.variants)


def peers_for(shape: str) -> list[str]:
    """All variants that are for this shape."""
    return [
        variant
        for library in LIBRARIES.values()
        for variant in library.variants
        if shape in library.shapes.get(variant, (shape,))
    ]


def title_of(name: str) -> str:
    """As it stands in tables."""
    return OURS[name] if name in OURS else LIBRARIES[library_of(name)].variants[name]

"""The measured libraries with their pinned packages and variants."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.shapes import Shape
from kerasformer.tools.bench.question import Facts


@dataclass(frozen=True)
class Job:
    """A variant together with the model that it runs.

    Attributes:
        variant: Name of the variant.
        shape: Shape of the model.
        checkpoint: Hugging Face checkpoint with random weights, or a bundle of ours.
        folder: Folder that `prepare` writes to.
    """

    variant: str
    shape: Shape
    checkpoint: Path
    folder: Path


class Variant:
    """A variant of another library; derived classes implement `Subject`."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def prepare(self) -> None:
        """Writes the files that `load` opens into the folder of the job; called once."""

    def _facts(self, engine: str, megabytes: float, capacity: int | None = None) -> Facts:
        shape = self._job.shape
        return Facts(engine, shape.kind, shape.generates, capacity, size_mb=megabytes)


@dataclass(frozen=True)
class Source:
    """A package that is compiled from its source; the source remains in the folder `source` of the environment.

    Attributes:
        requirement: Pinned requirement for pip.
        settings: Environment variables of the compilation.
    """

    requirement: str
    settings: dict[str, str]


@dataclass(frozen=True)
class Library:
    """A library, which has its own environment.

    Attributes:
        requirements: Pinned requirements for pip.
        module: Module of `benchmarks.peers` whose class `Model` is a subject, created from a `Job`.
        variants: Titles of the variants by name.
        shapes: Names of the shapes that each variant is measured on.
        source: Pinned package that is compiled for this machine; optional.
        bundles: Names of our bundles that variants run, by variant.
        environment: Environment variables of the processes, unless they are already set.
    """

    requirements: tuple[str, ...]
    module: str
    variants: dict[str, str]
    shapes: dict[str, tuple[str, ...]]
    source: Source | None = None
    bundles: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def model(self, job: Job) -> Any:
        """Creates the variant, without importing the library."""
        return importlib.import_module(f"benchmarks.peers.{self.module}").Model(job)


_TORCH = "torch==2.13.0"  # other versions may install gigabytes of packages for GPUs
# Threads of OpenMP spin while they wait, by default. Those of PyTorch are then much slower if one of the cores is busy.
# llama.cpp synchronizes its threads several hundred times for each token: if they sleep, it loses half of its speed on
# an idle machine.
_SLEEPING = {"OMP_WAIT_POLICY": "PASSIVE"}
_EMBEDDINGS = ("minilm",)
_ENCODER = ("bert",)
_DECODERS = ("gpt2", "t5", "tiny-gpt2", "tiny-t5")
_GROUPED = ("smollm2", "qwen2.5")
_LONG = ("longformer", "big_bird")
_SEQ2SEQ = ("opus-mt", "bart-base")
_SHORT = (*_DECODERS, *_ENCODER)
_FILES = ("gpt2", "tiny-gpt2", *_GROUPED)

LIBRARIES = {
    "transformers": Library(
        (_TORCH, "transformers==5.23.0"),
        "hugging_face",
        {"transformers": "transformers, PyTorch f32"},
        {"transformers": (*_SHORT, *_GROUPED, *_LONG, *_SEQ2SEQ)},
        environment=_SLEEPING,
    ),
    "sentence-transformers": Library(
        (_TORCH, "transformers==5.23.0", "sentence-transformers==6.2.0"),
        "hugging_face",
        {"sentence-transformers": "sentence-transformers, PyTorch f32"},
        {"sentence-transformers": _EMBEDDINGS},
        environment=_SLEEPING,
    ),
    "keras-hub": Library(
        ("tensorflow==2.21.0", "keras==3.15.1", "keras-hub==0.32.0", "ai-edge-litert==2.3.0"),
        "kerashub",
        {
            "keras-hub": "KerasHub f32, XLA",
            "keras-hub-litert-int8": "KerasHub export to LiteRT int8",
        },
        {"keras-hub": _SHORT, "keras-hub-litert-int8": _ENCODER},
    ),
    "ctranslate2": Library(
        ("ctranslate2==4.8.5", "transformers==4.57.6", _TORCH),
        "opennmt",
        {"ctranslate2-int8": "CTranslate2 int8"},
        {"ctranslate2-int8": (*_SHORT, *_EMBEDDINGS, *_SEQ2SEQ)},
        environment=_SLEEPING,
    ),
    "optimum": Library(
        ("optimum-onnx[onnxruntime]==0.1.0", "optimum==2.1.0", "transformers==4.57.6", "onnxruntime==1.31.1", _TORCH),
        "optimum_onnx",
        {
            "optimum-int8": "optimum, ONNX Runtime int8",
            "optimum-o2-int8": "optimum, ONNX Runtime O2 and int8",
            "optimum-o3-int8": "optimum, ONNX Runtime O3 and int8",
        },
        {
            "optimum-int8": (*_SHORT, *_GROUPED, *_EMBEDDINGS, *_SEQ2SEQ),
            "optimum-o2-int8": (*_ENCODER, *_EMBEDDINGS),
            "optimum-o3-int8": _EMBEDDINGS,
        },
        environment=_SLEEPING,
    ),
    "llama.cpp": Library(
        (_TORCH, "transformers==5.23.0"),  # for its converter
        "llamacpp",
        {"llama.cpp-q8_0": "llama.cpp Q8_0", "llama.cpp-q4_0": "llama.cpp Q4_0"},
        dict.fromkeys(("llama.cpp-q8_0", "llama.cpp-q4_0"), _FILES),
        source=Source("llama-cpp-python==0.3.36", {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"}),
    ),
    "genai": Library(
        ("onnxruntime-genai==0.18.0", "onnxruntime==1.31.1"),
        "our_files",
        {
            "genai-ours-int8": "onnxruntime-genai, our file in int8",
            "genai-ours-int4": "onnxruntime-genai, our file in int4",
        },
        dict.fromkeys(("genai-ours-int8", "genai-ours-int4"), _FILES),
        bundles={"genai-ours-int8": "onnx-int8", "genai-ours-int4": "onnx-int4"},
    ),
    "litert-lm": Library(
        ("litert-lm-api==0.18.1", "numpy==2.4.6"),
        "our_files",
        {
            "litert-lm-ours-int8": "LiteRT-LM, our file in int8",
            "litert-lm-ours-int4": "LiteRT-LM, our file in int4",
        },
        dict.fromkeys(("litert-lm-ours-int8", "litert-lm-ours-int4"), _FILES),
        bundles={"litert-lm-ours-int8": "tflite-int8", "litert-lm-ours-int4": "tflite-int4"},
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
"""Titles of our variants by name: `keras` or `FORMAT-RECIPE`."""


def library_of(variant: str) -> str:
    return next(name for name, library in LIBRARIES.items() if variant in library.variants)


def peers_for(shape: str) -> list[str]:
    return [
        variant for library in LIBRARIES.values() for variant in library.variants if shape in library.shapes[variant]
    ]


def title_of(name: str) -> str:
    return OURS[name] if name in OURS else LIBRARIES[library_of(name)].variants[name]

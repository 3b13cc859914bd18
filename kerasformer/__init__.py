"""Keras 3 Transformers from Hugging Face checkpoints to the phone: load, train, generate, export to LiteRT and ONNX.

All public names are available here and are loaded on first use, so that a bundle runs without Keras. `import
kerasformer.zoo` registers all classes with Keras, for `keras.models.load_model`.

    import kerasformer as kf

    model = kf.load("path, hub id or preset", task="text-classification")
    model.export("out", format="litert", quantize="int8")
    pipe = kf.pipeline("out", "text-classification")
    pipe("A film to see twice.")
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# One file for each earlier name of a module: it says where the module is now.
__path__.append(f"{__path__[0]}/moved")

_ROOMS = {"errors": "errors", "export": "export", "layers": "layers", "training": "tools.training", "zoo": "zoo"}
_MODULES = {
    "EmbeddingIndex": "pipelines.embedding_index",
    "Tokenizer": "tokenization",
    "anatomy": "tools.interpretability.anatomy",
    "attention": "tools.interpretability.attention_sources",
    "attribute": "tools.interpretability.attribution",
    "choose": "tools.evaluation.choosing",
    "contextual": "tools.interpretability.contextual",
    "evaluate": "tools.evaluation",
    "load": "zoo",
    "logit_lens": "tools.interpretability.lens",
    "next_token_distribution": "tools.evaluation.likelihood",
    "pipeline": "pipelines",
    "projection": "tools.interpretability.projection",
    "prompt": "tools.evaluation",
    "search": "tools.search",
    "sequence_logprob": "tools.evaluation.likelihood",
    "sweep": "tools.evaluation.decoding_sweep",
}
"""Modules of the public names, as strings: this module imports none, not even for types, which `__init__.pyi` has."""

__all__ = sorted(["__version__", *_ROOMS, *_MODULES])


def __getattr__(name: str) -> Any:
    """Loads a public name on first use (PEP 562)."""
    if name in _ROOMS:
        return importlib.import_module(f"kerasformer.{_ROOMS[name]}")
    if name in _MODULES:
        value = getattr(importlib.import_module(f"kerasformer.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kerasformer' has no attribute {name!r}. Expected one of: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__

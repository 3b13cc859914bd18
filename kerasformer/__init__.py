"""Keras 3 Transformers from Hugging Face checkpoints to the phone: load, train, generate, export to LiteRT and ONNX.

All public names are available here and are loaded on first use, so that a bundle runs without Keras.

    import kerasformer as kf

    model = kf.zoo.load("path, hub id or preset", task="text-classification")
    kf.export.export(model, "out", format="tflite", quantize="int8")
    pipe = kf.pipeline("text-classification", "out")
    pipe("A film to see twice.")
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerasformer import errors, export, layers, zoo
    from kerasformer.pipelines import pipeline
    from kerasformer.pipelines.embedding_index import EmbeddingIndex
    from kerasformer.pipelines.likelihood import next_token_distribution, sequence_logprob
    from kerasformer.tokenization import load_tokenizer as tokenizer

__version__ = "0.1.0"
__all__ = [
    "EmbeddingIndex",
    "__version__",
    "errors",
    "export",
    "layers",
    "next_token_distribution",
    "pipeline",
    "sequence_logprob",
    "tokenizer",
    "zoo",
]

_MODULES = {"errors", "export", "layers", "zoo"}
_FUNCTIONS = {
    "EmbeddingIndex": ("pipelines.embedding_index", "EmbeddingIndex"),
    "next_token_distribution": ("pipelines.likelihood", "next_token_distribution"),
    "pipeline": ("pipelines", "pipeline"),
    "sequence_logprob": ("pipelines.likelihood", "sequence_logprob"),
    "tokenizer": ("tokenization", "load_tokenizer"),
}


def __getattr__(name: str) -> Any:
    """Loads a public name on first use (PEP 562)."""
    if name in _MODULES:
        return importlib.import_module(f"kerasformer.{name}")
    if name in _FUNCTIONS:
        module, function = _FUNCTIONS[name]
        value = getattr(importlib.import_module(f"kerasformer.{module}"), function)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kerasformer' has no attribute {name!r}. Expected one of: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Registration:
    """Import hook that registers layers and models with Keras as soon as Keras is imported, and not before.

    Keras loads a `.keras` file with registered classes only; it does not import modules to find others.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Returns the spec of the other finders, with a loader that imports `kerasformer.zoo` afterwards."""
        # If `kerasformer.layers` is what imports Keras first, the zoo can only be imported after that module.
        if name not in ("keras", "kerasformer.layers"):
            return None
        finders = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                if name != "keras" or "kerasformer.layers" not in sys.modules:
                    _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def _register() -> None:
    """Imports the zoo, which registers its classes. Failure is ignored: Keras works without them."""
    with contextlib.suppress(ImportError):
        importlib.import_module("kerasformer.zoo")


if "keras" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _Registration())

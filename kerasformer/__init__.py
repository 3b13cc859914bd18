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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerasformer import errors, export, layers, training, zoo
    from kerasformer.evaluation import evaluate, prompt
    from kerasformer.evaluation.decoding_sweep import sweep
    from kerasformer.interpretability.anatomy import anatomy
    from kerasformer.interpretability.attention import attention
    from kerasformer.interpretability.attribution import attribute
    from kerasformer.interpretability.contextual import contextual
    from kerasformer.interpretability.lens import logit_lens
    from kerasformer.interpretability.projection import projection
    from kerasformer.pipelines import pipeline
    from kerasformer.pipelines.choosing import choose
    from kerasformer.pipelines.embedding_index import EmbeddingIndex
    from kerasformer.pipelines.likelihood import next_token_distribution, sequence_logprob
    from kerasformer.tokenization import Tokenizer
    from kerasformer.zoo import load

__version__ = "0.1.0"
__all__ = [
    "EmbeddingIndex",
    "Tokenizer",
    "__version__",
    "anatomy",
    "attention",
    "attribute",
    "choose",
    "contextual",
    "errors",
    "evaluate",
    "export",
    "layers",
    "load",
    "logit_lens",
    "next_token_distribution",
    "pipeline",
    "projection",
    "prompt",
    "sequence_logprob",
    "sweep",
    "training",
    "zoo",
]

_MODULES = {"errors", "export", "layers", "training", "zoo"}
_FUNCTIONS = {
    "EmbeddingIndex": ("pipelines.embedding_index", "EmbeddingIndex"),
    "Tokenizer": ("tokenization", "Tokenizer"),
    "anatomy": ("interpretability.anatomy", "anatomy"),
    "attention": ("interpretability.attention", "attention"),
    "attribute": ("interpretability.attribution", "attribute"),
    "choose": ("pipelines.choosing", "choose"),
    "contextual": ("interpretability.contextual", "contextual"),
    "evaluate": ("evaluation", "evaluate"),
    "load": ("zoo", "load"),
    "logit_lens": ("interpretability.lens", "logit_lens"),
    "next_token_distribution": ("pipelines.likelihood", "next_token_distribution"),
    "pipeline": ("pipelines", "pipeline"),
    "projection": ("interpretability.projection", "projection"),
    "prompt": ("evaluation", "prompt"),
    "sequence_logprob": ("pipelines.likelihood", "sequence_logprob"),
    "sweep": ("evaluation.decoding_sweep", "sweep"),
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

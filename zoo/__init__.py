"""Model architectures and their checkpoints: `load` one, `build` one from a configuration, or `register` another."""

# ruff: noqa: E402 - checked first, so that the error names the extra to install where Keras is missing
import importlib
from typing import Any

from kerasformer.extras import require

require("keras", "tensorflow")

from kerasformer.models.contracts import CausalLM, EncoderModel, Seq2SeqLM
from kerasformer.models.loading import build, load
from kerasformer.models.new_tokens import add_tokens
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.registry import architecture, architectures, models, register, zoo_modules
from kerasformer.models.sentence_settings import SentenceSettings

__all__ = [
    "CausalLM",
    "EncoderModel",
    "PretrainedModel",
    "PrunedModel",
    "SentenceSettings",
    "Seq2SeqLM",
    "add_tokens",
    "architectures",
    "build",
    "load",
    "models",
    "prune_vocabulary",
    "register",
    "to_keras_hub",
    "warm_start",
]

_TOOLS = {
    "PrunedModel": "tools.training.vocabulary_pruning",
    "prune_vocabulary": "tools.training.vocabulary_pruning",
    "to_keras_hub": "tools.interop.keras_hub.conversion",
    "warm_start": "tools.training.warm_start",
}
"""Modules above this one with public names, which are imported on first use."""

for _name in zoo_modules():
    # Registers the classes, so that Keras finds them by name, and makes each one an attribute of this module.
    globals().update({kind.__name__: kind for kind in architecture(_name).MODELS.values()})


def __getattr__(name: str) -> Any:
    """Loads a tool on first use (PEP 562)."""
    if name in _TOOLS:
        return getattr(importlib.import_module(f"kerasformer.{_TOOLS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_TOOLS})

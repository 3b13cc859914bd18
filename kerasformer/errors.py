"""The exceptions of kerasformer; every one says what is wrong, what was expected, what was received and what to do."""

from __future__ import annotations

import importlib
from types import ModuleType


class KerasformerError(Exception):
    """Base of all errors raised on purpose by this package."""


class InputError(KerasformerError, ValueError):
    """An argument, text or array that cannot be used."""


class SourceError(KerasformerError, ValueError):
    """A preset, folder or hub id that cannot be found, read or trusted."""


class UnsupportedConfigError(KerasformerError, ValueError):
    """A model configuration that this package does not implement."""


class CheckpointError(KerasformerError, ValueError):
    """Weights that are missing, left over, truncated or of the wrong shape; one error lists all problems."""


class TokenizerError(KerasformerError, ValueError):
    """A tokenizer that is missing, corrupt or of an unknown kind."""


class CapacityError(KerasformerError, ValueError):
    """More tokens than the model or its cache can hold."""


class GenerationError(KerasformerError, ValueError):
    """Generation settings that contradict each other or that the engine cannot follow."""


class BundleError(KerasformerError, ValueError):
    """A bundle that is incomplete, changed, or written by a newer version."""


class ExportError(KerasformerError, RuntimeError):
    """A model that cannot be written in the requested format."""


class ExportMismatchError(ExportError):
    """The exported artifact does not reproduce the Keras model within the recipe's tolerance."""


class MissingExtraError(KerasformerError, ImportError):
    """An optional dependency that is not installed; the message holds the command that installs it."""


def require(module: str, extra: str) -> ModuleType:
    """Imports an optional dependency.

    Args:
        module: Dotted module name, such as `"onnxruntime"`.
        extra: The extra of kerasformer that installs it, such as `"onnx"`.
    Raises:
        MissingExtraError: the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise MissingExtraError(
            f"{module} is needed here and is not installed. Install it with: pip install 'kerasformer[{extra}]'"
        ) from error

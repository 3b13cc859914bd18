"""The exceptions of kerasformer; every one says what is wrong, what was expected, what was received and what to do."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from types import EllipsisType, ModuleType
from typing import Any

ArgumentStyle = Callable[[str, str | None], str]
"""From the name of an argument and the Python of its value (`None`: the name alone; `"…"`: any value) to text."""

# Of Unicode's private use: no text, path or name that a message quotes has these by chance.
_BEGIN, _VALUE, _END = "\ue000", "\ue001", "\ue002"
_MARKED = re.compile(f"{_BEGIN}(\\w+)(?:{_VALUE}(.*?))?{_END}", re.DOTALL)


_NAME_ALONE = object()


def argument(name: str, value: Any = _NAME_ALONE, *, shown: str | None = None) -> str:
    """An argument within the message of an error, which Python and the command line spell each in its own way.

    Args:
        name: As Python's functions have it, such as `"overwrite"`.
        value: What it should be or was; the name alone without one, `...` for a value of the reader's choice.
        shown: The value in Python, where its `repr` will not do.
    """
    if shown is None and value is not _NAME_ALONE:
        shown = "…" if isinstance(value, EllipsisType) else repr(value)
    return f"{_BEGIN}{name}{_END}" if shown is None else f"{_BEGIN}{name}{_VALUE}{shown}{_END}"


def in_python(name: str, value: str | None) -> str:
    """An argument as a call in Python has it: `overwrite=True`."""
    return name if value is None else f"{name}={value}"


class KerasformerError(Exception):
    """Base of all errors raised on purpose by this package.

    Args:
        message: What is wrong and what to do, with each argument to change as an `argument`.
    """

    def __init__(self, message: str = "") -> None:
        self._message = str(message)
        super().__init__(self.message_in(in_python))

    def message_in(self, style: ArgumentStyle) -> str:
        """The message, its arguments written in another way than Python's."""
        return _MARKED.sub(lambda found: style(found[1], found[2]), self._message)


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


_NEEDED_BY = {"keras": ("tensorflow", "jax", "torch")}
"""Modules without one of which another cannot be imported, and which its extra installs."""


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
        missing, package = (error.name or "").split(".")[0], module.split(".")[0]
        if missing not in (package, *_NEEDED_BY.get(package, ())):
            raise
        name = module if missing == package else f"{missing}, by which {module} computes,"
        raise MissingExtraError(
            f"{name} is needed here and is not installed. Install it with: pip install 'kerasformer[{extra}]'"
        ) from error

"""Exceptions of kerasformer. Each message states what is wrong, expected and received, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class KerasformerError(Exception):
    """Base class of all errors that this package raises deliberately."""


class InputError(KerasformerError, ValueError):
    """An argument, text or array that cannot be used."""


class SourceError(KerasformerError, ValueError):
    """A preset, folder or hub id that cannot be found, read or trusted."""


class UnsupportedConfigError(KerasformerError, ValueError):
    """A model configuration that this package does not implement."""


class CheckpointError(KerasformerError, ValueError):
    """Weights that are missing, left over, truncated or of the wrong shape; one error lists all problems."""


class MissingHeadError(CheckpointError):
    """A checkpoint without the head of the requested task."""


class TokenizerError(KerasformerError, ValueError):
    """A tokenizer that is missing, corrupt or of an unsupported kind."""


class ChatTemplateError(KerasformerError, ValueError):
    """A chat template that is missing, damaged or exceeds a limit, or a conversation that it refuses."""


@contextmanager
def tokenizer_errors(problem: str) -> Iterator[None]:
    """Converts errors of the library `tokenizers`, such as for damaged files, to a `TokenizerError`.

    It raises plain `Exception`s or panics with a `BaseException` whose class cannot be imported.

    Args:
        problem: Start of the error message.
    """
    try:
        yield
    except Exception as error:
        raise TokenizerError(f"{problem}: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{problem}: {error}") from error


class CapacityError(KerasformerError, ValueError):
    """More tokens than the model or its cache can hold."""


class GenerationError(KerasformerError, ValueError):
    """Generation settings that contradict each other or that the engine does not support."""


class BundleError(KerasformerError, ValueError):
    """A bundle that is incomplete, modified, or written by a newer version."""


class ExportError(KerasformerError, RuntimeError):
    """A model that cannot be exported to the requested format."""


class ExportMismatchError(ExportError):
    """The exported artifact does not reproduce the Keras model within the recipe's limits.

    Attributes:
        received: The measured figures in one line; empty if the message has them alone.
    """

    received: str = ""


class TrainingError(KerasformerError, ArithmeticError):
    """A training whose loss is not a number any more."""


class MissingExtraError(KerasformerError, ImportError):
    """An optional dependency that is not installed; the message contains the command that installs it."""

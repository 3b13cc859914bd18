"""Objects of other libraries in memory, which are read as the files that they write themselves."""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from kerasformer.errors import SourceError


def is_of(value: object, *packages: str) -> bool:
    """Whether a value is an object of one of some packages, which are not imported for this."""
    return any(base.__module__.partition(".")[0] in packages for base in type(value).__mro__)


def is_model(value: object) -> TypeGuard[Any]:
    """Whether a value is a model of `transformers`, or one with an adapter of `peft`."""
    return is_of(value, "transformers", "peft") and hasattr(value, "save_pretrained") and hasattr(value, "state_dict")


def is_tokenizer(value: object) -> TypeGuard[Any]:
    """Whether a value is a tokenizer of `transformers`."""
    return is_of(value, "transformers") and hasattr(value, "save_pretrained") and hasattr(value, "get_vocab")


def is_adapted(value: object) -> TypeGuard[Any]:
    """Whether a value is a model with an adapter of `peft`."""
    return is_of(value, "peft") and hasattr(value, "merge_and_unload")


@contextmanager
def files_of(*values: Any, merged: bool = True) -> Iterator[Path]:
    """Context with a folder of the files that models and tokenizers write; it exists within the context alone.

    Args:
        values: Models and tokenizers of `transformers`, or models of `peft`, which do not change.
        merged: Whether an adapter is merged with its base model; otherwise, the files are those of the adapter.

    Raises:
        SourceError: an object cannot be saved.
    """
    with tempfile.TemporaryDirectory(prefix="kerasformer-") as name, _without_progress():
        for value in values:
            try:
                if merged and is_adapted(value):
                    value = copy.deepcopy(value).merge_and_unload()
                value.save_pretrained(name)
            except (OSError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                raise SourceError(
                    f"A {type(value).__name__} is read from the files that it writes, and writing them failed: {error}"
                ) from error
        yield Path(name)


@contextmanager
def _without_progress() -> Iterator[None]:
    """Context in which `transformers` shows no progress bars, which are on standard error otherwise."""
    logging: Any = sys.modules.get("transformers.utils.logging")  # which whoever made the objects has imported
    with ExitStack() as stack:
        if logging is not None and logging.is_progress_bar_enabled():
            logging.disable_progress_bar()
            stack.callback(logging.enable_progress_bar)
        yield

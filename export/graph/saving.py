"""Saving of TensorFlow modules as SavedModels, without TensorFlow's side effects on the process's logging."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.extras import require

if TYPE_CHECKING:
    import tensorflow as tf


def save_module(
    module: tf.Module, folder: str | Path, signatures: Mapping[str, tf.types.experimental.ConcreteFunction]
) -> None:
    """Writes a `tf.Module` as a SavedModel.

    Args:
        module: The module, which holds the variables.
        folder: Folder to create.
        signatures: Concrete functions by name.
    """
    with _logging_restored():
        logging.getLogger("tensorflow").setLevel(logging.WARNING)  # no "Assets written to: …" of temporary folders
        require("tensorflow", "export").saved_model.save(module, str(folder), signatures=signatures)


_lock = threading.Lock()  # concurrent calls would restore each other's temporary settings


@contextmanager
def _logging_restored() -> Iterator[None]:
    """Restores the process's logging configuration after TensorFlow has saved a model.

    TensorFlow logs through absl, which adds a handler to a root logger that has none and sets its own logger's level.
    """
    with _lock:
        loggers = [logging.getLogger(name) for name in ("tensorflow", "absl")]
        levels = [logger.level for logger in loggers]
        had_handlers = bool(logging.root.handlers)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if not had_handlers:
                _remove_default_handler()


def _remove_default_handler() -> None:
    """Removes the handler that `logging.basicConfig()` without arguments adds to the root logger."""
    for handler in list(logging.root.handlers):
        format = getattr(handler.formatter, "_fmt", None)
        if type(handler) is logging.StreamHandler and format == logging.BASIC_FORMAT:
            logging.root.removeHandler(handler)

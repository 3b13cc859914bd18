"""Writes TensorFlow modules as SavedModels, without what TensorFlow logs and changes of the process's logging."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kerasformer.errors import require


def save_module(module: Any, folder: str | Path, signatures: Mapping[str, Any]) -> None:
    """Writes a `tf.Module` as a SavedModel.

    Args:
        module: What holds the variables.
        folder: Is made.
        signatures: Graphs by name.
    """
    with _logging_restored():
        logging.getLogger("tensorflow").setLevel(logging.WARNING)  # "Assets written to", often a temporary folder
        require("tensorflow", "export").saved_model.save(module, str(folder), signatures=signatures)


_lock = threading.Lock()  # two at once would restore what the other one has set


@contextmanager
def _logging_restored() -> Iterator[None]:
    """Undoes what TensorFlow does to the process's logging when it saves.

    absl, by which it logs, gives the root logger a handler where it has none, and sets the level of its own logger.
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
    """Removes from the root logger what `logging.basicConfig()` without arguments has added."""
    for handler in list(logging.root.handlers):
        format = getattr(handler.formatter, "_fmt", None)
        if type(handler) is logging.StreamHandler and format == logging.BASIC_FORMAT:
            logging.root.removeHandler(handler)

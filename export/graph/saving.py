"""Writes TensorFlow modules as SavedModels, without what TensorFlow says of it in notebooks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
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
    log = logging.getLogger("tensorflow")
    before = log.level
    log.setLevel(logging.WARNING)  # "Assets written to", of a folder that is often a temporary one
    try:
        require("tensorflow", "export").saved_model.save(module, str(folder), signatures=signatures)
    finally:
        log.setLevel(before)

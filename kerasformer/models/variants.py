"""Folders for variants of a task, which have a class of their own: how they are recognized."""

from __future__ import annotations

from pathlib import Path

from kerasformer.basics.tasks import (
    MULTI_VECTOR_SIMILARITY,
    SPARSE_SIMILARITY,
    VARIANTS,
    ZERO_SHOT_TOKENS,
    without_languages,
)
from kerasformer.files.gliner import is_gliner
from kerasformer.models.multi_vector_settings import is_multi_vector_model
from kerasformer.models.sparse_settings import is_sparse_model

_FOLDERS = {
    MULTI_VECTOR_SIMILARITY: is_multi_vector_model,
    SPARSE_SIMILARITY: is_sparse_model,
    ZERO_SHOT_TOKENS: is_gliner,
}


def variant_of(folder: Path, task: str | None) -> str | None:
    """Returns the variant that a folder is for, if no task is requested or the one that it is a variant of."""
    variants = (each for each, of in VARIANTS.items() if task is None or without_languages(task) == of)
    return next((each for each in variants if _FOLDERS[each](folder)), None)

"""Alignment of padded prompts."""

from __future__ import annotations

import numpy as np


def left_padded(ids: np.ndarray, mask: np.ndarray, fill: int) -> tuple[np.ndarray, np.ndarray]:
    """Right-aligns the real tokens of each row and drops the columns that hold padding only.

    Example: ids `[[5, 6, 0], [7, 0, 0]]` with mask `[[1, 1, 0], [1, 0, 0]]` become `[[5, 6], [fill, 7]]`.
    """
    order = np.argsort(mask, axis=1, kind="stable")  # stable, so that tokens keep their order
    width = int(mask.sum(axis=1).max())
    ids = np.take_along_axis(ids, order, axis=1)[:, -width:]
    mask = np.take_along_axis(mask, order, axis=1)[:, -width:]
    return np.where(mask == 1, ids, np.int32(fill)), mask

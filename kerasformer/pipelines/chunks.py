"""Combination of the results for overlapping chunks of a long text.

The result for a token is taken from the chunk with the most context around that token. Results for a whole text are
the mean over its chunks, weighted by their numbers of tokens, or the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from kerasformer.basics.arguments import one_of
from kerasformer.tokenization import Encoding

Combine = Literal["mean", "max"]
"""Combination of the results of several chunks for a whole text."""

COMBINE = one_of("mean", "max")
"""Kind of the argument `combine`."""


def rows_of(encoded: Encoding) -> list[np.ndarray]:
    """Returns, for each text, the indices of its chunks in the batch, int `(num_chunks,)`."""
    samples = encoded.overflow_to_sample
    return [np.flatnonzero(samples == text) for text in range(int(samples.max(initial=-1)) + 1)]


def combined(values: np.ndarray, encoded: Encoding, combine: Combine = "mean") -> list[np.ndarray]:
    """Returns, for each text, the combined values of its chunks.

    Args:
        values: Values of each chunk, `(num_rows, …)`.
        encoded: Tokenized texts.
        combine: `"mean"`, weighted by the number of tokens of each chunk without special tokens, or `"max"`.
    """
    weights = np.maximum((encoded.sequence_ids == 0).sum(axis=1), 1)
    return combined_rows(values, rows_of(encoded), weights, combine)


def combined_rows(
    values: np.ndarray, rows: Sequence[np.ndarray], weights: np.ndarray, combine: Combine
) -> list[np.ndarray]:
    """Returns, for each text, the combined values of its chunks.

    Args:
        values: Values of each chunk, `(num_rows, …)`.
        rows: Indices of the chunks of each text.
        weights: Weight of each chunk in a mean, `(num_rows,)`.
        combine: `"mean"` or `"max"`.
    """
    return [
        values[chunks[0]]
        if len(chunks) == 1
        else values[chunks].max(axis=0)
        if combine == "max"
        else np.average(values[chunks], axis=0, weights=weights[chunks]).astype("float32")
        for chunks in rows
    ]


def best_locations(encoded: Encoding, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for each token of a text, its row and column in the chunk with the most context around it.

    Args:
        encoded: Tokenized texts.
        rows: Indices of the chunks of one text.

    Returns:
        Rows `(T,)` and columns `(T,)`, in the order of the tokens.
    """
    positions, is_text = encoded.positions[rows], encoded.sequence_ids[rows] >= 0
    if len(rows) == 1:
        columns = np.flatnonzero(positions[0] >= 0)
        return np.full(len(columns), rows[0]), columns
    text = np.where(is_text, positions, -1)
    start = np.where(is_text, positions, positions.max() + 1).min(axis=1, keepdims=True)
    end = text.max(axis=1, keepdims=True)
    # At the start and the end of the whole text, no context is missing.
    complete = positions.max() + 1
    before = np.where(start == start.min(), complete, positions - start)
    after = np.where(end == end.max(), complete, end - positions)
    row, column = np.nonzero(positions >= 0)
    # A special token is outside its chunk's text: its margin is at most 0, except at its end of the whole text.
    margin = np.minimum(before, after)[row, column]
    order = np.lexsort((row, -margin, positions[row, column]))
    _, first = np.unique(positions[row, column][order], return_index=True)
    best = order[first]
    return rows[row[best]], column[best]

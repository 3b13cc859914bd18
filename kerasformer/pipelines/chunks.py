"""Long texts, read in windows that overlap, and one answer from the answers to all windows.

Where each token has an answer, it comes from the window that shows most of the text around that token. Where a window
has one answer, those of all windows are averaged, each counting as the tokens of text that it holds.
"""

from __future__ import annotations

import numpy as np

from kerasformer.tokenization import Encoding


def rows_of(encoded: Encoding) -> list[np.ndarray]:
    """The rows of each text, `(windows,)` int."""
    samples = encoded.overflow_to_sample
    return [np.flatnonzero(samples == text) for text in range(int(samples.max(initial=-1)) + 1)]


def averaged(values: np.ndarray, encoded: Encoding) -> list[np.ndarray]:
    """For each text the mean of its windows' rows of `values`, `(R, …)`."""
    weights = np.maximum((encoded.special_tokens_mask == 0).sum(axis=1), 1)
    return [
        values[rows[0]] if len(rows) == 1 else np.average(values[rows], axis=0, weights=weights[rows]).astype("float32")
        for rows in rows_of(encoded)
    ]


def best_places(encoded: Encoding, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each token of a text, in order and once: the row and the column of the window that shows most around it.

    Args:
        encoded: Tokenized texts.
        rows: Of one of them.

    Returns:
        `(T,)` rows and `(T,)` columns.
    """
    positions, is_text = encoded.positions[rows], encoded.sequence_ids[rows] >= 0
    if len(rows) == 1:
        columns = np.flatnonzero(positions[0] >= 0)
        return np.full(len(columns), rows[0]), columns
    text = np.where(is_text, positions, -1)
    begin = np.where(is_text, positions, positions.max() + 1).min(axis=1, keepdims=True)
    end = text.max(axis=1, keepdims=True)
    # The ends of the text itself take nothing away from a token.
    endless = positions.max() + 1
    before = np.where(begin == begin.min(), endless, positions - begin)
    after = np.where(end == end.max(), endless, end - positions)
    row, column = np.nonzero(positions >= 0)
    # A special token stands beyond its window's text: its margin is 0 or below, but at the end that it belongs to.
    margin = np.minimum(before, after)[row, column]
    order = np.lexsort((row, -margin, positions[row, column]))
    _, first = np.unique(positions[row, column][order], return_index=True)
    chosen = order[first]
    return rows[row[chosen]], column[chosen]

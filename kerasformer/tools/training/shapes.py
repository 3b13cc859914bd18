"""The order of batches of different lengths, on which Keras depends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


def with_different_first(batches: Sequence[Item], lengths: np.ndarray) -> list[Item]:
    """Moves two batches of different lengths to the front.

    With TensorFlow, `fit` looks at the first two batches alone: it takes a length that they share for that of all, and
    fails at the first batch of another one.

    Args:
        batches: `N` batches.
        lengths: Lengths of each batch, `(N, K)`: of what the encoder and the decoder read, for example. With `K` up to
            2, there are always two batches that differ in every length that is not that of all.
    """
    lengths = np.asarray(lengths)
    lengths = lengths[:, (lengths != lengths[:1]).any(axis=0)]
    total = lengths.sum(axis=1)
    for first in np.argsort(total, kind="stable") if lengths.size else ():
        others = np.flatnonzero((lengths != lengths[first]).all(axis=1))
        if len(others):
            second = others[np.argmax(total[others])]
            rest = [batch for index, batch in enumerate(batches) if index not in (first, second)]
            return [batches[first], batches[second], *rest]
    return list(batches)

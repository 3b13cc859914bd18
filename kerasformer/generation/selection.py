"""Selection of the largest values and weighted quantiles, without sorting all values."""

from __future__ import annotations

from math import inf, nextafter

import numpy as np


def largest_indices(values: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the `count` largest of `values` `(N,)` and of ties with the last of them, ascending."""
    if count >= len(values):
        return np.arange(len(values))
    indices = large_indices(values, count)
    candidates = values if indices is None else values.take(indices)
    largest = (candidates >= _largest(candidates.copy(), count)).nonzero()[0]
    return largest if indices is None else indices.take(largest)


def large_indices(values: np.ndarray, count: int) -> np.ndarray | None:
    """Returns ascending indices of values that include the `count` largest, and usually few others.

    The values are divided into blocks. At least `count` values reach the `count`-th largest of the maxima of the
    blocks, so that the values below it are excluded without sorting all values.

    Returns:
        `None` for all indices, if there are too few values to exclude some.
    """
    blocks = max(8 * count, 256)
    width = len(values) // blocks
    if width < 2:
        return None
    maxima = values[: width * blocks].reshape(width, blocks).max(axis=0)
    return (values >= _largest(maxima, count)).nonzero()[0]


def _largest(values: np.ndarray, count: int) -> np.floating:
    """Returns the `count`-th largest of `values` `(N,)`, which are reordered."""
    index = len(values) - count
    values.partition(index)
    border: np.floating = values[index]
    return border


def largest_with_mass(values: np.ndarray, weights: np.ndarray, mass: float) -> np.ndarray:
    """Returns the ascending indices of the fewest largest values whose weights sum to at least `mass`.

    Of equal values, those with higher indices are chosen first.

    Args:
        values: `(N,)`, at most 0.
        weights: `(N,)` non-negative, not all 0; equal for equal values.
        mass: At most the sum of all weights.
    """
    if len(values) <= _MAX_SHORT:
        order = values.argsort(kind="stable")
        sums = weights.take(order[::-1]).cumsum(dtype=np.float64)
        largest = order[len(order) - 1 - first_above(sums, nextafter(mass, 0)) :]
        largest.sort()
        return largest
    keys = -values
    border, before = weighted_quantile(keys, weights, mass)
    mask = keys < border
    ties = (keys == border).nonzero()[0]
    num_ties = int(np.ceil((mass - before) / weights[ties[0]]))
    mask[ties[-max(num_ties, 1) :]] = True
    return mask.nonzero()[0]


def weighted_quantile(keys: np.ndarray, weights: np.ndarray, mass: float) -> tuple[np.floating, float]:
    """Returns the smallest key at which the cumulative weight, in order of the keys, reaches `mass`.

    Long arrays are first divided into a histogram of the keys, so that only the keys of one bin are sorted.

    Args:
        keys: `(N,)` non-negative; those above 32 share a bin.
        weights: `(N,)` non-negative, not all 0.
        mass: At most the sum of all weights.
    Returns:
        The key, and the sum of the weights of all smaller keys.
    """
    below, target = 0.0, nextafter(mass, 0)
    if len(keys) > _MAX_SHORT:
        keys, weights, below = _bin(keys, weights, target)
    order = keys.argsort()
    keys, weights = keys[order], weights[order]
    quantile = keys[first_above(weights.cumsum(dtype=np.float64), target - below)]
    return quantile, below + weights[: keys.searchsorted(quantile)].sum(dtype=np.float64)


def _bin(keys: np.ndarray, weights: np.ndarray, mass: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns keys and weights of the bin in which the cumulative weight exceeds `mass`, and the weight below it."""
    span = min(keys.max(), _SPAN) or _SPAN
    scaled = keys * np.float32(_BINS / span)
    bins = np.minimum(scaled, np.float32(_BINS), out=scaled).astype(np.intp)
    sums = np.bincount(bins, weights)
    index = first_above(sums.cumsum(), mass)
    inside = bins == index
    return keys[inside], weights[inside], float(sums[:index].sum())


_SPAN = 32.0
_BINS = 1024


def draw(weights: np.ndarray, uniform: float) -> int:
    """Samples an index in proportion to `weights` `(N,)`: the inverse of the cumulative distribution at `uniform`.

    Long arrays are summed in blocks, so that cumulative sums are computed for one block only.
    """
    if len(weights) <= _MAX_SHORT:
        cumulative = weights.cumsum(dtype=np.float64)
        return first_above(cumulative, uniform * cumulative[-1])
    starts = np.arange(0, len(weights), _BLOCK)
    sums = np.add.reduceat(weights, starts).astype(np.float64).cumsum()
    target = uniform * sums[-1]
    block = first_above(sums, target)
    start = starts[block]
    inside = weights[start : start + _BLOCK].astype(np.float64).cumsum()
    return int(start) + first_above(inside, target - (sums[block - 1] if block else 0))


_BLOCK = 256
_MAX_SHORT = 2048
"""Length up to which arrays are not divided."""


def first_above(cumulative: np.ndarray, target: float) -> int:
    """Returns the index of the first of ascending sums `(N,)` that exceeds `target`.

    If rounding leaves none, the result is the first index of the greatest sum, whose weight is never 0.
    """
    return int(cumulative.searchsorted(min(target, nextafter(cumulative[-1], -inf)), side="right"))

"""The best few of many, by weight or by number, without sorting or partitioning them all."""

from __future__ import annotations

from math import inf, nextafter

import numpy as np


def best_few(values: np.ndarray, count: int) -> np.ndarray:
    """Places of the `count` greatest of `values` `(N,)` and of those equal to the last of them, ascending.

    The values are dealt out to blocks. At least `count` values reach the `count`-th greatest of the blocks' maxima, so
    what is below it is out of the question, and only the few that are left are partitioned.
    """
    if count >= len(values):
        return np.arange(len(values))
    blocks = max(8 * count, 256)
    width = len(values) // blocks
    if width < 2:
        return np.flatnonzero(values >= np.partition(values, -count)[-count])
    greatest = values[: width * blocks].reshape(width, blocks).max(axis=0)
    places = (values >= np.partition(greatest, -count)[-count]).nonzero()[0]
    few = values[places]
    return places[few >= np.partition(few, -count)[-count]]


def weighted_quantile(keys: np.ndarray, weights: np.ndarray, mass: float) -> tuple[np.floating, float]:
    """The least key up to which, itself included, the weights sum up to `mass`; and the sum of the weights before it.

    Of many, the weights are summed up by levels of the keys, and only the keys of the level in which the sum reaches
    `mass` are sorted.

    Args:
        keys: `(N,)` from 0 upwards; those above 32 share a level.
        weights: `(N,)` from 0 upwards, some above it.
        mass: At most the sum of all weights.
    """
    below, less = 0.0, nextafter(mass, 0)
    if len(keys) > _FEW:
        keys, weights, below = _level(keys, weights, less)
    order = keys.argsort()
    keys, weights = keys[order], weights[order]
    quantile = keys[first_above(weights.cumsum(dtype=np.float64), less - below)]
    return quantile, below + weights[: keys.searchsorted(quantile)].sum(dtype=np.float64)


def _level(keys: np.ndarray, weights: np.ndarray, mass: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The keys and weights of the level in which the sum exceeds `mass`, and the sum of the weights in those below."""
    span = min(keys.max(), _SPAN) or _SPAN
    scaled = keys * np.float32(_LEVELS / span)
    levels = np.minimum(scaled, np.float32(_LEVELS), out=scaled).astype(np.intp)
    sums = np.bincount(levels, weights)
    level = first_above(sums.cumsum(), mass)
    inside = levels == level
    return keys[inside], weights[inside], float(sums[:level].sum())


_SPAN = 32.0
_LEVELS = 1024


def draw(weights: np.ndarray, uniform: float) -> int:
    """A place drawn in proportion to `weights` `(N,)`: the inverse of the cumulative distribution at `uniform`.

    The sums of blocks tell the block and the sums in it the place, so that a whole vocabulary is not summed up one by
    one.
    """
    if len(weights) <= _FEW:
        cumulative = weights.cumsum(dtype=np.float64)
        return first_above(cumulative, uniform * cumulative[-1])
    starts = np.arange(0, len(weights), _BLOCK)
    sums = np.add.reduceat(weights, starts, dtype=np.float64).cumsum()
    target = uniform * sums[-1]
    block = first_above(sums, target)
    begin = starts[block]
    inside = weights[begin : begin + _BLOCK].cumsum(dtype=np.float64)
    return int(begin) + first_above(inside, target - (sums[block - 1] if block else 0))


_BLOCK = 256
_FEW = 2048


def first_above(cumulative: np.ndarray, target: float) -> int:
    """Place of the first of ascending sums `(N,)` that exceeds `target`; where none does, of the first greatest one.

    So rounding never leads to a place that adds nothing.
    """
    return int(cumulative.searchsorted(min(target, nextafter(cumulative[-1], -inf)), side="right"))

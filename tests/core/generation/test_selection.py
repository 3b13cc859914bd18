from __future__ import annotations

import numpy as np
import pytest

from kerasformer.generation.selection import draw, first_above, largest_with_mass


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_zero_weights_are_never_drawn(uniform: float) -> None:
    for weights in ([0, 3, 0], [0] * 300 + [1e-30] + [0] * 300, [0, 1] * 600 + [0] * 300, [0.1] * 7 + [0] * 500):
        assert np.array(weights, np.float32)[draw(np.array(weights, np.float32), uniform)] > 0


@pytest.mark.parametrize(("target", "index"), [(0.0, 1), (0.9, 1), (1.0, 2), (2.9, 2), (3.0, 2), (9.0, 2)])
def test_first_above_is_never_beyond_the_greatest_sum(target: float, index: int) -> None:
    assert first_above(np.array([0.0, 1.0, 3.0, 3.0]), target) == index


@pytest.mark.parametrize("count", [7, 5_000])
@pytest.mark.parametrize("mass", [0.3, 0.6, 0.9])
def test_the_fewest_largest_values_have_the_mass(count: int, mass: float) -> None:
    """By the definition, with many equal values, of which those with higher indices come first."""
    values = -np.random.default_rng(count).integers(0, 4, count).astype(np.float32)
    weights = np.exp(values)
    target = mass * weights.sum(dtype=np.float64)
    order = np.argsort(values, kind="stable")[::-1]
    fewest = 1 + int((weights[order].cumsum(dtype=np.float64) < target).sum())
    assert largest_with_mass(values, weights, target).tolist() == sorted(order[:fewest].tolist())


@pytest.mark.parametrize("count", [7, 5_000])
def test_weights_that_sum_to_exactly_the_mass_suffice(count: int) -> None:
    values = -(np.arange(count) % 4).astype(np.float32)
    weights = np.exp2(values)  # so that no sum is rounded
    largest = np.argsort(values, kind="stable")[::-1][: count // 2]
    assert largest_with_mass(values, weights, weights[largest].sum()).tolist() == sorted(largest.tolist())

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.decoding.selection import draw, first_above, largest_indices, weighted_quantile

RANDOM = np.random.default_rng(7)
VALUES = {
    "one": np.zeros(1, np.float32),
    "few": RANDOM.normal(size=9).astype(np.float32),
    "many": RANDOM.normal(size=20_011).astype(np.float32),
    "equal": RANDOM.integers(0, 40, 20_011).astype(np.float32),
    "all equal": np.zeros(5000, np.float32),
    "falling": -np.arange(5000, dtype=np.float32),
    "mostly forbidden": np.where(np.arange(5000) % 1000, -np.inf, 1).astype(np.float32),
}


@pytest.mark.parametrize("count", [1, 2, 50, 300, 4096])
@pytest.mark.parametrize("name", VALUES)
def test_largest_indices(name: str, count: int) -> None:
    values = VALUES[name]
    threshold = np.sort(values)[::-1][min(count, len(values)) - 1]
    assert largest_indices(values, count).tolist() == np.flatnonzero(values >= threshold).tolist()


@pytest.mark.parametrize("share", [0.0, 1e-9, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("scale", [1e-4, 1, 20])
def test_weighted_quantile(name: str, share: float, scale: float) -> None:
    keys = (VALUES[name].max() - VALUES[name]) * np.float32(scale)
    weights = np.exp(-keys)
    mass = share * weights.sum(dtype=np.float64)
    order = np.argsort(keys, kind="stable")
    index = np.searchsorted(weights[order].cumsum(dtype=np.float64), mass * (1 - 1e-12))
    quantile, before = weighted_quantile(keys, weights, mass)
    assert quantile == keys[order[index]]
    np.testing.assert_allclose(before, weights[keys < quantile].sum(dtype=np.float64), rtol=1e-9)


def test_draw_inverts_the_cumulative_distribution() -> None:
    weights = VALUES["many"].clip(0) * (np.arange(20_011) % 700 > 300)
    cumulative = weights.cumsum(dtype=np.float64)
    for uniform in np.linspace(0, 1, 500, endpoint=False):
        index = draw(weights, uniform)
        assert weights[index] > 0
        target = uniform * cumulative[-1]
        assert cumulative[index] - weights[index] - 1e-3 <= target <= cumulative[index] + 1e-3


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_zero_weights_are_never_drawn(uniform: float) -> None:
    for weights in ([0, 3, 0], [0] * 300 + [1e-30] + [0] * 300, [0, 1] * 600 + [0] * 300, [0.1] * 7 + [0] * 500):
        assert np.array(weights, np.float32)[draw(np.array(weights, np.float32), uniform)] > 0


@pytest.mark.parametrize(("target", "index"), [(0.0, 1), (0.9, 1), (1.0, 2), (2.9, 2), (3.0, 2), (9.0, 2)])
def test_first_above_is_never_beyond_the_greatest_sum(target: float, index: int) -> None:
    assert first_above(np.array([0.0, 1.0, 3.0, 3.0]), target) == index

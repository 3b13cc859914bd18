from __future__ import annotations

import numpy as np
import pytest

from kerasformer.decoding.selection import draw, first_above


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_zero_weights_are_never_drawn(uniform: float) -> None:
    for weights in ([0, 3, 0], [0] * 300 + [1e-30] + [0] * 300, [0, 1] * 600 + [0] * 300, [0.1] * 7 + [0] * 500):
        assert np.array(weights, np.float32)[draw(np.array(weights, np.float32), uniform)] > 0


@pytest.mark.parametrize(("target", "index"), [(0.0, 1), (0.9, 1), (1.0, 2), (2.9, 2), (3.0, 2), (9.0, 2)])
def test_first_above_is_never_beyond_the_greatest_sum(target: float, index: int) -> None:
    assert first_above(np.array([0.0, 1.0, 3.0, 3.0]), target) == index

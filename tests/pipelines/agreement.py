"""Comparison of results: numbers nearly equal, all else equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

TOLERANCE = 2e-5
"""Of a probability: float32 sums in another order, through two layers with large weights."""


def assert_same(received: Any, expected: Any, ignored: tuple[str, ...] = ()) -> None:
    """Lists and dictionaries alike; `ignored` keys are not compared."""
    if isinstance(expected, Mapping):
        assert list(received) == list(expected)
        for key in expected:
            if key not in ignored:
                assert_same(received[key], expected[key], ignored)
    elif isinstance(expected, list | tuple):
        assert len(received) == len(expected)
        for one, other in zip(received, expected, strict=True):
            assert_same(one, other, ignored)
    elif isinstance(expected, np.ndarray) and expected.ndim:
        np.testing.assert_allclose(np.asarray(received), expected, atol=TOLERANCE)
    elif hasattr(expected, "dtype") or isinstance(expected, float):
        assert received == pytest.approx(float(expected), abs=TOLERANCE)
    else:
        assert received == expected

"""Comparison of results: numbers must be nearly equal, everything else equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

TOLERANCE = 2e-5
"""Tolerance of probabilities, for float32 sums in a different order in two layers with large weights."""


def assert_same(received: Any, expected: Any, ignored: tuple[str, ...] = ()) -> None:
    """Compares nested lists and dicts; `ignored` keys are not compared."""
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

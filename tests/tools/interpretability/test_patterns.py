"""Patterns of attention and positions are those of the layers, and equal a formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kerasformer.errors import InputError
from kerasformer.tools.interpretability.patterns import position_values, visible_keys
from kerasformer.tools.viz import draw_masks, draw_positions

T, W, P = 24, 3, 6


def test_each_pattern_equals_its_rule() -> None:
    query, key = np.indices((T, T))
    masks = visible_keys(T, W, P)
    expected = {
        "full": query == query,
        "causal": key <= query,
        "prefix": (key <= query) | (key < P),
        "causal window": (key <= query) & (key > query - W),
        "window": abs(query - key) <= W,
        "window and global": (abs(query - key) <= W) | (query == 0) | (key == 0),
    }
    for name, rule in expected.items():
        np.testing.assert_array_equal(masks[name], rule, name)
    block, other = query // 2, key // 2
    ends = (0, T // 2 - 1)
    blocks = (abs(block - other) <= 1) | np.isin(block, ends) | np.isin(other, ends)
    np.testing.assert_array_equal(masks["blocks"], blocks)
    assert masks["random blocks"][blocks].all()
    middle = slice(2, T - 2)  # each block in the middle sees one more of two tokens
    assert (masks["random blocks"] & ~blocks)[middle].sum(axis=1).tolist() == [2] * (T - 4)


def test_positions_in_numbers() -> None:
    values = position_values(length=20, size=8, num_heads=4, bases=(100.0,))
    np.testing.assert_allclose(values.sinusoids[3, :2], [np.sin(3), np.cos(3)], rtol=1e-6)
    frequencies = 100.0 ** -(np.arange(8) / 8)
    np.testing.assert_allclose(values.rotary[100.0][7], np.cos(7 * frequencies).mean(), rtol=1e-5)
    assert values.rotary[100.0][0] == 1 and len(values.distances) == 120
    np.testing.assert_allclose(values.alibi[1, 9], -(2.0**-4) * abs(np.arange(20) - 9), rtol=1e-6)


def test_pictures(tmp_path: Path) -> None:
    draw_masks({"causal": np.tri(4, dtype=bool)}, tmp_path / "masks.svg", "Masks", dark=True)
    draw_positions(position_values(length=8, size=4), tmp_path / "positions.svg")
    assert {path.name for path in tmp_path.iterdir()} == {"masks.svg", "positions.svg"}
    with pytest.raises(InputError, match="A picture needs masks. Received: none"):
        draw_masks({}, tmp_path / "masks.svg")

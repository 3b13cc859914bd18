"""Layouts of several variables in one tensor, in both directions, compared with views of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.models.layouts import Interleaved, Offset, SideBySide, Stacked
from kerasformer.models.weight_table import Row

E = 5
HEADS, SIZE = 3, 2
RANDOM = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype("float32")


def grouped(query: np.ndarray, key: np.ndarray, value: np.ndarray, groups: int) -> np.ndarray:
    """Returns queries, keys and values of grouped heads, `(out, ...)`."""
    rows = []
    for group in range(groups):
        for part in (query, key, value):
            share = len(part) // groups
            rows.append(part[group * share : (group + 1) * share])
    return np.concatenate(rows)


def by_head(*parts: np.ndarray) -> np.ndarray:
    """Interleaves parts by heads: `(H, parts, D, ...)`, flattened."""
    rest = parts[0].shape[1:]
    return np.stack(parts).reshape(len(parts), HEADS, SIZE, *rest).swapaxes(0, 1).reshape(-1, *rest)


Q, K, V = numbers(HEADS * SIZE, E), numbers(HEADS * SIZE, E), numbers(HEADS * SIZE, E)
BIASES = [part[:, 0] for part in (Q, K, V)]
WIDE = numbers(2 * HEADS * SIZE, E)
HALF = numbers(E).astype("float16").astype("float32")  # 1 + w is exact
CASES = {
    "side by side": (SideBySide(), [Q, K, WIDE], np.concatenate([Q, K, WIDE])),
    "side by side as Conv1D": (SideBySide(1), [Q, K], np.concatenate([Q, K], axis=1)),
    "a head after the other": (Interleaved(HEADS), [Q, K, V], by_head(Q, K, V)),
    "biases of a head after the other": (Interleaved(HEADS), BIASES, by_head(*BIASES)),
    "groups of several queries": (Interleaved(HEADS), [WIDE, K, V], grouped(WIDE, K, V, HEADS)),
    "stacked tables": (Stacked(), [Q, K, V], np.stack([Q, K, V])),
    "a bias with a first axis": (Stacked(), BIASES[:1], BIASES[0][None]),
    "a norm of 1 + w": (Offset(1.0), [1 + HALF], HALF),
}


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("layout", "parts", "tensor"), CASES.values(), ids=CASES)
def test_a_layout_and_back(layout, parts, tensor, transpose) -> None:
    row = Row(tuple(map(str, range(len(parts)))), "tensor", transpose, layout)
    variables = [part.T if transpose else part for part in parts]
    shapes = [variable.shape for variable in variables]
    assert row.shape(shapes) == tensor.shape
    np.testing.assert_array_equal(row.to_hf(variables), tensor)
    for received, expected in zip(row.to_keras(tensor, shapes), variables, strict=True):
        np.testing.assert_array_equal(received, expected)

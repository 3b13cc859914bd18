from __future__ import annotations

import numpy as np
import pytest

from kerasformer.export.formats.onnx.rounding import in_blocks, in_channels


def random(rows: int = 7, columns: int = 100) -> np.ndarray:
    matrix = np.random.default_rng(0).normal(size=(rows, columns)).astype("float32")
    matrix[3] = 0
    matrix[4, columns // 2] = 100
    return matrix


def from_blocks(data: np.ndarray, scales: np.ndarray, bits: int) -> np.ndarray:
    if bits == 4:
        data = np.stack([data & 15, data >> 4], axis=-1).reshape(*scales.shape, -1)
    return ((data.astype("float32") - (1 << (bits - 1))) * scales[..., None]).reshape(len(data), -1)


@pytest.mark.parametrize("columns", [5, 48, 64, 100])
def test_blocks_of_8_bits_keep_every_value_to_half_a_step(columns):
    matrix = random(columns=columns)
    data, scales = in_blocks(matrix, 8, 32)
    restored, steps = from_blocks(data, scales, 8), np.repeat(scales, 32, axis=1)
    assert data.dtype == np.uint8
    assert (np.abs(restored[:, :columns] - matrix) <= 0.501 * steps[:, :columns]).all(), "a value harms its block alone"
    assert (restored[:, columns:] == 0).all() and (restored[3] == 0).all()


def test_blocks_of_4_bits_are_better_than_scales_of_the_largest_value():
    matrix = np.random.default_rng(0).normal(size=(50, 256)).astype("float32")
    data, scales = in_blocks(matrix, 4, 64)
    assert data.shape == (50, 4, 32)
    error = np.square(from_blocks(data, scales, 4) - matrix).mean()
    step = np.abs(matrix.reshape(50, 4, 64)).max(axis=-1, keepdims=True) / 7
    plain = np.square(np.rint(matrix.reshape(50, 4, 64) / step) * step - matrix.reshape(50, 4, 64)).mean()
    assert error < 0.75 * plain
    zeros, _ = in_blocks(np.zeros((2, 64), "float32"), 4, 64)
    assert (zeros == 0x88).all()


@pytest.mark.parametrize("columns", [1, 33, 512])
def test_no_pair_of_adjacent_levels_saturates_16_bits(columns):
    """x86 without VNNI adds two products of a byte (up to 255) and a level in 16 bits."""
    matrix = random(200, columns)
    matrix[0] = 1  # all values are the largest
    levels, scales = in_channels(matrix, pairs=True)
    even, odd = levels[: columns // 2 * 2 : 2].astype(int), levels[1::2].astype(int)
    assert (255 * (np.maximum(even, 0) + np.maximum(odd, 0)) <= 32767).all()
    assert (255 * (np.minimum(even, 0) + np.minimum(odd, 0)) >= -32768).all()
    assert (np.abs(levels.T * scales[:, None] - matrix) <= 1.01 * scales[:, None]).all()
    assert np.mean(np.abs(levels.T * scales[:, None] - matrix) > 0.501 * scales[:, None]) < 0.01, "few are cut"


def test_channels_use_all_levels_if_nothing_saturates():
    levels, scales = in_channels(random(), pairs=False)
    assert (np.abs(levels).max(axis=0)[[0, 1, 2, 4]] == 127).all()
    assert (np.abs(levels.T * scales[:, None] - random()) <= 0.501 * scales[:, None]).all()

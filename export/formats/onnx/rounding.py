"""MatrixNodes in the integer layouts of ONNX operators. NumPy alone; a few rows at a time, to spare memory.

Levels are symmetric: zero is level zero. `N` outputs, `K` inputs of a product; a row is what makes one output.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_STEP = 1 << 18  # values rounded at once: few enough to stay in a processor's cache
_SHARES = np.linspace(0.6, 1.0, 11, dtype=np.float32)
"""Of the largest entry of a block, what four bits reach to: cutting off a few entries may serve all others better."""
_PAIR = 128
"""Largest sum of two neighbouring levels of one sign: 255 times it fits an int16."""


def in_channels(matrix: np.ndarray, pairs: bool) -> tuple[np.ndarray, np.ndarray]:
    """Eight bits with one scale for each row.

    Args:
        matrix: `(N, K)`.
        pairs: Makes products with unsigned bytes safe on processors that add them two by two in 16 bits, which is x86
            without VNNI: they saturate, and give wrong sums without a word, where two neighbours are both large. It
            costs an eighth of the precision.

    Returns:
        int8 `(K, N)` and float32 `(N,)`.
    """
    scales = np.empty(len(matrix), np.float32)
    levels = np.empty(matrix.shape[::-1], np.int8)
    for part, rows in _portions(matrix):
        largest = np.abs(rows).max(axis=1) / 127
        if pairs:
            largest = np.maximum(largest, _largest_pair(rows) / _PAIR)
        scales[part] = np.where(largest > 0, largest, 1)
        found = np.rint(rows / scales[part, None])
        if pairs:
            _cut_pairs(found)
        levels[:, part] = found.T
    return levels, scales


def _largest_pair(rows: np.ndarray) -> np.ndarray:
    even, odd = rows[:, 0 : rows.shape[1] // 2 * 2 : 2], rows[:, 1::2]
    positive = (np.maximum(even, 0) + np.maximum(odd, 0)).max(axis=1, initial=0)
    negative = (np.minimum(even, 0) + np.minimum(odd, 0)).min(axis=1, initial=0)
    return np.maximum(positive, -negative)


def _cut_pairs(levels: np.ndarray) -> None:
    """Rounding may lift a pair one above what is safe."""
    even, odd = levels[:, 0 : levels.shape[1] // 2 * 2 : 2], levels[:, 1::2]
    over = (even * odd > 0) & (np.abs(even + odd) > _PAIR)
    even[over] -= np.sign(even[over])


def in_blocks(matrix: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Eight or four bits with one scale for each block of a row, as MatMulNBits reads them.

    Args:
        matrix: `(N, K)`; the last block is filled with zeros where `K` is no multiple of `block`.
        bits: 8 or 4.
        block: Values that share a scale.

    Returns:
        uint8 `(N, blocks, block * bits / 8)`, with zero in the middle of the range and the first of two values in the
        lower half of a byte, and float32 scales `(N, blocks)`.
    """
    count = -(-matrix.shape[1] // block)
    data = np.empty((len(matrix), count, block * bits // 8), np.uint8)
    scales = np.empty((len(matrix), count), np.float32)
    for part, rows in _portions(matrix):
        blocks = np.pad(rows, ((0, 0), (0, count * block - rows.shape[1]))).reshape(len(rows), count, block)
        levels, scales[part] = _rounded(blocks, bits)
        levels += 1 << (bits - 1)
        values = levels.astype(np.uint8)
        data[part] = values if bits == 8 else values[..., 0::2] | values[..., 1::2] << 4
    return data, scales


def in_columns(matrix: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Eight or four bits with one scale for each block of a row, as the standard's DequantizeLinear reads them.

    Args:
        matrix: `(N, K)`.
        bits: 8 or 4.
        block: Values that share a scale.

    Returns:
        int8 `(K, N)`, or the bytes of int4 `(K, N)`, two values in each, and float32 scales `(blocks, N)`.
    """
    rows, columns = matrix.shape
    data, scales = in_blocks(matrix, bits, block)
    if bits == 8:
        levels = (data.reshape(rows, -1)[:, :columns] ^ 0x80).view(np.int8).T
        return levels, np.ascontiguousarray(scales.T)
    levels = np.stack([data & 0x0F, data >> 4], axis=-1).reshape(rows, -1)[:, :columns]
    flat = (levels.T.ravel() - 8) & 0x0F
    flat = np.pad(flat, (0, flat.size % 2))
    return flat[0::2] | flat[1::2] << 4, np.ascontiguousarray(scales.T)


def _rounded(blocks: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Levels, as float32, and scales of blocks `(..., block)`."""
    high = (1 << (bits - 1)) - 1
    largest = np.abs(blocks).max(axis=-1)
    largest = np.where(largest > 0, largest, high)
    if bits == 8:
        scales = largest / high
        return np.rint(blocks / scales[..., None]), scales
    # The end that has one level more serves the larger side.
    sign = np.where(blocks.max(axis=-1) >= -blocks.min(axis=-1), np.float32(-1), np.float32(1))
    best, least = np.zeros_like(largest), np.full_like(largest, np.inf)
    for share in _SHARES:
        scale = sign * largest * share / (high + 1)
        levels = np.clip(np.rint(blocks / scale[..., None]), -high - 1, high)
        # Of all scales with these levels, the one of least squares.
        squares = np.maximum(np.einsum("...k,...k->...", levels, levels), 1)
        scale = np.einsum("...k,...k->...", blocks, levels) / squares
        error = np.square(blocks - levels * scale[..., None]).sum(axis=-1)
        better = error < least
        best[better], least[better] = scale[better], error[better]
    best = np.where(best == 0, np.float32(1), best)
    return np.clip(np.rint(blocks / best[..., None]), -high - 1, high), best


def _portions(matrix: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    step = max(1, _STEP // matrix.shape[1])
    for start in range(0, len(matrix), step):
        part = slice(start, min(start + step, len(matrix)))
        yield part, np.ascontiguousarray(matrix[part], np.float32)

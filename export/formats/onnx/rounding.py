"""Quantization of matrices to the integer layouts of ONNX operators, some rows at a time to save memory.

Quantization is symmetric: the zero point is level 0. A matrix `(N, K)` has a row for each of `N` outputs of a product
with `K` inputs. This module needs only NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kerasformer.export.quantization.compensation import RoundedKernel

_STEP = 1 << 18  # number of values that are rounded at once, so that they fit into a CPU cache
_SHARES = np.linspace(0.6, 1.0, 11, dtype=np.float32)
"""Ranges to try with four bits, as shares of a block's largest entry; clipping some entries can reduce the error."""
PAIR = 128
"""Largest sum of two adjacent levels with the same sign, since 255 times this sum fits into an int16."""


def in_channels(matrix: np.ndarray, pairs: bool) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes to eight bits with one scale for each row.

    Args:
        matrix: Values `(N, K)`.
        pairs: Whether to make products with unsigned bytes safe on CPUs that add pairs of them in 16 bits (x86 without
            VNNI), which saturate without an error if two adjacent levels are large. It costs up to an eighth of the
            precision.

    Returns:
        int8 levels `(K, N)` and float32 scales `(N,)`.
    """
    scales = np.empty(len(matrix), np.float32)
    levels = np.empty(matrix.shape[::-1], np.int8)
    for part, rows in _portions(matrix):
        largest = np.abs(rows).max(axis=1) / 127
        if pairs:
            largest = np.maximum(largest, _largest_pair(rows) / PAIR)
        scales[part] = np.where(largest > 0, largest, 1)
        rounded = np.rint(rows / scales[part, None])
        if pairs:
            _reduce_pairs(rounded)
        levels[:, part] = rounded.T
    return levels, scales


def _largest_pair(rows: np.ndarray) -> np.ndarray:
    even, odd = rows[:, 0 : rows.shape[1] // 2 * 2 : 2], rows[:, 1::2]
    positive = (np.maximum(even, 0) + np.maximum(odd, 0)).max(axis=1, initial=0)
    negative = (np.minimum(even, 0) + np.minimum(odd, 0)).min(axis=1, initial=0)
    return np.maximum(positive, -negative)


def _reduce_pairs(levels: np.ndarray) -> None:
    """Reduces pairs that rounding has lifted one above the safe sum."""
    even, odd = levels[:, 0 : levels.shape[1] // 2 * 2 : 2], levels[:, 1::2]
    over = (even * odd > 0) & (np.abs(even + odd) > PAIR)
    even[over] -= np.sign(even[over])


def in_blocks(
    matrix: np.ndarray, bits: int, block: int, rounded: RoundedKernel | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes to eight or four bits with one scale for each block of a row, in the layout of MatMulNBits.

    Args:
        matrix: Values `(N, K)`; the last block is padded with zeros if `K` is not a multiple of `block`.
        bits: Bits of a value, 8 or 4.
        block: Number of values that share a scale.
        rounded: The matrix in these bits, if it was rounded beforehand, in blocks of this size or of a multiple.

    Returns:
        uint8 `(N, blocks, block * bits / 8)`, with the zero point in the middle of the range and the first of two
        four-bit values in the lower half of a byte; and float32 scales `(N, blocks)`.
    """
    count = -(-matrix.shape[1] // block)
    data = np.empty((len(matrix), count, block * bits // 8), np.uint8)
    scales = np.empty((len(matrix), count), np.float32)
    for part, rows in _portions(matrix):
        given = rows if rounded is None else rounded.levels[part].astype(np.float32)
        blocks = np.pad(given, ((0, 0), (0, count * block - rows.shape[1]))).reshape(len(rows), count, block)
        if rounded is None:
            levels, scales[part] = _rounded(blocks, bits)
        else:
            levels = blocks
            scales[part] = np.repeat(rounded.scales[part], -(-rounded.block // block), axis=1)[:, :count]
        levels += 1 << (bits - 1)
        values = levels.astype(np.uint8)
        data[part] = values if bits == 8 else values[..., 0::2] | values[..., 1::2] << 4
    return data, scales


def in_columns(
    matrix: np.ndarray, bits: int, block: int, rounded: RoundedKernel | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes to eight or four bits with one scale for each block of a row, in the layout of DequantizeLinear.

    Args:
        matrix: Values `(N, K)`.
        bits: Bits of a value, 8 or 4.
        block: Number of values that share a scale.
        rounded: As for `in_blocks`.

    Returns:
        int8 `(K, N)`, or the bytes of int4 `(K, N)` with two values in each; and float32 scales `(blocks, N)`.
    """
    rows, columns = matrix.shape
    data, scales = in_blocks(matrix, bits, block, rounded)
    if bits == 8:
        levels = (data.reshape(rows, -1)[:, :columns] ^ 0x80).view(np.int8).T
        return levels, np.ascontiguousarray(scales.T)
    levels = np.stack([data & 0x0F, data >> 4], axis=-1).reshape(rows, -1)[:, :columns]
    flat = (levels.T.ravel() - 8) & 0x0F
    flat = np.pad(flat, (0, flat.size % 2))
    return flat[0::2] | flat[1::2] << 4, np.ascontiguousarray(scales.T)


def eight_bit_scales(rows: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Returns scales `(M,)` of rows `(M, K)` that share one each; `costs` are those of `four_bit_scales`."""
    return _rounded(rows, 8)[1].astype(np.float32)


def four_bit_scales(rows: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Returns scales `(M,)` of rows `(M, K)` that share one each, whose squared errors have the costs `(K,)`."""
    return _rounded(rows, 4, costs)[1].astype(np.float32)


def _rounded(blocks: np.ndarray, bits: int, costs: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the levels, as float32, and the scales of blocks `(..., block)`; errors have equal costs by default."""
    high = (1 << (bits - 1)) - 1
    largest = np.abs(blocks).max(axis=-1)
    largest = np.where(largest > 0, largest, high)
    if bits == 8:
        scales = largest / high
        return np.rint(blocks / scales[..., None]), scales
    # The sign of the scale gives the extra level, -8, to the side with the larger magnitude.
    sign = np.where(blocks.max(axis=-1) >= -blocks.min(axis=-1), np.float32(-1), np.float32(1))
    best, most = np.zeros_like(largest), np.full_like(largest, -1)
    costly = blocks if costs is None else blocks * costs
    levels, weighted = np.empty_like(blocks), np.empty_like(blocks)
    for share in _SHARES:
        np.multiply(blocks, ((high + 1) / (sign * largest * share))[..., None], out=levels)
        np.clip(np.rint(levels, out=levels), -high - 1, high, out=levels)
        # The least-squares scale for these levels, and by how much it makes the squared error smaller than no levels.
        squares = np.einsum("...k,...k->...", levels if costs is None else np.multiply(levels, costs, weighted), levels)
        product = np.einsum("...k,...k->...", costly, levels)
        scale = product / np.where(squares > 0, squares, 1)
        gain = product * scale
        better = gain > most
        best[better], most[better] = scale[better], gain[better]
    best = np.where(best == 0, np.float32(1), best)
    return np.clip(np.rint(blocks / best[..., None]), -high - 1, high), best


def _portions(matrix: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    step = max(1, _STEP // matrix.shape[1])
    for start in range(0, len(matrix), step):
        part = slice(start, min(start + step, len(matrix)))
        yield part, np.ascontiguousarray(matrix[part], np.float32)

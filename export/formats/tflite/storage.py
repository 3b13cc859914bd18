"""Storage of matrices in TFLite: rows of float16, or of integers with one scale for each row or block of a row.

A row is one output channel, or one token of an embedding table. This module needs only NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.bundle.recipes import BITS, Recipe, Storage

LEVELS: dict[Storage, tuple[int, int]] = {"int8": (-127, 127), "int4": (-8, 7)}
# Scales to try: what the largest entry of a row becomes, as a multiple of the highest level. With eight bits, clipping
# is never worthwhile; with four, clipping a few large entries can make the total error smaller. 7/8 uses the level -8.
_SHARES: dict[Storage, np.ndarray] = {
    "int8": np.ones(1, np.float32),
    "int4": np.arange(7, 20, dtype=np.float32) / 8,
}
_SMALLEST: dict[bool, np.float32] = {False: np.float32(2.0**-126), True: np.float32(2.0**-14)}
"""Smallest scales by whether they are for blocks: kernels refuse subnormal float32 scales and subnormal float16 block
scales."""
BLOCK = 32
"""Default block size with four bits; XNNPACK requires multiples of it."""
_STEP = 1 << 18
"""Number of values that are rounded at once, so that they fit into a CPU cache."""


@dataclass(frozen=True)
class Form:
    """How a matrix is stored.

    Attributes:
        storage: Type of the stored values.
        block: Number of values of a row that share a float16 scale; `None` for one float32 scale for the row.
    """

    storage: Storage
    block: int | None = None

    @property
    def integer(self) -> bool:
        """Whether values are integers with a scale."""
        return self.storage in LEVELS

    def num_bytes(self, shape: Sequence[int]) -> int:
        """Returns the size of the values in bytes, without scales."""
        return int(np.prod(shape)) * BITS[self.storage] // 8

    def scale_bytes(self, shape: Sequence[int]) -> int:
        """Returns the size of the scales in bytes."""
        if not self.integer:
            return 0
        return 4 * shape[0] if self.block is None else 2 * shape[0] * (shape[1] // self.block)


def form_of(recipe: Recipe, path: str, shape: Sequence[int], table: bool) -> Form:
    """Returns the form in which a recipe stores a weight, as far as the kernels of products and lookups support it.

    Args:
        recipe: How weights are stored.
        path: Path of the Keras variable.
        shape: Shape as stored.
        table: Whether it is an embedding table.
    """
    storage = recipe.storage(path, shape, table)
    if storage != "int4":
        return Form(storage)
    width = shape[-1]
    if width % 2:
        return Form("int8")  # a row of four-bit values must fill whole bytes
    block = recipe.block or BLOCK
    fits = block % BLOCK == 0 and width % block == 0 and not recipe.channelwise
    # With static activations, a whole row is summed in integers, which requires a single scale.
    return Form("int4", block if fits and recipe.activations != "static" else None)


def scales(matrix: np.ndarray, form: Form) -> np.ndarray:
    """Returns the scales with the smallest squared error of each row or block among several candidates.

    Args:
        matrix: Values, float32 `(N, K)`.
        form: An integer form, whose block size divides `K`.

    Returns:
        float32 `(N,)`, or float16 `(N, K / block)`.
    """
    block = form.block or matrix.shape[1]
    flat = np.concatenate([best_scales(rows.reshape(-1, block), form) for _, rows in _portions(matrix)])
    return flat if form.block is None else flat.reshape(len(matrix), -1).astype(np.float16)


def best_scales(rows: np.ndarray, form: Form, costs: np.ndarray | None = None) -> np.ndarray:
    """Returns the scales `(M,)` of rows that share one each; see `scales`.

    Args:
        rows: Values, float32 `(M, K)`.
        form: An integer form.
        costs: Costs of the squared errors, float32 `(K,)`; equal by default.
    """
    low, high = LEVELS[form.storage]
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    largest = np.where(largest > 0, largest, np.float32(high))
    shares = _SHARES[form.storage]
    best = storable(largest / (high * shares[0]), form)
    if len(shares) == 1:
        return best
    least = np.full(len(rows), np.inf, np.float32)
    for share in shares:
        scale = storable(largest / (high * share), form)
        levels = rows / scale[:, None]
        error = np.rint(levels)
        np.clip(error, low, high, out=error)
        error -= levels
        weighted = error if costs is None else error * costs
        squared = np.einsum("mk,mk->m", weighted, error) * np.square(scale)
        better = squared < least
        best[better], least[better] = scale[better], squared[better]
    return best


def storable(scale: np.ndarray, form: Form) -> np.ndarray:
    """Rounds scales to values that the file and the kernels represent exactly.

    Block scales are float16 in the file and bfloat16 in XNNPACK; eight significant bits fit both.
    """
    scale = scale.astype(np.float32)
    if form.block is not None:
        bits = scale.view(np.uint32)
        scale = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)
    return np.maximum(scale, _SMALLEST[form.block is not None])


def content(matrix: np.ndarray, form: Form, scale: np.ndarray | None = None) -> Iterator[bytes]:
    """Yields the stored bytes, some rows at a time; two four-bit levels share a byte, the first in its lower half.

    Args:
        matrix: Values, float32; `(N, K)` for an integer form, with an even `K` for int4.
        form: How the matrix is stored.
        scale: Result of `scales`, for an integer form.
    """
    if not form.integer:
        dtype = np.float16 if form.storage == "float16" else np.float32
        for _, rows in _portions(matrix):
            yield np.ascontiguousarray(rows, dtype).tobytes()
        return
    for start, rows in _portions(matrix):
        yield _bytes(_levels(rows, form, scale[start : start + len(rows)]), form)  # type: ignore[index]


def content_of_levels(levels: np.ndarray, form: Form) -> Iterator[bytes]:
    """Yields the stored bytes of levels that are already rounded, int8 `(N, K)`; see `content`."""
    for rows in np.array_split(levels, max(1, levels.size // _STEP)):
        yield _bytes(rows, form)


def _bytes(levels: np.ndarray, form: Form) -> bytes:
    return ((levels[:, 0::2] & 0x0F) | (levels[:, 1::2] << 4) if form.storage == "int4" else levels).tobytes()


def as_stored(matrix: np.ndarray, form: Form) -> np.ndarray:
    """Returns the dequantized values that a runtime reads from the file, float32 of the matrix's shape.

    Args:
        matrix: Values, float32 `(N, K)`.
        form: How the matrix is stored.
    """
    if not form.integer:
        return matrix.astype(np.float16 if form.storage == "float16" else np.float32).astype(np.float32)
    scale = scales(matrix, form)
    return _levels(matrix, form, scale) * _spread(scale, matrix.shape[1])


def _levels(rows: np.ndarray, form: Form, scale: np.ndarray) -> np.ndarray:
    """Quantizes rows to int8 of the same shape."""
    low, high = LEVELS[form.storage]
    return np.clip(np.rint(rows / _spread(scale, rows.shape[1])), low, high).astype(np.int8)


def _spread(scale: np.ndarray, width: int) -> np.ndarray:
    """Broadcasts scales to values: float32 `(N, 1)` or `(N, K)`."""
    columns = scale.astype(np.float32).reshape(len(scale), -1)
    return columns if columns.shape[1] == 1 else np.repeat(columns, width // columns.shape[1], axis=1)


def _portions(matrix: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields some rows at a time, with the index of the first of them."""
    if not matrix.ndim:
        yield 0, matrix
        return
    step = max(1, _STEP // max(1, matrix[0].size))
    for start in range(0, len(matrix), step):
        yield start, np.ascontiguousarray(matrix[start : start + step], np.float32)

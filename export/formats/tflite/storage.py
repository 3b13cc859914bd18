"""Matrices as TFLite stores them: rows of float16, or of integers with one scale for a row or for each block of it.

A row is what one output channel, or one token of a table, is made of. NumPy alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.export.quantization.recipes import BITS, Recipe, Storage

_LEVELS: dict[Storage, tuple[int, int]] = {"int8": (-127, 127), "int4": (-8, 7)}
# What the largest entry of a row becomes, as a share of the highest level. Eight bits have levels to spare; with four,
# cutting off a few large entries for the sake of all others makes the smaller error; 7/8 is for the level -8.
_SHARES: dict[Storage, np.ndarray] = {
    "int8": np.ones(1, np.float32),
    "int4": np.arange(7, 20, dtype=np.float32) / 8,
}
_SMALLEST: dict[bool, np.float32] = {False: np.float32(2.0**-126), True: np.float32(2.0**-14)}
"""Kernels refuse scales below the normal numbers of float32 and, for blocks, of float16."""
_BLOCK = 32
"""Blocks of four-bit levels: XNNPACK's are multiples of this. Measured as fast as one scale a row, and far closer."""
_STEP = 1 << 18
"""Values that are rounded at once: few enough to stay in a processor's cache."""


@dataclass(frozen=True)
class Form:
    """How a matrix is stored.

    Attributes:
        storage: What a value becomes.
        block: Values of a row that share a float16 scale; `None`: the row has one float32 scale.
    """

    storage: Storage
    block: int | None = None

    @property
    def integer(self) -> bool:
        """Values are levels of a scale."""
        return self.storage in _LEVELS

    def num_bytes(self, shape: Sequence[int]) -> int:
        """Bytes of the values; scales are extra."""
        return int(np.prod(shape)) * BITS[self.storage] // 8

    def scale_bytes(self, shape: Sequence[int]) -> int:
        """Bytes of the scales."""
        if not self.integer:
            return 0
        return 4 * shape[0] if self.block is None else 2 * shape[0] * (shape[1] // self.block)


def form_of(recipe: Recipe, path: str, shape: Sequence[int], table: bool) -> Form:
    """What the recipe says of a weight that is only multiplied with and looked up in, as far as kernels can read it.

    Args:
        recipe: How weights are stored.
        path: Of the Keras variable.
        shape: As stored.
        table: Rows of it are looked up.
    """
    storage = recipe.storage(path, shape, table)
    if storage != "int4":
        return Form(storage)
    width = shape[-1]
    if width % 2:
        return Form("int8")  # rows of four bits must end with a byte
    block = recipe.block or _BLOCK
    fits = block % _BLOCK == 0 and width % block == 0
    # Integer sums over a whole row have one unit.
    return Form("int4", block if fits and recipe.activations != "static" else None)


def scales(matrix: np.ndarray, form: Form) -> np.ndarray:
    """The scales that make the squared error of each row or block least, of those tried.

    Args:
        matrix: `(N, K)`; float32.
        form: An integer form; its block divides `K`.

    Returns:
        float32 `(N,)`, or float16 `(N, K / block)`.
    """
    block = form.block or matrix.shape[1]
    found = [_best_scales(rows.reshape(-1, block), form) for _, rows in _portions(matrix)]
    flat = np.concatenate(found)
    return flat if form.block is None else flat.reshape(len(matrix), -1).astype(np.float16)


def _best_scales(rows: np.ndarray, form: Form) -> np.ndarray:
    """float32 `(M,)` for `(M, K)`."""
    low, high = _LEVELS[form.storage]
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    largest = np.where(largest > 0, largest, np.float32(high))
    shares = _SHARES[form.storage]
    best = _storable(largest / (high * shares[0]), form)
    if len(shares) == 1:
        return best
    least = np.full(len(rows), np.inf, np.float32)
    for share in shares:
        scale = _storable(largest / (high * share), form)
        levels = rows / scale[:, None]
        error = np.rint(levels)
        np.clip(error, low, high, out=error)
        error -= levels
        squared = np.einsum("mk,mk->m", error, error) * np.square(scale)
        better = squared < least
        best[better], least[better] = scale[better], squared[better]
    return best


def _storable(scale: np.ndarray, form: Form) -> np.ndarray:
    """The next scale that the file, and the kernels, keep as it is.

    Scales of blocks are float16 in the file and bfloat16 in XNNPACK: eight significant bits fit both.
    """
    scale = scale.astype(np.float32)
    if form.block is not None:
        bits = scale.view(np.uint32)
        scale = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)
    return np.maximum(scale, _SMALLEST[form.block is not None])


def content(matrix: np.ndarray, form: Form, scale: np.ndarray | None = None) -> Iterator[bytes]:
    """The stored bytes, some rows at a time; two levels of four bits share a byte, the first one in its lower half.

    Args:
        matrix: float32; `(N, K)` for an integer form, with an even `K` for int4.
        form: How it is stored.
        scale: What `scales` gave, for an integer form.
    """
    if not form.integer:
        dtype = np.float16 if form.storage == "float16" else np.float32
        for _, rows in _portions(matrix):
            yield np.ascontiguousarray(rows, dtype).tobytes()
        return
    for start, rows in _portions(matrix):
        levels = _levels(rows, form, scale[start : start + len(rows)])  # type: ignore[index]
        if form.storage == "int4":
            levels = (levels[:, 0::2] & 0x0F) | (levels[:, 1::2] << 4)
        yield levels.tobytes()


def as_stored(matrix: np.ndarray, form: Form) -> np.ndarray:
    """The values that a runtime finds in the file: float32 of the matrix's shape.

    Args:
        matrix: `(N, K)`; float32.
        form: How it is stored.
    """
    if not form.integer:
        return matrix.astype(np.float16 if form.storage == "float16" else np.float32).astype(np.float32)
    scale = scales(matrix, form)
    return _levels(matrix, form, scale) * _spread(scale, matrix.shape[1])


def _levels(rows: np.ndarray, form: Form, scale: np.ndarray) -> np.ndarray:
    """int8 of the rows' shape."""
    low, high = _LEVELS[form.storage]
    return np.clip(np.rint(rows / _spread(scale, rows.shape[1])), low, high).astype(np.int8)


def _spread(scale: np.ndarray, width: int) -> np.ndarray:
    """float32 scales, one for each value: `(N, 1)` or `(N, K)`."""
    wide = scale.astype(np.float32).reshape(len(scale), -1)
    return wide if wide.shape[1] == 1 else np.repeat(wide, width // wide.shape[1], axis=1)


def _portions(matrix: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Some rows at a time, each with the place of its first."""
    if not matrix.ndim:
        yield 0, matrix
        return
    step = max(1, _STEP // max(1, matrix[0].size))
    for start in range(0, len(matrix), step):
        yield start, np.ascontiguousarray(matrix[start : start + step], np.float32)

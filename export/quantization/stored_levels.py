"""The levels that matrices of a quantized checkpoint already have, such as those of llama.cpp's blocks.

Such a file is read as float32. Its levels are found again in the values: in each block of a row, they are multiples of
one number, above the block's minimum if its type stores one. So no level is rounded a second time, and no type of block
needs a reader of its own: those of 2 to 8 bits with equal steps, and tables of integers as in IQ4_NL, are found.

Reference: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from kerasformer.basics.progress import StageProgress
from kerasformer.bundle.recipes import RECIPES, Recipe, Storage
from kerasformer.errors import ExportError
from kerasformer.export.quantization.calibration import Ranges
from kerasformer.export.quantization.compensation import LEVELS, RoundedKernel
from kerasformer.export.quantization.layouts import Layout
from kerasformer.export.quantization.model_matrices import matrices
from kerasformer.files.reading import JsonObject
from kerasformer.models.pretrained import PretrainedModel

_NEAR = 1e-3
"""Largest distance from a level, in steps: far above float32's rounding, and far below 1/127, the smallest one between
multiples of different steps."""
_HALF = 2.0**-24
"""Largest error of a value in float16, as a share of the largest value: the precision of float32 itself."""
_FLOATS = "floating-point"
_FIRST, _PORTION = 64, 8192  # blocks that are tried first, and at once


@dataclass(frozen=True)
class _Kind:
    """Levels of a block that are tried.

    Attributes:
        bits: Bits in which runtimes store a level.
        block: Values that share a scale.
        steps: Most steps between the lowest level and the highest or, without a minimum, between 0 and the farthest.
        minimum: Whether levels count from the minimum of the block, and not from 0.
    """

    bits: int
    block: int
    steps: int
    minimum: bool = False


_KINDS = (
    _Kind(4, 32, 8),  # Q4_0, MXFP4
    _Kind(4, 32, 15, minimum=True),  # Q4_1, Q4_K
    _Kind(4, 16, 8),  # Q3_K
    _Kind(4, 16, 15, minimum=True),  # Q2_K
    _Kind(8, 32, 127),  # Q8_0, Q5_0, IQ4_NL
    _Kind(8, 32, 31, minimum=True),  # Q5_1, Q5_K
    _Kind(8, 16, 127),  # Q6_K
)


def found_levels(matrix: np.ndarray) -> RoundedKernel | None:
    """Returns the levels of a matrix, float32 `(N, K)`, in the fewest bits; `None` if it has none."""
    for kind in _KINDS:
        if matrix.shape[1] % kind.block == 0 and (kernel := _as_kind(np.ascontiguousarray(matrix), kind)) is not None:
            return kernel
    return None


def _as_kind(matrix: np.ndarray, kind: _Kind) -> RoundedKernel | None:
    blocks = matrix.reshape(-1, kind.block)
    if _levels(blocks[:_FIRST], kind) is None:
        return None
    parts = []
    for start in range(0, len(blocks), _PORTION):
        part = _levels(blocks[start : start + _PORTION], kind)
        if part is None:
            return None
        parts.append(part)
    levels, scales, offsets = map(np.concatenate, zip(*parts, strict=True))
    by_row = len(matrix), -1
    added = offsets.reshape(by_row) if kind.minimum else None
    return RoundedKernel(levels.reshape(matrix.shape), scales.reshape(by_row), kind.block, kind.bits, added)


def _levels(blocks: np.ndarray, kind: _Kind) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Returns int8 levels `(M, B)`, scales `(M,)` and offsets `(M,)`, float32; `None` if a block has no such levels."""
    low, high = blocks.min(axis=1), blocks.max(axis=1)
    # The farthest value gets a negative level, as there is one more of these.
    span = high - low if kind.minimum else np.where(high >= -low, -high, -low)
    origin = low if kind.minimum else np.zeros_like(low)
    levels, scales = np.zeros(blocks.shape, np.int8), np.ones(len(blocks), np.float32)
    shift = 1 << (kind.bits - 1) if kind.minimum else 0
    pending = np.arange(len(blocks))
    for steps in range(kind.steps, 0, -1):
        scale = span[pending] / np.float32(steps)
        equal = scale == 0  # all values of the block
        scale[equal] = np.maximum(np.abs(origin[pending][equal]), np.float32(2.0**-20))
        exact = (blocks[pending] - origin[pending, None]) / scale[:, None]
        rounded = np.rint(exact)
        lowest, highest = LEVELS[kind.bits]
        fits = (np.abs(exact - rounded).max(axis=1) < _NEAR) & (rounded.max(axis=1) - shift <= highest)
        found = pending[fits]
        levels[found], scales[found] = rounded[fits] - shift, scale[fits]
        pending = pending[~fits]
        if not pending.size:
            return levels, scales, (origin + shift * scales).astype(np.float32)
    return None


def keep_levels(
    model: PretrainedModel, recipe: Recipe, layout: Layout, report: StageProgress
) -> tuple[Recipe, dict[str, Ranges], list[JsonObject]]:
    """Finds the levels of a model's matrices, and how a format stores each matrix.

    A matrix without levels keeps its values, in float16 if this holds them. One whose levels the format cannot hold is
    rounded to int8. Those that match the recipe's `layers` are stored as these say, and not searched.

    Args:
        model: A model of the zoo.
        recipe: A recipe with the rounding `"stored"`.
        layout: Layout of the files.
        report: Called with the number of matrices that were read.

    Returns:
        The recipe with the storage type of each matrix, and with the limits of int8 if one is rounded; the levels by
        path; and a row for each kind of levels, with the storage type, the number of matrices and of their values, and
        whether they are kept.

    Raises:
        ExportError: No matrix has levels.
    """
    layers: list[tuple[str, Storage]] = []
    kept: dict[str, Ranges] = {}
    rows: dict[tuple[str, Storage, bool], tuple[int, int]] = {}
    parts = matrices(model)
    for index, part in enumerate(parts):
        report("find levels", index, len(parts))
        if any(fnmatchcase(part.path, pattern) for pattern, _ in recipe.layers):
            continue
        value = part.value()
        found = found_levels(value)
        held = None if found is None else layout.held(found, part)
        storage: Storage = "int8"
        if held is not None:
            storage = "int4" if held.bits == 4 else "int8"
            kept[part.path] = Ranges((0.0, 0.0), (0.0, 0.0), rounded=held)
        elif found is None:
            with np.errstate(over="ignore"):
                error = np.abs(value.astype(np.float16) - value).max()
            storage = "float16" if error <= _HALF * np.abs(value).max() else "float32"
        layers.append((part.path, storage))
        key = _described(found), storage, found is None or held is not None
        matrices_so_far, values_so_far = rows.get(key, (0, 0))
        rows[key] = matrices_so_far + 1, values_so_far + value.size
    if parts and not any(levels != _FLOATS for levels, *_ in rows):
        raise ExportError(
            f"The recipe {recipe.name!r} keeps the levels of a quantized checkpoint. Received: {len(parts)} matrices "
            "whose values are not on a grid of levels. Use quantize='int8', or another recipe that rounds"
        )
    names = ("levels", "storage", "kept", "matrices", "values")
    table = [dict(zip(names, (*key, *counts), strict=True)) for key, counts in rows.items()]
    if not all(row["kept"] for row in table):
        recipe = recipe.no_stricter_than(RECIPES["int8"])
    return replace(recipe, layers=(*recipe.layers, *layers)), kept, table


def _described(kernel: RoundedKernel | None) -> str:
    if kernel is None:
        return _FLOATS
    return f"{kernel.bits} bits in blocks of {kernel.block}{'' if kernel.offsets is None else ' with a minimum'}"

"""How each format stores a matrix: the values that its runtime reads from the file, and their size in bytes.

The formats' own writers compute both, for one matrix at a time and without a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from kerasformer.bundle.recipes import MIN_QUANTIZED, Recipe
from kerasformer.export.quantization.calibration import CalibratedKernel
from kerasformer.export.quantization.compensation import Grid, RoundedKernel
from kerasformer.export.quantization.model_matrices import ModelMatrix, matrices
from kerasformer.models.pretrained import PretrainedModel


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels to which a format rounds the values of a matrix `(N, K)`, and what they stand for.

    A value becomes `clip(rint(value / scale), low, high)`, and is read as this level times the scale.

    Attributes:
        scales: float32 `(N, blocks)`, which may be negative.
        block: Number of values of a row that share a scale; the last block of a row may be shorter.
        low: Lowest level.
        high: Highest level.
        pairs: Largest sum of the levels of two adjacent values of the same sign, of which the first one is reduced by 1
            if rounding has exceeded it; `None` for no limit.
    """

    scales: np.ndarray
    block: int
    low: int
    high: int
    pairs: int | None = None


class Layout(Protocol):
    """Storage of matrices in a format.

    Attributes:
        four_bit_tables: Whether embedding lookups support int4 tables.
    """

    four_bit_tables: bool

    def as_stored(self, matrix: ModelMatrix, recipe: Recipe) -> np.ndarray:
        """Returns the dequantized matrix as the runtime reads it, float32 `(N, K)`.

        It is the factor of the original input, even if the file stores it divided by scales of the input's channels.
        """
        ...

    def grid(self, matrix: ModelMatrix, recipe: Recipe) -> Grid | None:
        """Returns the values that a kernel is rounded to with calibration texts; `None` for rounding to the nearest."""
        ...

    def held(self, kernel: RoundedKernel, matrix: ModelMatrix) -> RoundedKernel | None:
        """Returns a matrix of given levels as the format stores it; `None` if it has no such blocks or offsets."""
        ...

    def levels(self, matrix: ModelMatrix, recipe: Recipe) -> Levels | None:
        """Returns how the current values are rounded, each for itself; `None` if they are not stored as integers."""
        ...

    def num_bytes(self, matrix: ModelMatrix, recipe: Recipe) -> int:
        """Returns the size in the file in bytes, including scales."""
        ...


def num_bytes(model: PretrainedModel, parts: Sequence[ModelMatrix], recipe: Recipe, layout: Layout) -> int:
    """Returns the size of all weights in the model's files in bytes, without the graphs.

    Args:
        model: The model.
        parts: Its matrices, as returned by `matrices`.
        recipe: How they are stored.
        layout: Layout of the files.
    """
    # Vectors, and matrices that are too small to be quantized.
    rest = sum(4 * prod(v.shape) for v in model.variables if len(v.shape) == 1 or prod(v.shape) < MIN_QUANTIZED)
    return rest + sum(layout.num_bytes(part, recipe) for part in parts)


def calibrated_kernels(model: PretrainedModel, recipe: Recipe, layout: Layout) -> dict[str, CalibratedKernel]:
    """Returns the kernels that a recipe rounds with calibration texts, by path.

    Args:
        model: A model of the zoo.
        recipe: How its matrices are stored.
        layout: Layout of the files.
    """
    if not recipe.compensates:
        return {}
    grids = {part: layout.grid(part, recipe) for part in matrices(model)}
    return {
        part.path: CalibratedKernel(part.value, part.rows[1], grid, part.table) for part, grid in grids.items() if grid
    }

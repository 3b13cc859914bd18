"""How a table of token vectors is stored: each row in float32, or in integers with a scale of its own."""

from __future__ import annotations

import numpy as np

from kerasformer.bundle.interface import TABLE, TABLE_BITS, TABLE_SCALES
from kerasformer.bundle.recipes import BITS, Recipe
from kerasformer.errors import ExportError
from kerasformer.export.formats.onnx.rounding import in_blocks
from kerasformer.export.quantization.compensation import LEVELS, Grid, RoundedKernel
from kerasformer.export.quantization.layouts import Levels
from kerasformer.export.quantization.model_matrices import ModelMatrix


def stored(rows: np.ndarray, bits: int) -> dict[str, np.ndarray]:
    """Returns the tensors of a table.

    Args:
        rows: float32 `(V, E)`.
        bits: 32, 8 or 4.

    Returns:
        float32 `(V, E)`; or uint8 `(V, E)`, or `(V, ceil(E / 2))` with the first of two values in the lower half of a
        byte, and the scale of each row, float32 `(V,)`. The value of a level is `(level - 2^(bits - 1)) * scale`.
    """
    if bits == BITS["float32"]:
        return {TABLE: np.ascontiguousarray(rows, np.float32)}
    width = rows.shape[1] + (rows.shape[1] % 2 if bits == BITS["int4"] else 0)
    levels, scales = in_blocks(rows, bits, width)
    return {TABLE_BITS[bits]: levels.reshape(len(rows), -1), TABLE_SCALES: scales.reshape(-1)}


class TableLayout:
    """A `Layout` with one scale for each row."""

    four_bit_tables = True

    def as_stored(self, matrix: ModelMatrix, recipe: Recipe) -> np.ndarray:
        """See `Layout.as_stored`."""
        levels = self.levels(matrix, recipe)
        if levels is None:
            return matrix.value()
        scales = levels.scales
        values: np.ndarray = np.clip(np.rint(matrix.value() / scales), levels.low, levels.high) * scales
        return values

    def levels(self, matrix: ModelMatrix, recipe: Recipe) -> Levels | None:
        """See `Layout.levels`."""
        bits = self.bits(matrix.path, matrix.rows, recipe)
        if bits == BITS["float32"]:
            return None
        return Levels(stored(matrix.value(), bits)[TABLE_SCALES][:, None], matrix.rows[1], *LEVELS[bits])

    def grid(self, matrix: ModelMatrix, recipe: Recipe) -> Grid | None:
        """See `Layout.grid`: there is no product, whose inputs could tell which errors count."""
        return None

    def held(self, kernel: RoundedKernel, matrix: ModelMatrix) -> RoundedKernel | None:
        """See `Layout.held`: rows have no blocks."""
        return None

    def num_bytes(self, matrix: ModelMatrix, recipe: Recipe) -> int:
        """See `Layout.num_bytes`."""
        bits = self.bits(matrix.path, matrix.rows, recipe)
        return sum(tensor.nbytes for tensor in stored(matrix.value(), bits).values())

    def bits(self, path: str, shape: tuple[int, ...], recipe: Recipe) -> int:
        """Returns the number of bits of an entry of the table.

        Raises:
            ExportError: the recipe stores it in float16, which not all libraries could read.
        """
        storage = recipe.storage(path, shape, table=True)
        if storage == "float16":
            raise ExportError(
                f"A table of token vectors is stored in float32, int8 or int4. Received: {storage} of {recipe.name!r}. "
                "Export it with quantize='none', 'int8' or 'int4'; a search has nothing to mix"
            )
        return BITS[storage]

"""How TFLite files store matrices, as a `Layout`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from kerasformer.bundle.recipes import BITS, Recipe
from kerasformer.export.formats.tflite.storage import (
    BLOCK,
    LEVELS,
    Form,
    as_stored,
    best_scales,
    form_of,
    scales,
    storable,
)
from kerasformer.export.quantization.compensation import Grid, RoundedKernel
from kerasformer.export.quantization.layouts import Levels
from kerasformer.export.quantization.model_matrices import ModelMatrix


@cache
def _grid(form: Form) -> Grid:
    """Returns the same grid for matrices of the same form, which may share the moments of their inputs."""
    return Grid(form.block, lambda rows, costs: best_scales(rows, form, costs), BITS[form.storage])


class TfliteLayout:
    """Storage with a scale for each row."""

    four_bit_tables = True

    def as_stored(self, matrix: ModelMatrix, recipe: Recipe) -> np.ndarray:
        """See `Layout.as_stored`."""
        if matrix.rounded is not None and matrix.rounded.bits == BITS[self._form(matrix, recipe).storage]:
            return matrix.rounded.values()
        scale = matrix.input_scale(recipe)
        if scale is None:
            return as_stored(matrix.value(), self._form(matrix, recipe))
        return as_stored(matrix.value() / scale, self._form(matrix, recipe)) * scale

    def grid(self, matrix: ModelMatrix, recipe: Recipe) -> Grid | None:
        """See `Layout.grid`."""
        form = self._form(matrix, recipe)
        unlike_kernels = matrix.table and form.storage == "int8" and recipe.weights != "int8"
        if not form.integer or not matrix.product or unlike_kernels:
            return None
        return _grid(form)

    def held(self, kernel: RoundedKernel, matrix: ModelMatrix) -> RoundedKernel | None:
        """See `Layout.held`: four bits in blocks of 32 with positive scales of eight significant bits.

        A block whose scale is negative, as that of every second one in Q4_0, has levels up to 8, one more than there
        are. One step of its values becomes an offset.
        """
        if kernel.bits != 4 or kernel.block != BLOCK:
            return None
        scales = storable(np.abs(kernel.scales), Form("int4", BLOCK))
        levels = np.rint(kernel.levels * np.repeat(kernel.scales / scales, BLOCK, axis=1)).astype(np.int8)
        above = levels.reshape(*scales.shape, BLOCK).max(axis=2) > LEVELS["int4"][1]
        offsets = (0 if kernel.offsets is None else kernel.offsets) + above * scales
        if kernel.offsets is None and not above.any():
            return replace(kernel, levels=levels, scales=scales)
        if matrix.table:  # lookups have no offsets
            return None
        return replace(kernel, levels=levels - np.repeat(above, BLOCK, axis=1), scales=scales, offsets=offsets)

    def levels(self, matrix: ModelMatrix, recipe: Recipe) -> Levels | None:
        """See `Layout.levels`."""
        form = self._form(matrix, recipe)
        if not form.integer:
            return None
        stored = scales(matrix.value(), form).astype("float32").reshape(matrix.rows[0], -1)
        return Levels(stored, form.block or matrix.rows[1], *LEVELS[form.storage])

    def num_bytes(self, matrix: ModelMatrix, recipe: Recipe) -> int:
        """See `Layout.num_bytes`."""
        form = self._form(matrix, recipe)
        return form.num_bytes(matrix.rows) + form.scale_bytes(matrix.rows)

    def _form(self, matrix: ModelMatrix, recipe: Recipe) -> Form:
        return form_of(recipe, matrix.path, matrix.rows, matrix.table)

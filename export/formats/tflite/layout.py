"""How TFLite files store matrices, as a `Layout`."""

from __future__ import annotations

from functools import cache

import numpy as np

from kerasformer.bundle.recipes import BITS, Recipe
from kerasformer.export.formats.tflite.storage import LEVELS, Form, as_stored, best_scales, form_of, scales
from kerasformer.export.quantization.compensation import Grid
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

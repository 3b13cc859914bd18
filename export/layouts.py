"""What each format makes of a matrix: the values that its runtime finds in the file, and the bytes that they take.

The writers of the formats decide; they are asked here about one matrix at a time, without a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from kerasformer.export.matrices import Matrix
from kerasformer.export.recipes import MIN_QUANTIZED, Recipe
from kerasformer.export.to_tflite import storage as tflite_storage


class Layout(Protocol):
    """How a format stores matrices.

    Attributes:
        four_bit_tables: Rows of int4 can be looked up.
    """

    four_bit_tables: bool

    def as_stored(self, matrix: Matrix, recipe: Recipe) -> np.ndarray:
        """float32 `(N, K)`, as the runtime reads it."""
        ...

    def num_bytes(self, matrix: Matrix, recipe: Recipe) -> int:
        """Bytes in the file, scales included."""
        ...


def layout_of(format: str, profile: str | None = None, opset: int | None = None) -> Layout:
    """The layout of a format.

    Args:
        format: `"tflite"` or `"onnx"`.
        profile: Of ONNX.
        opset: Of ONNX.
    """
    if format == "tflite":
        return TfliteLayout()
    from kerasformer.export.to_onnx.layout import OnnxLayout

    return OnnxLayout(profile, opset)


class TfliteLayout:
    """A scale for each row."""

    four_bit_tables = True

    def as_stored(self, matrix: Matrix, recipe: Recipe) -> np.ndarray:
        """See `Layout.as_stored`."""
        return tflite_storage.as_stored(matrix.value(), self._form(matrix, recipe))

    def num_bytes(self, matrix: Matrix, recipe: Recipe) -> int:
        """See `Layout.num_bytes`."""
        form = self._form(matrix, recipe)
        return form.num_bytes(matrix.rows) + form.scale_bytes(matrix.rows)

    def _form(self, matrix: Matrix, recipe: Recipe) -> tflite_storage.Form:
        return tflite_storage.form_of(recipe, matrix.path, matrix.rows, matrix.table)


def num_bytes(model: Any, parts: Sequence[Matrix], recipe: Recipe, layout: Layout) -> int:
    """Bytes of all weights in the model's files; the graphs are extra.

    Args:
        model: Whose matrices they are.
        parts: What `matrices` found.
        recipe: How they are stored.
        layout: Of the files.
    """
    # Vectors, and matrices that are too small to be quantized.
    rest = sum(4 * prod(v.shape) for v in model.variables if len(v.shape) == 1 or prod(v.shape) < MIN_QUANTIZED)
    return rest + sum(layout.num_bytes(part, recipe) for part in parts)

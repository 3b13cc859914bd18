"""What each format makes of a matrix: the values that its runtime finds in the file, and the bytes that they take.

The writers of the formats decide; they are asked here about one matrix at a time, without a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from kerasformer.export.quantization.model_matrices import ModelMatrix
from kerasformer.export.quantization.recipes import MIN_QUANTIZED, Recipe


class Layout(Protocol):
    """How a format stores matrices.

    Attributes:
        four_bit_tables: Rows of int4 can be looked up.
    """

    four_bit_tables: bool

    def as_stored(self, matrix: ModelMatrix, recipe: Recipe) -> np.ndarray:
        """float32 `(N, K)`, as the runtime reads it."""
        ...

    def num_bytes(self, matrix: ModelMatrix, recipe: Recipe) -> int:
        """Bytes in the file, scales included."""
        ...


def num_bytes(model: Any, parts: Sequence[ModelMatrix], recipe: Recipe, layout: Layout) -> int:
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

"""Primitives in the forms that TFLite has operators for."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from kerasformer.errors import ExportError, require
from kerasformer.export.formats.tflite.storage import form_of
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.layers.attention_spec import Rotary
from kerasformer.layers.primitives import Primitives
from kerasformer.layers.tensor import Tensor

_STEPS = 255
"""From the least to the largest level of eight bits."""


class TfliteLowering(Primitives):
    """Traces a model whose weights are placeholders.

    Args:
        recipe: How they will be stored.
        kernels: Placeholders `(F, E)` of the transposed kernels, by id of their variable.
        tables: Placeholders of all variables in their own layout, likewise.
    """

    def __init__(self, recipe: Recipe, kernels: dict[int, Tensor], tables: dict[int, Tensor]) -> None:
        self.recipe = recipe
        self.kernels = kernels
        self.tables = tables
        self._angles: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor]] = {}

    def linear(self, x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
        """A product of matrices with the weight output-first: FULLY_CONNECTED."""
        weight = (self.tables if transposed else self.kernels).get(id(kernel))
        if weight is None:
            return super().linear(x, kernel, bias, transposed=transposed)
        ops = keras.ops
        rows = ops.reshape(x, (-1, x.shape[-1]))
        form = form_of(self.recipe, kernel.path, weight.shape, table=transposed)
        in_halves = form.integer and self.recipe.activations == "float"
        y = _product_in_halves(rows, weight) if in_halves else _matmul_transposed(rows, weight)
        if bias is not None:
            y = ops.add(y, ops.convert_to_tensor(bias))
        return ops.reshape(y, (*x.shape[:-1], weight.shape[0]))

    def embedding(self, table: Any, ids: Tensor) -> Tensor:
        """A look-up with flat ids: GATHER, or EMBEDDING_LOOKUP on a quantized table."""
        weight = self.tables.get(id(table))
        if weight is None:
            return super().embedding(table, ids)
        # Not keras.ops.take, which first counts negative ids from the end.
        rows = tensorflow().gather(weight, keras.ops.reshape(ids, (-1,)))
        return keras.ops.reshape(rows, (*ids.shape, weight.shape[1]))

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
        softcap: float | None = None,
        dropout: Any = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Scales the query, the smallest of the three, and multiplies with the keys as they lie in the cache."""
        factor = scale if softcap is None else scale / softcap
        scores = _matmul_transposed(query if factor == 1.0 else query * factor, key)
        if softcap is not None:
            scores = softcap * keras.ops.tanh(scores)
        if bias is not None:
            scores = scores + bias
        weights = keras.ops.softmax(scores, axis=-1)
        return keras.ops.matmul(weights, value), weights

    def rotary(self, x: Tensor, cosine: Tensor, sine: Tensor, rotary: Rotary) -> Tensor:
        """Swaps the entries of each pair by a product with a constant matrix, which is exact: four operators.

        Slices and their concatenation would be six, and nine where only a part of a head is rotated.
        """
        size = x.shape[-1]
        key = id(cosine), size
        if key not in self._angles:
            rest = ((0, 0), (0, 0), (0, 0), (0, size - rotary.dim))
            whole = cosine, sine
            if rotary.dim < size:  # what is not rotated is multiplied by 1
                whole = keras.ops.pad(cosine, rest, constant_values=1.0), keras.ops.pad(sine, rest)
            self._angles[key] = cosine, *whole
        _, cosine, sine = self._angles[key]
        swapped = tensorflow().matmul(x, _swaps(rotary, size))
        return x * cosine + swapped * sine


def _swaps(rotary: Rotary, size: int) -> np.ndarray:
    """The matrix `(D, D)` whose product with a head exchanges the entries of each pair; 0 for those without."""
    pairs = np.arange(rotary.dim).reshape((-1, 2) if rotary.interleaved else (2, -1))
    partners = (pairs[:, ::-1] if rotary.interleaved else pairs[::-1]).reshape(-1)
    matrix = np.zeros((size, size), "float32")
    matrix[partners, np.arange(rotary.dim)] = 1.0
    return matrix


def _product_in_halves(rows: Tensor, weight: Tensor) -> Tensor:
    """`rows @ weight^T` with sixteen bits of the rows, where kernels for integer weights take eight.

    No kernel of LiteRT multiplies float32 rows with integers: each rounds a row to 256 levels between its least and
    its largest value. So every row is given twice: first as it is on exactly these levels, which rounding leaves alone,
    then what is missing from that. The weights are read once for both, and the results are added.
    """
    tf = tensorflow()
    low = tf.minimum(tf.reduce_min(rows, axis=-1, keepdims=True), 0.0)
    high = tf.maximum(tf.reduce_max(rows, axis=-1, keepdims=True), 0.0)
    step = tf.maximum((high - low) * (1.0 / _STEPS), 1e-20)  # a row of zeros has no levels
    coarse = tf.round(rows / step) * step
    first, second = tf.split(_matmul_transposed(tf.concat([coarse, rows - coarse], axis=0), weight), 2)
    return first + second


def _matmul_transposed(x: Tensor, y: Tensor) -> Tensor:
    """`x @ y^T` in one operation: keras.ops would write the transpose down, and the converter might keep it."""
    return tensorflow().matmul(x, y, transpose_b=True)


def tensorflow() -> Any:
    """The module.

    Raises:
        ExportError: Keras runs on another backend.
    """
    if keras.backend.backend() != "tensorflow":
        raise ExportError(
            "TFLite files are written through TensorFlow. Received: the Keras backend "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow"
        )
    return require("tensorflow", "export")

"""Lowering of primitives to forms for which TFLite has operators."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import ModuleType

import keras
import numpy as np

from kerasformer.bundle.recipes import Recipe
from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite.storage import form_of
from kerasformer.extras import require
from kerasformer.layers.attention_call import HeadAttentionCall
from kerasformer.layers.attention_spec import Rotary
from kerasformer.layers.equal_layers import EqualLayers
from kerasformer.layers.layer_types import LayerArguments, Outputs
from kerasformer.layers.primitives import LowRankProduct, LSTMWeights, Primitives, Weight
from kerasformer.layers.tensor import Tensor

_STEPS = 255
"""Number of steps between the lowest and the highest level of eight bits."""
_FEW_TOKENS = 7
"""Largest number of tokens for which FULLY_CONNECTED computes the product with an adapter."""


class TfliteLowering(Primitives):
    """Lowering for a model whose weights are placeholders.

    Args:
        recipe: How the weights will be stored.
        kernels: Placeholders `(F, E)` of the transposed kernels, by `id` of their variable.
        tables: Placeholders of all variables with their own shape, by `id` of the variable.
        scales: Scales of the channels of products' inputs, by the path of the transposed kernel, which is divided by
            them.
        matrices: Transposed matrices of an adapter, inputs of the function, by the `id` of the variable that they
            replace.
        wide: Paths of kernels whose inputs are rounded to 16 bits instead of eight.
        offsets: Placeholders `(F, blocks)` of what is added to all weights of a block, by `id` of the kernel.
    """

    def __init__(
        self,
        recipe: Recipe,
        kernels: dict[int, Tensor],
        tables: dict[int, Tensor],
        scales: Mapping[str, np.ndarray],
        matrices: dict[int, Tensor] | None = None,
        wide: frozenset[str] = frozenset(),
        offsets: dict[int, Tensor] | None = None,
    ) -> None:
        self.recipe = recipe
        self.kernels = kernels
        self.tables = tables
        self.scales = scales
        self.matrices = {} if matrices is None else matrices
        self.wide = wide
        self.offsets = {} if offsets is None else offsets
        # The first entry of a value keeps the key's object alive, so that its id stays unique.
        self._scaled: dict[tuple[int, bytes], tuple[Tensor, Tensor]] = {}
        self._angles: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor]] = {}
        self._layers = EqualLayers([self.kernels, self.tables, self.matrices, self.offsets], self._storage)

    def layer(self, layer: keras.layers.Layer, x: Tensor, arguments: LayerArguments) -> Tensor | Outputs:
        """Applies a layer, which is traced once for all equal ones."""
        return self._layers.call(layer, x, arguments)

    def _storage(self, variable: keras.Variable) -> Hashable:
        """Returns what the operations of a product depend on beside the variable's shape."""
        forms = [form_of(self.recipe, variable.path, variable.shape, table) for table in (False, True)]
        scale = self.scales.get(variable.path)
        integers = tuple(form.integer for form in forms)
        return integers, None if scale is None else scale.tobytes(), variable.path in self.wide

    def linear(self, x: Tensor, kernel: Weight, bias: Weight | None = None, *, transposed: bool = False) -> Tensor:
        """Computes the product with an output-first weight, which becomes FULLY_CONNECTED."""
        weight = (self.tables if transposed else self.kernels).get(id(kernel))
        if weight is None:
            return super().linear(x, kernel, bias, transposed=transposed)
        ops = keras.ops
        if not transposed and kernel.path in self.scales:
            x = self._scaled_input(x, self.scales[kernel.path])
        rows = ops.reshape(x, (-1, x.shape[-1]))
        form = form_of(self.recipe, kernel.path, weight.shape, table=transposed)
        in_halves = form.integer and kernel.path in self.wide
        y = _product_in_halves(rows, weight) if in_halves else _matmul_transposed(rows, weight)
        if (offsets := self.offsets.get(id(kernel))) is not None:
            blocks = ops.reshape(rows, (-1, offsets.shape[1], x.shape[-1] // offsets.shape[1]))
            y = ops.add(y, _matmul_transposed(ops.sum(blocks, axis=-1), offsets))
        if bias is not None:
            y = ops.add(y, ops.convert_to_tensor(bias))
        return ops.reshape(y, (*_sizes(x.shape[:-1]), weight.shape[0]))

    def adapted_linear(self, x: Tensor, kernel: Weight, bias: Weight | None, low_rank: LowRankProduct) -> Tensor:
        """Adds the product with the matrices of an adapter, in float32; its scale is 1.

        For more than a few tokens, BATCH_MATMUL takes a third of the time of FULLY_CONNECTED, whose fast kernels need
        constant weights; for a single one it takes longer.
        """
        product = x
        for variable in (low_rank.a, low_rank.b):
            weight = self.matrices[id(variable)]
            if len(x.shape) == 3 and x.shape[1] > _FEW_TOKENS:
                product = _matmul_transposed(product, weight[None])
                continue
            rows = keras.ops.reshape(product, (-1, product.shape[-1]))
            product = keras.ops.reshape(_matmul_transposed(rows, weight), (*x.shape[:-1], weight.shape[0]))
        return keras.ops.add(self.linear(x, kernel, bias), product)

    def _scaled_input(self, x: Tensor, scale: np.ndarray) -> Tensor:
        """Returns `x * scale`, once for all products of `x` with this scale."""
        key = id(x), scale.tobytes()
        if key not in self._scaled:
            self._scaled[key] = x, keras.ops.multiply(x, scale)
        return self._scaled[key][1]

    def embedding(self, table: Weight, ids: Tensor) -> Tensor:
        """Looks up rows with flat ids, which becomes GATHER, or EMBEDDING_LOOKUP for a quantized table."""
        weight = self.tables.get(id(table))
        if weight is None:
            return super().embedding(table, ids)
        # Not keras.ops.take, which adds operators for negative ids.
        rows = tensorflow().gather(weight, keras.ops.reshape(ids, (-1,)))
        return keras.ops.reshape(rows, (*_sizes(ids.shape), weight.shape[1]))

    def attention(self, call: HeadAttentionCall) -> tuple[Tensor, Tensor | None]:
        """Computes attention, scaling the query (the smallest tensor) and using the cached keys without a transpose."""
        factor = call.scale if call.softcap is None else call.scale / call.softcap
        scores = _matmul_transposed(call.query if factor == 1.0 else call.query * factor, call.key)
        if call.softcap is not None:
            scores = call.softcap * keras.ops.tanh(scores)
        if call.bias is not None:
            scores = scores + call.bias
        weights = keras.ops.softmax(scores, axis=-1)
        return keras.ops.matmul(weights, call.value), weights

    def lstm(self, x: Tensor, weights: LSTMWeights) -> Tensor:
        """Computes each step by operators of its own.

        The operators for sequences keep their state from one call of a signature to the next, and loops are functions
        that not all delegates run.
        """
        gates = self.linear(x, weights.input_kernel, weights.input_bias) + keras.ops.convert_to_tensor(weights.bias)
        state = memory = None
        states = []
        for sums in keras.ops.unstack(gates, axis=1):
            if state is not None:
                sums = sums + self.linear(state, weights.kernel)
            opened, kept, candidate, shown = keras.ops.split(sums, 4, axis=-1)
            new = keras.ops.sigmoid(opened) * keras.ops.tanh(candidate)
            memory = new if memory is None else keras.ops.sigmoid(kept) * memory + new
            state = keras.ops.sigmoid(shown) * keras.ops.tanh(memory)
            states.append(state)
        return keras.ops.stack(states, axis=1)

    def to_int8(self, x: Tensor) -> Tensor:
        """Converts to int8; `fuse` makes the conversion an operator that rounds and limits."""
        return tensorflow().cast(x, "int8")

    def rotary(self, x: Tensor, cosine: Tensor, sine: Tensor, rotary: Rotary) -> Tensor:
        """Rotates pairs by swapping their entries with a constant matrix product, which is exact and needs 4 operators.

        Slices and their concatenation would need six operators, or nine for a partial rotation.
        """
        size = x.shape[-1]
        key = id(cosine), size
        if key not in self._angles:
            padding = ((0, 0), (0, 0), (0, 0), (0, size - rotary.dim))
            padded = cosine, sine
            if rotary.dim < size:  # entries that are not rotated are multiplied by 1
                padded = keras.ops.pad(cosine, padding, constant_values=1.0), keras.ops.pad(sine, padding)
            # The first entry keeps the key's object alive, so that its id stays unique.
            self._angles[key] = cosine, *padded
        _, cosine, sine = self._angles[key]
        swapped = tensorflow().matmul(x, _swaps(rotary, size))
        return x * cosine + swapped * sine


def _swaps(rotary: Rotary, size: int) -> np.ndarray:
    """Returns the matrix `(D, D)` whose product with a head swaps the entries of each pair and zeroes all others."""
    pairs = np.arange(rotary.dim).reshape((-1, 2) if rotary.interleaved else (2, -1))
    partners = (pairs[:, ::-1] if rotary.interleaved else pairs[::-1]).reshape(-1)
    matrix = np.zeros((size, size), "float32")
    matrix[partners, np.arange(rotary.dim)] = 1.0
    return matrix


def _sizes(shape: Sequence[int | None]) -> tuple[int, ...]:
    """Returns a shape for RESHAPE, in which one size may be unknown."""
    return tuple(-1 if size is None else size for size in shape)


def _product_in_halves(rows: Tensor, weight: Tensor) -> Tensor:
    """Computes `rows @ weight^T` with 16-bit precision of the rows, where kernels for integer weights use 8 bits.

    No kernel of LiteRT multiplies float32 rows with integer weights: they round each row to 256 levels between its
    minimum and maximum. Every row is therefore passed twice: first rounded to exactly these levels, which the kernel
    does not change, then the remainder. The weights are read once for both, and the two results are added.
    """
    tf = tensorflow()
    low = tf.minimum(tf.reduce_min(rows, axis=-1, keepdims=True), 0.0)
    high = tf.maximum(tf.reduce_max(rows, axis=-1, keepdims=True), 0.0)
    step = tf.maximum((high - low) * (1.0 / _STEPS), 1e-20)  # a row of zeros has no levels
    coarse = tf.round(rows / step) * step
    first, second = tf.split(_matmul_transposed(tf.concat([coarse, rows - coarse], axis=0), weight), 2)
    return first + second


def _matmul_transposed(x: Tensor, y: Tensor) -> Tensor:
    """Computes `x @ y^T` in one operation; with keras.ops, the converter might keep a separate transpose."""
    return tensorflow().matmul(x, y, transpose_b=True)


def tensorflow() -> ModuleType:
    """Returns the module `tensorflow`.

    Raises:
        ExportError: Keras runs on another backend.
    """
    if keras.backend.backend() != "tensorflow":
        raise ExportError(
            "Export to TFLite needs the TensorFlow backend of Keras. Received: the backend "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow"
        )
    return require("tensorflow", "export")

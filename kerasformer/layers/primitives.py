"""Operations that runtimes fuse, which an exporter can replace by the operators of its runtime.

Layers call the functions of this module, which use `keras.ops` by default. An exporter subclasses `Primitives`,
overrides the operations for which its runtime has a better operator, and traces the model inside `lowering(...)`: all
architectures benefit, and no patterns have to be matched in a decomposed graph.

Shape letters: `B` batch, `T` query length, `S` key length, `H` query heads, `G` key and value heads, `D` head size, `R`
rotated entries of a head, `E` hidden, `V` vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeAlias

import keras
import numpy as np
from keras import backend, ops

from kerasformer.layers.attention_call import AttentionCall, HeadAttentionCall
from kerasformer.layers.attention_spec import AttentionSpec, Rotary
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.layer_types import LayerArguments, Outputs
from kerasformer.layers.linear_recurrence import linear_recurrence as _linear_recurrence
from kerasformer.layers.tensor import Tensor, in_dtype_of, merge_heads, parts_to_convert, split_heads
from kerasformer.layers.visibility import Visibility

Weight: TypeAlias = keras.Variable | Tensor
"""A variable, or the tensor that takes its place."""


class LowRankProduct(NamedTuple):
    """Low-rank product of an adapted layer, `scale * a @ b`.

    Attributes:
        a: Variable `(E, r)`.
        b: Variable `(r, F)`.
        scale: Factor of the product.
    """

    a: Weight
    b: Weight
    scale: float


class LSTMWeights(NamedTuple):
    """Weights of a long short-term memory.

    The last axis has the input gate, the forget gate, the candidate and the output gate, each of size `H`.

    Attributes:
        input_kernel: Variable `(E, 4 * H)`.
        input_bias: Variable `(4 * H,)`.
        kernel: Variable `(H, 4 * H)` for the last state.
        bias: Variable `(4 * H,)`, which is added, too.
    """

    input_kernel: Weight
    input_bias: Weight
    kernel: Weight
    bias: Weight


class Primitives:
    """The operations in `keras.ops`; the base class of the lowerings of exporters."""

    def layer(self, layer: keras.layers.Layer, x: Tensor, arguments: LayerArguments) -> Tensor | Outputs:
        """Applies a layer of a stack: `layer(x, **arguments)`."""
        return layer(x, **arguments)

    def linear(self, x: Tensor, kernel: Weight, bias: Tensor | None = None, *, transposed: bool = False) -> Tensor:
        """`x @ kernel + bias`.

        Args:
            x: `(..., E)`.
            kernel: Variable `(E, F)`, or `(F, E)` if `transposed`; a variable and not a tensor, so that a lowering can
                identify the weight and store it in another format.
            bias: Variable `(F,)` or `None`.
            transposed: Whether the kernel is `(F, E)`, as an embedding table that is tied to the output.
        """
        weight, axis = ops.convert_to_tensor(kernel), 0 if transposed else 1
        # A product of matrices; for other shapes, TensorFlow would add a dozen operations to the graph.
        *outer, size = ops.shape(x)
        rows = ops.reshape(x, (-1, size))
        products: list[Tensor] = []
        for part in parts_to_convert(x, weight, axis):
            matrix = in_dtype_of(products[-1] if products else x, weight, part)
            products.append(ops.matmul(rows, ops.transpose(matrix) if transposed else matrix))
        y = products[0] if len(products) == 1 else ops.concatenate(products, axis=-1)
        y = ops.reshape(y, (*outer, weight.shape[axis]))
        return y if bias is None else ops.add(y, bias)

    def adapted_linear(self, x: Tensor, kernel: Weight, bias: Tensor | None, low_rank: LowRankProduct) -> Tensor:
        """`x @ kernel + bias + scale * x @ a @ b`; arguments as for `linear`, with a kernel `(E, F)`."""
        product = ops.matmul(ops.matmul(x, low_rank.a), low_rank.b)
        return self.linear(x, kernel, bias) + (product if low_rank.scale == 1 else low_rank.scale * product)

    def embedding(self, table: Weight, ids: Tensor) -> Tensor:
        """Looks up the rows `ids` `(...)` of the variable `table` `(V, E)`: `(..., E)`."""
        return ops.take(table, ids, axis=0)

    def residual(self, x: Tensor, y: Tensor) -> Tensor:
        """`x + y`: adds the output `y` of a sublayer to its input `x`, both `(..., E)`."""
        return x + y

    def layer_norm(self, x: Tensor, scale: Weight | None, bias: Tensor | None, epsilon: float) -> Tensor:
        """Normalizes the last axis to mean 0 and variance 1, computed in float32 (Ba et al. 2016, arXiv:1607.06450)."""
        x32 = ops.cast(x, "float32")
        centered = x32 - ops.mean(x32, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        y = centered * ops.rsqrt(variance + epsilon)
        y = ops.cast(y, x.dtype)
        y = y if scale is None else y * ops.convert_to_tensor(scale)
        return y if bias is None else y + ops.convert_to_tensor(bias)

    def rms_norm(self, x: Tensor, scale: Weight, epsilon: float) -> Tensor:
        """Divides by the root mean square of the last axis, in float32 (Zhang and Sennrich 2019, arXiv:1910.07467)."""
        x32 = ops.cast(x, "float32")
        y = x32 * ops.rsqrt(ops.mean(ops.square(x32), axis=-1, keepdims=True) + epsilon)
        return ops.cast(y, x.dtype) * ops.convert_to_tensor(scale)

    def gelu(self, x: Tensor, *, approximate: bool) -> Tensor:
        """Gaussian error linear unit, exact or with the tanh approximation (Hendrycks and Gimpel, arXiv:1606.08415)."""
        if approximate:
            return ops.gelu(x, approximate=True)
        # Not `ops.gelu`, whose exact form is `Erfc` in TensorFlow, which converters do not support.
        return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))

    def multi_head_attention(self, call: AttentionCall) -> tuple[Tensor, Tensor | None, LayerCache | None]:
        """Multi-head attention: splits the heads, attends with each, and joins the results.

        Returns:
            `(context (B, T, H * D), weights (B, H, T, S) or None, updated cache or None)`.

        Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2.
        """
        spec, visibility, cache = call.spec, call.visibility, call.cache
        length = ops.shape(call.query)[1]
        queries = split_heads(call.query, spec.head_dim)
        keys, values = (None if x is None else split_heads(x, spec.head_dim) for x in (call.key, call.value))
        if spec.rotary is not None:
            cosine, sine = visibility.angles(spec.rotary, length)
            queries = self.rotary(queries, cosine, sine, spec.rotary)
            keys = None if keys is None else self.rotary(keys, cosine, sine, spec.rotary)
        scales = None if cache is None else cache.scales
        if scales is not None:
            # Multiplying the queries takes less time than multiplying all keys of the cache.
            queries = queries * np.repeat(scales.key, spec.group_size, axis=0)
            pairs = (keys, scales.key), (values, scales.value)
            keys, values = (None if x is None else self.to_int8(x * (1 / scale)) for x, scale in pairs)

        def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
            if scales is not None:
                key, value = self.from_int8(key, query.dtype), self.from_int8(value, query.dtype)
            if spec.float32_scores:
                query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
            further = spec.scale, spec.softcap, call.dropout
            if spec.group_size == 1:
                return self.attention(HeadAttentionCall(query, key, value, bias, *further))
            # The queries of a group become one sequence, so that keys and values need not be repeated.
            batch, size = ops.shape(query)[0], spec.num_key_value_heads
            query = ops.reshape(query, (batch, size, spec.group_size * length, spec.head_dim))
            context, weights = self.attention(HeadAttentionCall(query, key, value, bias, *further))
            context = ops.reshape(context, (batch, spec.num_heads, length, spec.head_dim))
            if weights is not None:
                weights = ops.reshape(weights, (batch, spec.num_heads, length, ops.shape(weights)[-1]))
            return context, weights

        grouped = None if spec.group_size == 1 else (spec.group_size, length)
        dtype = "float32" if spec.float32_scores else backend.standardize_dtype(call.query.dtype)
        slots = None if cache is None else cache.key_slots(length)
        bias = visibility.bias(dtype, spec.window, grouped, slots)
        if cache is None:
            context, weights = attend(queries, keys, values, bias)
        else:
            context, weights, cache = cache.attend(attend, queries, keys, values, bias)
        if scales is not None:
            context = context * np.repeat(scales.value, spec.group_size, axis=0)
        return merge_heads(context), weights, cache

    def attention(self, call: HeadAttentionCall) -> tuple[Tensor, Tensor | None]:
        """Scaled dot-product attention.

        Returns:
            `(context (B, H, T, D), weights (B, H, T, S))`; a fused operator returns `None` for the weights, unless
            `needs_weights()`.

        Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
        """
        scores = ops.matmul(call.query, ops.transpose(call.key, (0, 1, 3, 2)))
        if call.scale != 1.0:
            scores = scores * call.scale
        if call.softcap is not None:
            scores = call.softcap * ops.tanh(scores / call.softcap)
        if call.bias is not None:
            # The same sum by a subtraction: TensorFlow replaces a product, a scale and the sum with a constant, such as
            # a causal mask, by a single operation of oneDNN, which takes many times as long on CPUs.
            scores = scores - (-ops.cast(call.bias, scores.dtype))
        scores = ops.cast(scores, "float32")
        # A single key has weight 1; Keras warns about a softmax over an axis of size 1.
        weights = ops.exp(scores - scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)
        weights = ops.cast(weights, call.value.dtype)
        return ops.matmul(weights if call.dropout is None else call.dropout(weights), call.value), weights

    def lstm(self, x: Tensor, weights: LSTMWeights) -> Tensor:
        """Long short-term memory that starts with a state of zeros: the states `(B, T, H)` for `x` `(B, T, E)`."""
        gates = self.linear(x, weights.input_kernel, weights.input_bias)
        matrix, offset = (in_dtype_of(gates, ops.convert_to_tensor(each)) for each in (weights.kernel, weights.bias))
        size = matrix.shape[0]

        # State and memory are one tensor: on TensorFlow, Keras scans only with results that have the form of the carry.
        def step(carry: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
            sums = inputs + ops.matmul(carry[:, :size], matrix) + offset
            opened, kept, candidate, shown = ops.split(sums, 4, axis=-1)
            memory = ops.sigmoid(kept) * carry[:, size:] + ops.sigmoid(opened) * ops.tanh(candidate)
            carry = ops.concatenate([ops.sigmoid(shown) * ops.tanh(memory), memory], axis=-1)
            return carry, carry

        start = ops.zeros_like(gates[:, 0, : 2 * size])
        _, states = ops.scan(step, start, ops.transpose(gates, (1, 0, 2)))
        return ops.transpose(states, (1, 0, 2))[..., :size]

    def linear_recurrence(
        self, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, rate: Tensor | None, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A linear recurrence over tokens; arguments and results as of `linear_recurrence.linear_recurrence`."""
        return _linear_recurrence(query, key, value, decay, rate, state)

    def to_int8(self, x: Tensor) -> Tensor:
        """Rounds to the nearest int8; numbers beyond ±127 become ±127."""
        return ops.cast(ops.clip(ops.round(x), -127, 127), "int8")

    def from_int8(self, x: Tensor, dtype: str) -> Tensor:
        """Converts int8 to another data type."""
        return ops.cast(x, dtype)

    def rotary(self, x: Tensor, cosine: Tensor, sine: Tensor, rotary: Rotary) -> Tensor:
        """Rotates the first `R` entries of each head `(B, H, T, D)`.

        Args:
            x: Queries or keys.
            cosine: Cosines `(B or 1, 1, T, R)`, see `Rotary.angles`.
            sine: Signed sines, likewise.
            rotary: Description of the rotation.

        Reference: Su et al. 2021, arXiv:2104.09864.
        """
        rotated, rest = x, None
        if rotary.dim < x.shape[-1]:
            rotated, rest = x[..., : rotary.dim], x[..., rotary.dim :]
        if rotary.interleaved:
            pairs = ops.reshape(rotated, (*ops.shape(rotated)[:-1], rotary.dim // 2, 2))
            swapped = ops.reshape(ops.flip(pairs, axis=-1), ops.shape(rotated))
        else:
            half = rotary.dim // 2
            swapped = ops.concatenate([rotated[..., half:], rotated[..., :half]], axis=-1)
        rotated = rotated * ops.cast(cosine, x.dtype) + swapped * ops.cast(sine, x.dtype)
        return rotated if rest is None else ops.concatenate([rotated, rest], axis=-1)


_default = Primitives()
_active: ContextVar[Primitives] = ContextVar("kerasformer_primitives", default=_default)


@contextmanager
def lowering(primitives: Primitives) -> Iterator[None]:
    """Context in which all layers use `primitives`."""
    token = _active.set(primitives)
    try:
        yield
    finally:
        _active.reset(token)


def is_lowered() -> bool:
    """Returns whether a context of `lowering` is active."""
    return _active.get() is not _default


_needs_weights: ContextVar[bool] = ContextVar("kerasformer_needs_weights", default=False)


@contextmanager
def weights_needed() -> Iterator[None]:
    """Context in which attention returns its weights, so that fused operators, which have none, are not used."""
    token = _needs_weights.set(True)
    try:
        yield
    finally:
        _needs_weights.reset(token)


def needs_weights() -> bool:
    """Returns whether attention must return its weights; a lowering then computes them with plain operators."""
    return _needs_weights.get()


def layer(layer: keras.layers.Layer, x: Tensor, arguments: LayerArguments) -> Tensor | Outputs:
    """See `Primitives.layer`."""
    return _active.get().layer(layer, x, arguments)


def linear(
    x: Tensor,
    kernel: Weight,
    bias: Tensor | None = None,
    *,
    transposed: bool = False,
    low_rank: LowRankProduct | None = None,
) -> Tensor:
    """See `Primitives.linear`, and with a low-rank product `Primitives.adapted_linear`."""
    if low_rank is not None:
        return _active.get().adapted_linear(x, kernel, bias, low_rank)
    return _active.get().linear(x, kernel, bias, transposed=transposed)


def embedding(table: Weight, ids: Tensor) -> Tensor:
    """See `Primitives.embedding`."""
    return _active.get().embedding(table, ids)


def residual(x: Tensor, y: Tensor) -> Tensor:
    """See `Primitives.residual`."""
    return _active.get().residual(x, y)


def layer_norm(x: Tensor, scale: Weight | None, bias: Tensor | None, epsilon: float) -> Tensor:
    """See `Primitives.layer_norm`."""
    return _active.get().layer_norm(x, scale, bias, epsilon)


def rms_norm(x: Tensor, scale: Weight, epsilon: float) -> Tensor:
    """See `Primitives.rms_norm`."""
    return _active.get().rms_norm(x, scale, epsilon)


def gelu(x: Tensor, *, approximate: bool = False) -> Tensor:
    """See `Primitives.gelu`."""
    return _active.get().gelu(x, approximate=approximate)


def multi_head_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    spec: AttentionSpec,
    visibility: Visibility,
    cache: LayerCache | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None, LayerCache | None]:
    """Multi-head attention; arguments as in `AttentionCall`, results as of `Primitives.multi_head_attention`."""
    call = AttentionCall(query, key, value, spec, visibility, cache, dropout)
    return _active.get().multi_head_attention(call)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    softcap: float | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention; arguments as in `HeadAttentionCall`, results as of `Primitives.attention`."""
    return _active.get().attention(HeadAttentionCall(query, key, value, bias, scale, softcap, dropout))


def lstm(x: Tensor, weights: LSTMWeights) -> Tensor:
    """See `Primitives.lstm`."""
    return _active.get().lstm(x, weights)


def linear_recurrence(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, rate: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """See `Primitives.linear_recurrence`."""
    return _active.get().linear_recurrence(query, key, value, decay, rate, state)


def rotary(x: Tensor, cosine: Tensor, sine: Tensor, rotary: Rotary) -> Tensor:
    """See `Primitives.rotary`."""
    return _active.get().rotary(x, cosine, sine, rotary)

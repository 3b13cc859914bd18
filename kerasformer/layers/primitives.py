"""The operations that runtimes fuse, in one place, so that an exporter can lower each of them its own way.

Layers call the functions of this file. Normally they are plain `keras.ops`. An exporter subclasses `Primitives`,
overrides what its runtime has a better operator for, and traces the model inside `lowering(...)`: every
architecture inherits the better operator, and no pattern has to be found in a decomposed graph afterwards.

Shape letters: `B` batch, `T` query length, `S` key length, `H` heads, `D` head size, `E` hidden, `V` vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from keras import backend, ops

if TYPE_CHECKING:
    from kerasformer.layers.cache import LayerCache

Tensor = Any
"""A tensor of the active Keras backend."""


class Primitives:
    """The primitives in `keras.ops`; the base of every exporter's own lowering."""

    def linear(self, x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
        """`x @ kernel + bias`.

        Args:
            x: `(..., E)`.
            kernel: Variable `(E, F)`, or `(F, E)` if `transposed`. It is given as a variable, not as a tensor, so that
                a lowering knows which weight it sees and can store it its own way.
            bias: Variable `(F,)` or `None`.
            transposed: The kernel is stored output-first, as an embedding table that is tied to the output is.
        """
        weight = ops.convert_to_tensor(kernel)
        y = ops.matmul(x, ops.transpose(weight) if transposed else weight)
        return y if bias is None else ops.add(y, bias)

    def embedding(self, table: Any, ids: Tensor) -> Tensor:
        """Rows `ids` `(...)` of the variable `table` `(V, E)`: `(..., E)`."""
        return ops.take(table, ids, axis=0)

    def residual(self, x: Tensor, y: Tensor) -> Tensor:
        """`x + y`: what a part of a layer gives, `y`, on top of what went into it, both `(..., E)`."""
        return x + y

    def layer_norm(self, x: Tensor, scale: Any, bias: Any, epsilon: float) -> Tensor:
        """Normalizes the last axis to mean 0 and variance 1, computed in float32 (Ba et al. 2016, arXiv:1607.06450)."""
        wide = ops.cast(x, "float32")
        centered = wide - ops.mean(wide, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        y = centered * ops.rsqrt(variance + epsilon)
        return ops.cast(y, x.dtype) * ops.convert_to_tensor(scale) + ops.convert_to_tensor(bias)

    def rms_norm(self, x: Tensor, scale: Any, epsilon: float) -> Tensor:
        """Divides by the root mean square of the last axis, in float32 (Zhang and Sennrich 2019, arXiv:1910.07467)."""
        wide = ops.cast(x, "float32")
        y = wide * ops.rsqrt(ops.mean(ops.square(wide), axis=-1, keepdims=True) + epsilon)
        return ops.cast(y, x.dtype) * ops.convert_to_tensor(scale)

    def gelu(self, x: Tensor, *, approximate: bool) -> Tensor:
        """Gaussian error linear unit, exact or with the tanh approximation (Hendrycks and Gimpel, arXiv:1606.08415)."""
        if approximate:
            return ops.gelu(x, approximate=True)
        # Not keras' own exact form: that becomes Erfc in TensorFlow, which converters do not know.
        return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))

    def multi_head_attention(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        bias: Tensor | None,
        scale: float,
        num_heads: int,
        cache: LayerCache | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        dropout: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None, LayerCache | None]:
        """Attention of several heads that lie side by side: splits them, attends with each, joins what they give.

        Args:
            query: `(B, T, H * D)`.
            key: `(B, T', G * D)`; a group of `H / G` query heads shares one. `None` if the cache is complete.
            value: Likewise.
            bias: Added to the scores, broadcastable to `(B, H, T, S)`.
            scale: Factor of the scores.
            num_heads: `H`.
            cache: Earlier keys and values `(B, G, S', D)`, to which these are added, or `None`.
            rotary: `(cos, sin)` for the places of query and key, `(B, 1, T, D)` each, or `None`.
            dropout: Applied to the weights; given in training only.

        Returns:
            `(context (B, T, H * D), weights (B, H, T, S) or None, updated cache or None)`.

        Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2.
        """
        head_dim = query.shape[-1] // num_heads
        queries = split_heads(query, head_dim)
        if rotary is not None:
            queries = self.rotary(queries, *rotary)
        keys, values = (None if x is None else split_heads(x, head_dim) for x in (key, value))
        if keys is not None and rotary is not None:
            keys = self.rotary(keys, *rotary)

        def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
            times = num_heads // key.shape[1]
            if times > 1:  # gives every query head the keys and values of its group
                key, value = ops.repeat(key, times, axis=1), ops.repeat(value, times, axis=1)
            return self.attention(query, key, value, bias, scale, dropout)

        if cache is None:
            context, weights = attend(queries, keys, values, bias)
        else:
            context, weights, cache = cache.attend(attend, queries, keys, values, bias)
        return merge_heads(context), weights, cache

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
        dropout: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Scaled dot-product attention.

        Args:
            query: `(B, H, T, D)`.
            key: `(B, H, S, D)`.
            value: `(B, H, S, D)`.
            bias: Added to the scores, broadcastable to `(B, H, T, S)`; a large negative number where not to look.
            scale: Factor of the scores, usually `1 / sqrt(D)`.
            dropout: Applied to the weights; given in training only.

        Returns:
            `(context (B, H, T, D), weights (B, H, T, S))`; a fused lowering has no weights to give: `None`.

        Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
        """
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        if scale != 1.0:
            scores = scores * scale
        if bias is not None:
            scores = scores + ops.cast(bias, scores.dtype)
        wide = ops.cast(scores, "float32")
        # A key that stands alone has weight 1; Keras warns of a softmax over one number.
        weights = ops.exp(wide - wide) if wide.shape[-1] == 1 else ops.softmax(wide, axis=-1)
        weights = ops.cast(weights, value.dtype)
        return ops.matmul(weights if dropout is None else dropout(weights), value), weights

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotates the pairs `(x[i], x[i + D/2])` of `(B, H, T, D)` by angles given as `(B, 1, T, D)` cosines and sines.

        Reference: Su et al. 2021, arXiv:2104.09864, in the half-split order of GPT-NeoX.
        """
        half = x.shape[-1] // 2
        turned = ops.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return x * ops.cast(cos, x.dtype) + turned * ops.cast(sin, x.dtype)


_plain = Primitives()
_active: ContextVar[Primitives] = ContextVar("kerasformer_primitives", default=_plain)


@contextmanager
def lowering(primitives: Primitives) -> Iterator[None]:
    """Within this context all layers use `primitives`."""
    token = _active.set(primitives)
    try:
        yield
    finally:
        _active.reset(token)


def linear(x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
    """See `Primitives.linear`."""
    return _active.get().linear(x, kernel, bias, transposed=transposed)


def embedding(table: Any, ids: Tensor) -> Tensor:
    """See `Primitives.embedding`."""
    return _active.get().embedding(table, ids)


def residual(x: Tensor, y: Tensor) -> Tensor:
    """See `Primitives.residual`."""
    return _active.get().residual(x, y)


def layer_norm(x: Tensor, scale: Any, bias: Any, epsilon: float) -> Tensor:
    """See `Primitives.layer_norm`."""
    return _active.get().layer_norm(x, scale, bias, epsilon)


def rms_norm(x: Tensor, scale: Any, epsilon: float) -> Tensor:
    """See `Primitives.rms_norm`."""
    return _active.get().rms_norm(x, scale, epsilon)


def gelu(x: Tensor, *, approximate: bool = False) -> Tensor:
    """See `Primitives.gelu`."""
    return _active.get().gelu(x, approximate=approximate)


def multi_head_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    bias: Tensor | None,
    scale: float,
    num_heads: int,
    cache: LayerCache | None = None,
    rotary: tuple[Tensor, Tensor] | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None, LayerCache | None]:
    """See `Primitives.multi_head_attention`."""
    return _active.get().multi_head_attention(query, key, value, bias, scale, num_heads, cache, rotary, dropout)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """See `Primitives.attention`."""
    return _active.get().attention(query, key, value, bias, scale, dropout)


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """See `Primitives.rotary`."""
    return _active.get().rotary(x, cos, sin)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """`(B, T, H * D)` to `(B, H, T, D)`."""
    batch, length = ops.shape(x)[:2]
    return ops.transpose(ops.reshape(x, (batch, length, x.shape[-1] // head_dim, head_dim)), (0, 2, 1, 3))


def merge_heads(x: Tensor) -> Tensor:
    """`(B, H, T, D)` to `(B, T, H * D)`."""
    batch, heads, length, head_dim = ops.shape(x)
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch, length, heads * head_dim))


def mask_to_bias(mask: Tensor, dtype: str | None = None) -> Tensor:
    """Turns a boolean mask (`True` attends) into what `attention` adds to its scores: 0 or a large negative number.

    The number stays finite so that a row that may look nowhere gives equal weights rather than NaN.
    """
    dtype = dtype or backend.floatx()
    return (1.0 - ops.cast(mask, dtype)) * (-3e4 if dtype == "float16" else -1e9)

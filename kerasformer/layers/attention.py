"""Attention: the bare function, one head, and many heads with an optional cache."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import backend, ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.core import PACKAGE, Composite, Dense, Dropout, build_once, packed
from kerasformer.layers.positions import RotaryAngles
from kerasformer.layers.primitives import Tensor, mask_to_bias, split_heads


def causal_mask(query_length: Any, key_length: Any = None) -> Tensor:
    """Boolean `(1, 1, T, S)`: a query sees the keys up to its own place; the last query is level with the last key.

    With `T = 2`, `S = 3` (one token is in the cache already) the rows are `1 1 0` and `1 1 1`.
    """
    key_length = query_length if key_length is None else key_length
    query = ops.arange(query_length, dtype="int32") + (key_length - query_length)
    key = ops.arange(key_length, dtype="int32")
    return ops.reshape(key, (1, 1, 1, -1)) <= ops.reshape(query, (1, 1, -1, 1))


def padding_mask(attention_mask: Tensor) -> Tensor:
    """`(B, S)` with 1 for real tokens to boolean `(B, 1, 1, S)`."""
    shape = ops.shape(attention_mask)
    return ops.reshape(ops.cast(attention_mask, "int32"), (shape[0], 1, 1, shape[1])) > 0


def head_mask(mask: Tensor, batch: int | None = None, keys: int | None = None) -> Tensor:
    """A mask with an axis for the heads, from one of the three forms that layers take.

    Args:
        mask: `(B, S)`, 1 for real tokens, as tokenizers give it; `(B, T, S)`; or `(B, H, T, S)`. Axes may be 1.
        batch: `B`, if it is known.
        keys: `S`, if it is known.

    Returns:
        A tensor broadcastable to `(B, H, T, S)`.

    Raises:
        InputError: another number of axes, or two axes that are not `(B, S)`.
    """
    shape = tuple(mask.shape)
    if len(shape) not in (2, 3, 4):
        raise InputError(
            "attention_mask must be (B, S) for padding, (B, T, S), or (B, H, T, S), where an axis may be 1. "
            f"Received: shape {shape}"
        )
    if len(shape) == 4:
        return mask
    if len(shape) == 3:
        return ops.expand_dims(mask, 1)
    if any(
        axis not in (None, 1, known) and known is not None for axis, known in zip(shape, (batch, keys), strict=True)
    ):
        raise InputError(
            "An attention_mask of two axes is (B, S), with 1 for real tokens; a mask of queries and keys is (1, T, S). "
            f"Expected: ({batch}, {keys}). Received: shape {shape}"
        )
    return padding_mask(mask)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor | None]:
    """Each query's average of the values, weighted by the softmax of its scaled products with the keys.

    Args:
        query: `(B, H, T, D)`.
        key: `(B, H, S, D)`.
        value: `(B, H, S, D)`.
        mask: Boolean, broadcastable to `(B, H, T, S)`; `True` attends.
        scale: Factor of the products; `1 / sqrt(D)` by default.

    Returns:
        `(context (B, H, T, D), weights (B, H, T, S))`.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
    """
    bias = None if mask is None else mask_to_bias(mask, backend.standardize_dtype(query.dtype))
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    return primitives.attention(query, key, value, bias, scale)


@keras.saving.register_keras_serializable(PACKAGE)
class AttentionHead(Composite):
    """One attention head, as textbooks write it: three projections and a scaled dot product.

    Args:
        head_dim: Size `D` of queries, keys and values.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 attends: `(B, T)` for padding, or `(B, T, T)`, of which axes may be 1.
        return_attention: Gives a dictionary of `output` and `attention` `(B, T, T)`.

    Returns:
        `(B, T, D)`.
    """

    def __init__(self, head_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.head_dim = head_dim
        self.query = Dense(head_dim, name="query", dtype=self.dtype_policy)
        self.key = Dense(head_dim, name="key", dtype=self.dtype_policy)
        self.value = Dense(head_dim, name="value", dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        for layer in (self.query, self.key, self.value):
            build_once(layer, input_shape)

    def call(self, x: Tensor, attention_mask: Tensor | None = None, return_attention: bool = False) -> Any:
        """Applies the head."""
        query, key, value = (ops.expand_dims(layer(x), 1) for layer in (self.query, self.key, self.value))
        mask = None if attention_mask is None else head_mask(attention_mask, *x.shape[:2])
        output, weights = (ops.squeeze(y, 1) for y in scaled_dot_product_attention(query, key, value, mask))
        return packed(output, return_attention, attention=weights)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """`(B, T, E)` to `(B, T, D)`."""
        return (*input_shape[:-1], self.head_dim)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "head_dim": self.head_dim}


@keras.saving.register_keras_serializable(PACKAGE)
class MultiHeadAttention(Composite):
    """Scaled dot-product attention over several heads, with an optional cache.

    Args:
        num_heads: Attention heads; must divide `hidden_dim` unless `head_dim` is given.
        hidden_dim: Size `E` of the result.
        head_dim: Size `D` of one head; `hidden_dim / num_heads` by default.
        num_key_value_heads: Heads of keys and values, each shared by a group of query heads (1: multi-query).
        use_bias: Queries, keys and values have a bias.
        output_bias: The output projection has one; `use_bias` by default.
        scale: Factor of the scores; `1 / sqrt(head_dim)` by default.
        dropout: Rate for the attention weights, in training.
        kernel_initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        query: `(B, T, E)`.
        key_value: `(B, S, E')` to attend to (cross attention); `query` itself by default.
        attention_mask: `True` or 1 attends: `(B, S)` for padding, `(B, T, S)` or `(B, H, T, S)`; axes may be 1.
        bias: Float, added to the scores; a stack of layers turns its mask into one once.
        cache: `LayerCache` of `(B, H, S, D)` keys and values, or `None`.
        rotary: `(cos, sin)` of `RotaryEmbedding` for the places of `query`, or `None`.
        return_attention: Gives a dictionary of `output` and `attention`, the weights `(B, H, T, S)`.
        return_cache: Likewise with `cache`, the updated one.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: `num_heads` does not divide `hidden_dim`, `num_key_value_heads` does not divide `num_heads`, or a
            mask of another shape.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.2; grouped heads: Ainslie et al. 2023, arXiv:2305.13245.
    """

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        use_bias: bool = True,
        output_bias: bool | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_heads < 1 or (head_dim is None and hidden_dim % num_heads):
            raise InputError(
                "num_heads must be positive and divide hidden_dim. "
                f"Received: num_heads={num_heads}, hidden_dim={hidden_dim}"
            )
        groups = num_heads if num_key_value_heads is None else num_key_value_heads
        if groups < 1 or num_heads % groups:
            raise InputError(
                "num_key_value_heads must divide num_heads. "
                f"Received: num_key_value_heads={num_key_value_heads}, num_heads={num_heads}"
            )
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.head_dim = hidden_dim // num_heads if head_dim is None else head_dim
        self.num_key_value_heads = groups
        self.use_bias = use_bias
        self.output_bias = use_bias if output_bias is None else output_bias
        self.scale = 1.0 / math.sqrt(self.head_dim) if scale is None else scale
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query = self._dense(num_heads * self.head_dim, use_bias, "query")
        self.key = self._dense(groups * self.head_dim, use_bias, "key")
        self.value = self._dense(groups * self.head_dim, use_bias, "value")
        self.output_dense = self._dense(hidden_dim, self.output_bias, "output")
        self.weights_dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def _dense(self, units: int, use_bias: bool, name: str) -> Dense:
        initializer = keras.initializers.get(keras.initializers.serialize(self.kernel_initializer))
        return Dense(units, use_bias, kernel_initializer=initializer, name=name, dtype=self.dtype_policy)

    def build(self, query_shape: tuple[int | None, ...], key_value_shape: Any = None) -> None:
        """Creates the weights for `(B, T, E)` queries and `(B, S, E')` keys and values."""
        build_once(self.query, query_shape)
        build_once(self.key, key_value_shape or query_shape)
        build_once(self.value, key_value_shape or query_shape)
        build_once(self.output_dense, (None, None, self.num_heads * self.head_dim))

    def call(
        self,
        query: Tensor,
        key_value: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        cache: LayerCache | None = None,
        rotary: RotaryAngles | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Any:
        """Applies the layer."""
        if attention_mask is not None:
            keys = None if cache is not None else (query if key_value is None else key_value).shape[1]
            mask = head_mask(attention_mask, query.shape[0], keys)
            masked = mask_to_bias(mask, backend.standardize_dtype(query.dtype))
            bias = masked if bias is None else ops.cast(bias, query.dtype) + masked
        projected: tuple[Tensor | None, Tensor | None] = (None, None)
        if cache is None or not cache.complete:
            memory = query if key_value is None else key_value
            projected = self.key(memory), self.value(memory)
        context, weights, cache = primitives.multi_head_attention(
            self.query(query),
            *projected,
            bias,
            self.scale,
            self.num_heads,
            cache,
            rotary,
            self._drop if training and self.dropout else None,
        )
        return packed(
            self.output_dense(context),
            return_attention or return_cache,
            attention=weights if return_attention else None,
            cache=cache if return_cache else None,
        )

    def compute_output_shape(self, query_shape: tuple[int | None, ...], key_value_shape: Any = None) -> Any:  # type: ignore[override]
        """`(B, T, E')` to `(B, T, E)`."""
        return (*query_shape[:-1], self.hidden_dim)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values `(B, H, S, D)` of `(B, S, E')`: what a cache holds."""
        return split_heads(self.key(x), self.head_dim), split_heads(self.value(x), self.head_dim)

    def _drop(self, weights: Tensor) -> Tensor:
        return self.weights_dropout(weights, training=True)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        names = ("num_heads", "hidden_dim", "head_dim", "num_key_value_heads", "use_bias", "output_bias", "scale")
        own = {name: getattr(self, name) for name in (*names, "dropout")}
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return {**super().get_config(), **own, "kernel_initializer": initializer}

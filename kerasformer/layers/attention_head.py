"""Scaled dot-product attention as a function, and a layer with a single head."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import backend, ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.core import PACKAGE, Composite, Configured, Dense, build_once, packed
from kerasformer.layers.layer_types import LayerOptions, Outputs
from kerasformer.layers.masks import head_mask, mask_to_bias
from kerasformer.layers.tensor import Tensor


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor | None]:
    """Computes scaled dot-product attention, `softmax(scale * query @ key^T) @ value`.

    Args:
        query: `(B, H, T, D)`; or without heads, `(B, T, D)`, or a single text `(T, D)`.
        key: `(B, H, S, D)`, with as many axes as the query.
        value: `(B, H, S, D)`, likewise.
        mask: Boolean, broadcastable to `(B, H, T, S)`, or without heads to `(B, T, S)`; `True` attends.
        scale: Factor of the scores; `1 / sqrt(D)` by default.

    Returns:
        `(context (B, H, T, D), weights (B, H, T, S))`, with as many axes as the query.

    Raises:
        InputError: the tensors have another number of axes, or different ones.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
    """
    axes = len(query.shape)
    if axes not in (2, 3, 4) or not axes == len(key.shape) == len(value.shape):
        raise InputError(
            "query, key and value must have the same number of axes: (B, H, T, D), (B, T, D) or (T, D). "
            f"Received: {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        )
    if axes < 4:
        query, key, value = (ops.expand_dims(x, 1 if axes == 3 else 0) for x in (query, key, value))
        mask = mask if mask is None or len(mask.shape) < 3 else ops.expand_dims(mask, 1)
        results = scaled_dot_product_attention(query, key, value, mask, scale)
        context, weights = (ops.squeeze(x, 1 if axes == 3 else 0) for x in results)
        return context, weights
    bias = None if mask is None else mask_to_bias(mask, backend.standardize_dtype(query.dtype))
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    return primitives.attention(query, key, value, bias, scale)


@keras.saving.register_keras_serializable(PACKAGE)
class AttentionHead(Configured, Composite):
    """A single attention head: three projections and scaled dot-product attention.

    Args:
        head_dim: Size `D` of queries, keys and values.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 attends: `(B, T)` for padding, or `(B, T, T)`, where axes may have size 1.
        return_attention: Returns a dictionary of `output` and `attention`, the weights `(B, T, T)`.

    Returns:
        `(B, T, D)`.
    """

    def __init__(self, head_dim: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.head_dim = head_dim
        self.query = Dense(head_dim, name="query", dtype=self.dtype_policy)
        self.key = Dense(head_dim, name="key", dtype=self.dtype_policy)
        self.value = Dense(head_dim, name="value", dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        for layer in (self.query, self.key, self.value):
            build_once(layer, input_shape)

    def call(self, x: Tensor, attention_mask: Tensor | None = None, return_attention: bool = False) -> Tensor | Outputs:
        """Applies the head."""
        query, key, value = (ops.expand_dims(layer(x), 1) for layer in (self.query, self.key, self.value))
        mask = None if attention_mask is None else head_mask(attention_mask, *x.shape[:2])
        output, weights = (ops.squeeze(y, 1) for y in scaled_dot_product_attention(query, key, value, mask))
        return packed(output, return_attention, attention=weights)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to `(B, T, D)`."""
        return (*input_shape[:-1], self.head_dim)

"""The tensor type, and reshapes between hidden vectors and heads."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any
"""A tensor of the active Keras backend."""


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits `(B, T, H * D)` into heads `(B, H, T, D)`."""
    batch, length = ops.shape(x)[:2]
    return ops.transpose(ops.reshape(x, (batch, length, x.shape[-1] // head_dim, head_dim)), (0, 2, 1, 3))


def merge_heads(x: Tensor) -> Tensor:
    """Merges heads `(B, H, T, D)` into `(B, T, H * D)`."""
    batch, heads, length, head_dim = ops.shape(x)
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch, length, heads * head_dim))

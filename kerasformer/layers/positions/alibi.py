"""Attention with linear biases (ALiBi)."""

from __future__ import annotations

import math

import numpy as np
from keras import ops

from kerasformer.layers.masks import slot_rows
from kerasformer.layers.tensor import Tensor


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Returns the slope of each head, a geometric sequence.

    If `num_heads` is not a power of two, part of the next finer sequence is appended.

    Reference: Press et al. 2022, arXiv:2108.12409, and its published code.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = 2.0 ** (-8.0 / power * np.arange(1, power + 1))
    if power < num_heads:
        extra = 2.0 ** (-4.0 / power * np.arange(1, 2 * (num_heads - power), 2))
        slopes = np.concatenate([slopes, extra])
    return slopes.astype("float32")


def alibi_bias(num_heads: int, query_slots: Tensor, key_slots: Tensor, slopes: np.ndarray | None = None) -> Tensor:
    """Returns the bias `-slope * distance` of all pairs of tokens, float32 `(B or 1, H, T, S)`.

    Args:
        num_heads: Number of heads `H`.
        query_slots: Slots of the queries, integers `(T,)` or `(B, T)`. Padding on the left shifts queries and keys
            alike, so that distances do not change.
        key_slots: Slots of the keys, integers `(S,)` or `(B, S)`.
        slopes: Slope of each head, float32 `(H,)`; those of `alibi_slopes` by default.
    """
    distance = slot_rows(key_slots, -2) - slot_rows(query_slots, -1)
    slopes = alibi_slopes(num_heads) if slopes is None else slopes
    return ops.convert_to_tensor(slopes.reshape(1, num_heads, 1, 1)) * -ops.abs(ops.cast(distance, "float32"))

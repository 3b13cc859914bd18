"""Where a token stands: sinusoidal and rotary angles, T5's relative bias, ALiBi; learned ones are an `Embedding`."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.core import PACKAGE, Flagged, as_ids
from kerasformer.layers.primitives import Tensor

RotaryAngles = tuple[Tensor, Tensor]
"""Cosines and sines, `(B, 1, T, D)` each."""


@keras.saving.register_keras_serializable(PACKAGE)
class SinusoidalPositions(keras.layers.Layer):
    """Fixed waves: sines in the first half of the vector, cosines in the second (or interleaved, as in the paper).

    Args:
        max_length: Positions.
        hidden_dim: Size of a vector; even.
        interleaved: Sine and cosine of one frequency stand side by side.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        positions: Integers `(...)`; the result is `(..., hidden_dim)`.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """

    def __init__(self, max_length: int, hidden_dim: int, interleaved: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if hidden_dim % 2:
            raise InputError(f"hidden_dim must be even for sinusoidal positions. Received: hidden_dim={hidden_dim}")
        self.max_length, self.hidden_dim, self.interleaved = max_length, hidden_dim, interleaved
        frequency = 10000.0 ** (-np.arange(0, hidden_dim, 2) / hidden_dim)
        angle = np.arange(max_length)[:, None] * frequency
        waves = np.stack([np.sin(angle), np.cos(angle)], axis=-1 if interleaved else 1)
        self.autocast = False  # positions that come as floats would be rounded to half precision
        self._table = waves.reshape(max_length, hidden_dim).astype("float32")

    def call(self, positions: Tensor) -> Tensor:
        """Looks the vectors up."""
        return ops.cast(ops.take(ops.convert_to_tensor(self._table), as_ids(positions), axis=0), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        own = {"max_length": self.max_length, "hidden_dim": self.hidden_dim, "interleaved": self.interleaved}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(PACKAGE)
class RotaryEmbedding(keras.layers.Layer):
    """Angles by which queries and keys are turned, so that their product depends on the distance alone.

    Args:
        head_dim: Size `D` of a head; even.
        theta: Base of the frequencies.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        positions: Integers `(B, T)`.

    Returns:
        `(cos, sin)`, float32 `(B, 1, T, D)` each.

    Reference: Su et al. 2021, arXiv:2104.09864.
    """

    def __init__(self, head_dim: int, theta: float = 10000.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if head_dim % 2:
            raise InputError(f"head_dim must be even for rotary positions. Received: head_dim={head_dim}")
        self.head_dim, self.theta = head_dim, theta
        self.autocast = False  # as in `SinusoidalPositions`
        self._frequency = (theta ** (-np.arange(0, head_dim, 2) / head_dim)).astype("float32")

    def call(self, positions: Tensor) -> RotaryAngles:
        """Angles of these positions."""
        place = ops.cast(positions, "float32")
        batch, length = ops.shape(place)
        angle = ops.reshape(place, (batch, 1, length, 1)) * ops.convert_to_tensor(self._frequency)
        angle = ops.concatenate([angle, angle], axis=-1)
        return ops.cos(angle), ops.sin(angle)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "head_dim": self.head_dim, "theta": self.theta}


@keras.saving.register_keras_serializable(PACKAGE)
class RelativePositionBias(Flagged):
    """T5's learned score for a distance: exact for near keys, shared by ever wider buckets of far ones.

    Args:
        num_buckets: Learned values per head.
        max_distance: From here on all keys share the last bucket.
        num_heads: Attention heads.
        bidirectional: Keys after the query have buckets of their own (encoders).
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        query_positions: Integers `(T,)`.
        key_positions: Integers `(S,)`.

    Returns:
        `(1, H, T, S)`, added to the attention scores.

    Raises:
        InputError: too few buckets, or `max_distance` within those that hold one distance each.

    Reference: Raffel et al. 2020, arXiv:1910.10683, section 2.1.
    """

    def __init__(self, num_buckets: int, max_distance: int, num_heads: int, bidirectional: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        exact = num_buckets // (4 if bidirectional else 2)
        if exact < 1 or max_distance <= exact:
            raise InputError(
                "num_buckets must leave room for near and far keys, and max_distance must lie beyond the near ones. "
                f"Received: num_buckets={num_buckets}, max_distance={max_distance}, bidirectional={bidirectional}"
            )
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.num_heads, self.bidirectional = num_heads, bidirectional
        # One table of all distances: a look-up is exact on every runtime, where a logarithm may round across a border.
        self._buckets = relative_buckets(num_buckets, max_distance, bidirectional)

    def build(self, input_shape: Any = None) -> None:
        """Creates the table `(num_buckets, num_heads)`."""
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        shape = (self.num_buckets, self.num_heads)
        self.embeddings = self.add_weight(shape=shape, initializer=initializer, name="embeddings")

    def call(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Scores of all pairs."""
        distance = ops.reshape(key_positions, (1, -1)) - ops.reshape(query_positions, (-1, 1))
        limit = self.max_distance
        index = ops.clip(ops.cast(distance, "int32"), -limit, limit) + limit
        bucket = ops.take(ops.convert_to_tensor(self._buckets), index, axis=0)
        scores = ops.take(self.embeddings, bucket, axis=0)
        return ops.expand_dims(ops.transpose(scores, (2, 0, 1)), 0)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """`(1, H, T, S)`."""
        return 1, self.num_heads, None, None

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        names = ("num_buckets", "max_distance", "num_heads", "bidirectional")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def relative_buckets(num_buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """Bucket of each distance, key minus query, from `-max_distance` on: int32 `(2 * max_distance + 1,)`."""
    distance = np.arange(-max_distance, max_distance + 1)
    bucket = np.zeros_like(distance)
    if bidirectional:
        num_buckets //= 2
        bucket = np.where(distance > 0, num_buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = num_buckets // 2
    ratio = np.log(np.maximum(distance, 1).astype("float32") / np.float32(exact)) / np.float32(
        math.log(max_distance / exact)
    )
    wide = np.minimum(exact + (ratio * np.float32(num_buckets - exact)).astype("int64"), num_buckets - 1)
    return (bucket + np.where(distance < exact, distance, wide)).astype("int32")


def alibi_slopes(num_heads: int) -> np.ndarray:
    """One slope a head: a geometric sequence, interleaved from the next power of two where `num_heads` is none.

    Reference: Press et al. 2022, arXiv:2108.12409, and its published code.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = 2.0 ** (-8.0 / power * np.arange(1, power + 1))
    if power < num_heads:
        extra = 2.0 ** (-4.0 / power * np.arange(1, 2 * (num_heads - power), 2))
        slopes = np.concatenate([slopes, extra])
    return slopes.astype("float32")


def alibi_bias(num_heads: int, query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Attention with linear biases: `-slope * distance`, `(1, H, T, S)`, from positions `(T,)` and `(S,)`."""
    distance = ops.reshape(key_positions, (1, 1, 1, -1)) - ops.reshape(query_positions, (1, 1, -1, 1))
    slopes = ops.convert_to_tensor(alibi_slopes(num_heads).reshape(1, num_heads, 1, 1))
    return slopes * -ops.abs(ops.cast(distance, "float32"))

"""Relative position bias of T5."""

from __future__ import annotations

import math
from typing import Unpack

import keras
import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.core import PACKAGE, Configured, OptionalOutputs
from kerasformer.layers.layer_types import LayerOptions
from kerasformer.layers.tensor import Shape, Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class RelativePositionBias(Configured, OptionalOutputs):
    """Relative position bias of T5: learned scores of distances, in buckets that grow with the distance.

    Args:
        num_buckets: Number of learned scores per head.
        max_distance: Distance from which on all keys share the last bucket.
        num_heads: Number of attention heads.
        bidirectional: Whether keys after the query have separate buckets (in encoders).
        num_rows: Number of rows of the table, `num_buckets` by default; further rows are unused (MPNet).
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        query_positions: Integers `(T,)`.
        key_positions: Integers `(S,)`.

    Returns:
        `(1, H, T, S)`, added to the attention scores.

    Raises:
        InputError: too few buckets or rows, or `max_distance` within the buckets of one distance each.

    Reference: Raffel et al. 2020, arXiv:1910.10683, section 2.1.
    """

    def __init__(
        self,
        num_buckets: int,
        max_distance: int,
        num_heads: int,
        bidirectional: bool,
        num_rows: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        exact = num_buckets // (4 if bidirectional else 2)
        if exact < 1 or max_distance <= exact:
            raise InputError(
                "num_buckets must allow for buckets of one distance each, and max_distance must exceed their number, "
                f"{exact}. "
                f"Received: num_buckets={num_buckets}, max_distance={max_distance}, bidirectional={bidirectional}"
            )
        self.num_rows = num_buckets if num_rows is None else num_rows
        if self.num_rows < num_buckets:
            raise InputError(f"num_rows must be at least num_buckets. Received: {num_rows}, num_buckets={num_buckets}")
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.num_heads, self.bidirectional = num_heads, bidirectional
        # A lookup table is exact on every runtime, whereas a logarithm may be rounded across the bounds of a bucket.
        self._buckets = relative_buckets(num_buckets, max_distance, bidirectional)

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the table `(num_rows, num_heads)`."""
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        shape = (self.num_rows, self.num_heads)
        self.embeddings = self.add_weight(shape=shape, initializer=initializer, name="embeddings")

    def call(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Returns the scores of all pairs of tokens."""
        distance = ops.reshape(key_positions, (1, -1)) - ops.reshape(query_positions, (-1, 1))
        limit = self.max_distance
        index = ops.clip(ops.cast(distance, "int32"), -limit, limit) + limit
        bucket = ops.take(ops.convert_to_tensor(self._buckets), index, axis=0)
        scores = ops.take(self.embeddings, bucket, axis=0)
        return ops.expand_dims(ops.transpose(scores, (2, 0, 1)), 0)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns `(1, H, T, S)`."""
        return 1, self.num_heads, None, None


def relative_buckets(num_buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """Returns the bucket of each distance from `-max_distance` to `max_distance`, key minus query, int32."""
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
    logarithmic = np.minimum(exact + (ratio * np.float32(num_buckets - exact)).astype("int64"), num_buckets - 1)
    return (bucket + np.where(distance < exact, distance, logarithmic)).astype("int32")

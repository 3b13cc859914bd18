"""Mamba-2, a linear recurrence over tokens that takes the place of attention in most layers of a hybrid decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.layers import primitives
from kerasformer.layers.activations import activation
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.core import PACKAGE, build_once
from kerasformer.layers.recurrent_layer import RecurrentLayer
from kerasformer.layers.tensor import Tensor, merge_heads, split_heads


@keras.saving.register_keras_serializable(PACKAGE)
class Mamba2(RecurrentLayer):
    """Linear recurrence over tokens whose values are added to a state that decays, before a gated norm.

    In the terms of the paper, a query is `C`, a key is `B`, the key heads are groups, and `K` is the size of the state.
    A value is multiplied by the size of the token's step, which also gives its decay. Each group of value heads has a
    norm, after the gate. See `RecurrentLayer` for the other arguments and the cache.

    Args:
        sizes: The first arguments of `RecurrentLayer`.
        has_norm: Whether there is a norm after the gate.
        input_scales: Factors of the gate, the values, the keys, the queries and the sizes of steps, as they are
            projected (Falcon-H1).

    Reference: Dao and Gu 2024, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured
    State Space Duality", arXiv:2405.21060; `transformers.models.granitemoehybrid`.
    """

    def __init__(
        self, *sizes: Any, has_norm: bool = True, input_scales: Sequence[float] = (1.0,) * 5, **kwargs: Any
    ) -> None:
        super().__init__(*sizes, **kwargs)
        self.has_norm, self.input_scales = has_norm, tuple(input_scales)

    def create_layers(self) -> None:
        """See `RecurrentLayer.create_layers`."""
        self.input_dense = self.dense(self.inner_dim + self.convolved_dim + self.num_heads, "input")
        self.output_dense = self.dense(self.hidden_dim, "output")
        self.skip: Tensor = None
        self.scale: Tensor = None

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        build_once(self.input_dense, input_shape)
        build_once(self.output_dense, (None, None, self.inner_dim))
        super().build(input_shape)
        self.skip = self.add_weight(shape=(self.num_heads,), initializer="ones", name="skip")
        if self.has_norm:
            self.scale = self.add_weight(shape=(self.inner_dim,), initializer="ones", name="scale")

    def mix(self, x: Tensor, real: Tensor | None, cache: LayerCache | None) -> tuple[Tensor, LayerCache | None]:
        """See `TokenMixer.mix`."""
        projected, end = self._scaled(self.input_dense(x)), self.inner_dim + self.convolved_dim
        gate, sizes = projected[..., : self.inner_dim], projected[..., end:]
        joined, cache = self.convolve(projected[..., self.inner_dim : end], real, cache)
        keys = self.inner_dim + self.num_key_heads * self.key_dim
        value, key, query = joined[..., : self.inner_dim], joined[..., self.inner_dim : keys], joined[..., keys:]
        value = split_heads(value, self.head_dim)
        query, key = (self.for_value_heads(split_heads(each, self.key_dim)) for each in (query, key))
        size, decay = self.steps(sizes, real)
        context, state = primitives.linear_recurrence(
            query, key, value * ops.expand_dims(size, -1), decay, None, self.state_before(x, cache)
        )
        if cache is not None:
            cache = cache.with_states(state)
        skip = ops.cast(ops.convert_to_tensor(self.skip), "float32")
        context = merge_heads(context + value * ops.reshape(skip, (self.num_heads, 1, 1)))
        y = context * activation("silu")(ops.cast(gate, "float32"))
        return self.output_dense(ops.cast(self._norm(y) if self.has_norm else y, self.compute_dtype)), cache

    def _scaled(self, x: Tensor) -> Tensor:
        """Multiplies the parts of a projected token by their factors."""
        if set(self.input_scales) == {1.0}:
            return x
        keys = self.num_key_heads * self.key_dim
        sizes = self.inner_dim, self.inner_dim, keys, keys, self.num_heads
        return x * ops.cast(np.repeat(np.array(self.input_scales, "float32"), sizes), x.dtype)

    def _norm(self, x: Tensor) -> Tensor:
        """Divides each group of heads `(B, T, H * V)` by its root mean square."""
        batch, length = ops.shape(x)[:2]
        groups = ops.reshape(x, (batch, length, self.num_key_heads, self.inner_dim // self.num_key_heads))
        mean = ops.mean(ops.square(groups), axis=-1, keepdims=True) + self.epsilon
        y = ops.reshape(groups * ops.rsqrt(mean), (batch, length, self.inner_dim))
        return y * ops.cast(ops.convert_to_tensor(self.scale), "float32")

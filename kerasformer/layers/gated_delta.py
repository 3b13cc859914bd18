"""Gated DeltaNet, a linear recurrence over tokens that takes the place of attention in some layers of a decoder."""

from __future__ import annotations

import keras
from keras import ops

from kerasformer.layers import primitives
from kerasformer.layers.activations import activation
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.convolution import without_padding
from kerasformer.layers.core import PACKAGE, build_once
from kerasformer.layers.norms import RMSNormalization
from kerasformer.layers.recurrent_layer import RecurrentLayer
from kerasformer.layers.tensor import Tensor, split_heads


@keras.saving.register_keras_serializable(PACKAGE)
class GatedDeltaNet(RecurrentLayer):
    """Linear recurrence over tokens by the gated delta rule, between a short convolution and a gated norm.

    The norm is that of each head, before the gate. See `RecurrentLayer` for the arguments and the cache.

    Reference: Yang et al. 2024, arXiv:2412.06464; `transformers.models.qwen3_5`.
    """

    def create_layers(self) -> None:
        """See `RecurrentLayer.create_layers`."""
        self.input_dense = self.dense(self.convolved_dim, "input")
        self.gate = self.dense(self.inner_dim, "gate")
        self.rate = self.dense(self.num_heads, "rate")
        self.decay = self.dense(self.num_heads, "decay")
        self.norm = RMSNormalization(self.epsilon, name="norm", dtype=self.dtype_policy)
        self.output_dense = self.dense(self.hidden_dim, "output")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        for layer in (self.input_dense, self.gate, self.rate, self.decay):
            build_once(layer, input_shape)
        build_once(self.norm, (None, None, self.num_heads, self.head_dim))
        build_once(self.output_dense, (None, None, self.inner_dim))
        super().build(input_shape)

    def mix(self, x: Tensor, real: Tensor | None, cache: LayerCache | None) -> tuple[Tensor, LayerCache | None]:
        """See `TokenMixer.mix`."""
        batch, length = ops.shape(x)[:2]
        joined, cache = self.convolve(self.input_dense(x), real, cache)
        keys = self.num_key_heads * self.key_dim
        query, key, value = joined[..., :keys], joined[..., keys : 2 * keys], joined[..., 2 * keys :]
        rate = ops.transpose(without_padding(ops.sigmoid(ops.cast(self.rate(x), "float32")), real), (0, 2, 1))
        context, state = primitives.linear_recurrence(
            self._heads(query) * self.key_dim**-0.5,
            self._heads(key),
            split_heads(value, self.head_dim),
            self.steps(self.decay(x), real)[1],
            rate,
            self.state_before(x, cache),
        )
        if cache is not None:
            cache = cache.with_states(state)
        normed = self.norm(ops.cast(ops.transpose(context, (0, 2, 1, 3)), self.compute_dtype))
        gates = ops.reshape(self.gate(x), ops.shape(normed))
        y = ops.reshape(normed * activation("silu")(gates), (batch, length, self.inner_dim))
        return self.output_dense(y), cache

    def _heads(self, x: Tensor) -> Tensor:
        """Splits queries or keys `(B, T, G * K)` into heads of length 1, one for each value head, `(B, H, T, K)`."""
        heads = split_heads(x, self.key_dim)
        # The sum of squares plus 1e-6, by a mean: from a sum, TFLite would make an operator without the epsilon.
        mean = ops.mean(ops.square(heads), axis=-1, keepdims=True) + 1e-6 / self.key_dim
        return self.for_value_heads(heads * ops.rsqrt(mean) * self.key_dim**-0.5)

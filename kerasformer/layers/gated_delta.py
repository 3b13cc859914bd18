"""Gated DeltaNet, a linear recurrence over tokens that takes the place of attention in some layers of a decoder."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.activations import activation
from kerasformer.layers.cache import CacheSpec, LayerCache
from kerasformer.layers.convolution import convolved, real_tokens, without_padding
from kerasformer.layers.core import PACKAGE, Composite, Configured, Dense, build_once, packed
from kerasformer.layers.layer_types import Initializer, LayerOptions, Outputs
from kerasformer.layers.norms import RMSNormalization
from kerasformer.layers.tensor import Tensor, split_heads
from kerasformer.layers.visibility import Visibility


@keras.saving.register_keras_serializable(PACKAGE)
class GatedDeltaNet(Configured, Composite):
    """Linear recurrence over tokens by the gated delta rule, between a short convolution and a gated norm.

    The queries, keys and values of a token are those of a projection, convolved with those of the last tokens. Each
    value head has a matrix `(K, V)`, see `primitives.delta_rule`; several may share a query and key head. Padding
    changes no matrix, so that a padded text has the states that it has alone.

    It takes the place of the attention of a `DecoderLayer`. Its cache has the tensor `conv`, the inputs of the
    convolution at earlier tokens, `(B, 1, S, 2 * G * K + H * V)`, and the state `recurrent`, `(B, H, K, V)`, which has
    no axis of tokens: see `CacheSpec.states`.

    Args:
        hidden_dim: Size `E` of the output.
        num_heads: Number `H` of value heads.
        num_key_heads: Number `G` of query and key heads; must divide `num_heads`.
        head_dim: Size `V` of a value.
        key_dim: Size `K` of a query and key.
        kernel_size: Number of tokens in the kernel of the convolution, at least 2.
        activation: Activation of the convolution.
        epsilon: Epsilon of the norm of each head.
        kernel_initializer: A Keras initializer of the projections and of the kernel of the convolution.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 for real tokens, `(B, T)`, or `(B, S)` with a cache; optional.
        visibility: `Visibility` shared by all layers of a stack, optional; only its slots and its padding matter.
        cache: `LayerCache` of `conv` and `recurrent`, optional.
        return_attention: Ignored, since there are no weights.
        return_cache: Returns a dictionary of `output` and `cache`, the updated cache.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: `kernel_size` is less than 2, or `num_key_heads` does not divide `num_heads`; in a call, a
            visibility that is not causal or a mask with a row for each query.

    Reference: Yang et al. 2024, arXiv:2412.06464; `transformers.models.qwen3_5`.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        num_key_heads: int,
        head_dim: int,
        key_dim: int,
        kernel_size: int = 4,
        activation: str = "silu",
        epsilon: float = 1e-6,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if kernel_size < 2:
            raise InputError(f"kernel_size must be at least 2. Received: kernel_size={kernel_size}")
        if num_key_heads < 1 or num_heads % num_key_heads:
            raise InputError(f"num_key_heads must divide num_heads. Received: {num_key_heads=}, {num_heads=}")
        self.hidden_dim, self.num_heads, self.num_key_heads = hidden_dim, num_heads, num_key_heads
        self.head_dim, self.key_dim, self.kernel_size = head_dim, key_dim, kernel_size
        self.activation, self.epsilon = activation, epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.input_dense = self._dense(2 * num_key_heads * key_dim + num_heads * head_dim, "input")
        self.gate = self._dense(num_heads * head_dim, "gate")
        self.rate = self._dense(num_heads, "rate")
        self.decay = self._dense(num_heads, "decay")
        self.norm = RMSNormalization(epsilon, name="norm", dtype=self.dtype_policy)
        self.output_dense = self._dense(hidden_dim, "output")
        self.kernel: Tensor = None
        self.decay_bias: Tensor = None
        self.decay_log: Tensor = None

    def _dense(self, units: int, name: str) -> Dense:
        initializer = keras.initializers.get(keras.initializers.serialize(self.kernel_initializer))
        return Dense(units, use_bias=False, kernel_initializer=initializer, name=name, dtype=self.dtype_policy)

    @property
    def cache_spec(self) -> CacheSpec:
        """The inputs of the convolution at earlier tokens, and the matrices."""
        states = {"recurrent": (self.num_heads, self.key_dim, self.head_dim)}
        return CacheSpec(1, self.input_dense.units, self.kernel_size, ("conv",), states)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        for layer in (self.input_dense, self.gate, self.rate, self.decay):
            build_once(layer, input_shape)
        build_once(self.norm, (None, None, self.num_heads, self.head_dim))
        build_once(self.output_dense, (None, None, self.num_heads * self.head_dim))
        shape = self.kernel_size, self.input_dense.units
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        # Logarithm of the largest decay in a step of size 1, as in the reference.
        rates = keras.initializers.RandomUniform(-4.6, 2.8)
        self.decay_log = self.add_weight(shape=(self.num_heads,), initializer=rates, name="decay_log")
        self.decay_bias = self.add_weight(shape=(self.num_heads,), initializer="ones", name="decay_bias")

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        visibility: Visibility | None = None,
        cache: LayerCache | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Tensor | Outputs:
        """Applies the layer."""
        batch, length = ops.shape(x)[:2]
        real = real_tokens(type(self).__name__, x, attention_mask, visibility, cache)
        joined, cache = convolved(without_padding(self.input_dense(x), real), self.kernel, None, cache)
        joined = ops.cast(activation(self.activation)(joined), "float32")
        keys = self.num_key_heads * self.key_dim
        query, key, value = joined[..., :keys], joined[..., keys : 2 * keys], joined[..., 2 * keys :]
        scale, bias = (ops.cast(ops.convert_to_tensor(each), "float32") for each in (self.decay_log, self.decay_bias))
        decay = -ops.exp(scale) * ops.softplus(ops.cast(self.decay(x), "float32") + bias)
        rate = ops.sigmoid(ops.cast(self.rate(x), "float32"))
        decay, rate = (ops.transpose(without_padding(each, real), (0, 2, 1)) for each in (decay, rate))
        if cache is None:
            state = ops.zeros((batch, self.num_heads, self.key_dim, self.head_dim), "float32")
        else:
            state = ops.cast(cache.states[0], "float32")
        context, state = primitives.delta_rule(
            self._heads(query) * self.key_dim**-0.5,
            self._heads(key),
            split_heads(value, self.head_dim),
            decay,
            rate,
            state,
        )
        if cache is not None:
            cache = cache.with_states(state)
        normed = self.norm(ops.cast(ops.transpose(context, (0, 2, 1, 3)), self.compute_dtype))
        gates = ops.reshape(self.gate(x), ops.shape(normed))
        y = ops.reshape(normed * activation("silu")(gates), (batch, length, self.num_heads * self.head_dim))
        return packed(self.output_dense(y), return_attention or return_cache, cache=cache if return_cache else None)

    def _heads(self, x: Tensor) -> Tensor:
        """Splits queries or keys `(B, T, G * K)` into heads of length 1, one for each value head, `(B, H, T, K)`."""
        heads = split_heads(x, self.key_dim)
        # The sum of squares plus 1e-6, by a mean: from a sum, TFLite would make an operator without the epsilon.
        mean = ops.mean(ops.square(heads), axis=-1, keepdims=True) + 1e-6 / self.key_dim
        heads = heads * ops.rsqrt(mean) * self.key_dim**-0.5
        if self.num_heads == self.num_key_heads:
            return heads
        return ops.take(heads, np.repeat(np.arange(self.num_key_heads), self.num_heads // self.num_key_heads), axis=1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to itself."""
        return (*input_shape[:-1], self.hidden_dim)

"""Base of layers that take the place of attention with a linear recurrence over tokens, after a short convolution."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.activations import activation
from kerasformer.layers.cache import CacheSpec, LayerCache
from kerasformer.layers.convolution import convolved, without_padding
from kerasformer.layers.layer_types import Initializer, LayerOptions
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.token_mixer import TokenMixer


class RecurrentLayer(TokenMixer):
    """Base of layers with a linear recurrence over tokens, see `primitives.linear_recurrence`.

    The queries, keys and values of a token are those of a projection, convolved with those of the last tokens. Each
    value head has a matrix `(K, V)`; several may share a query and key head. Padding changes no matrix, so that a
    padded text has the states that it has alone.

    It takes the place of attention, see `TokenMixer`. Its cache has the tensor `conv`, the inputs of the convolution at
    earlier tokens, `(B, 1, S, C)`, and the state `recurrent`, `(B, H, K, V)`, which has no axis of tokens: see
    `CacheSpec.states`.

    Args:
        hidden_dim: Size `E` of the output.
        num_heads: Number `H` of value heads.
        num_key_heads: Number `G` of query and key heads; must divide `num_heads`.
        head_dim: Size `V` of a value.
        key_dim: Size `K` of a query and key.
        kernel_size: Number of tokens in the kernel of the convolution, at least 2.
        convolution_bias: Whether the convolution has a bias.
        activation: Activation of the convolution.
        epsilon: Epsilon of the norm.
        kernel_initializer: A Keras initializer of the projections and of the kernel of the convolution.
        kwargs: `keras.layers.Layer` arguments.

    Raises:
        InputError: `kernel_size` is less than 2, or `num_key_heads` does not divide `num_heads`.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        num_key_heads: int,
        head_dim: int,
        key_dim: int,
        kernel_size: int = 4,
        convolution_bias: bool = False,
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
        self.convolution_bias, self.activation, self.epsilon = convolution_bias, activation, epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel: Tensor = None
        self.bias: Tensor = None
        self.decay_bias: Tensor = None
        self.decay_log: Tensor = None
        self.create_layers()

    def create_layers(self) -> None:
        """Creates the projections and the norm."""
        raise NotImplementedError

    @property
    def inner_dim(self) -> int:
        """Size of all values of a token."""
        return self.num_heads * self.head_dim

    @property
    def convolved_dim(self) -> int:
        """Size `C` of the queries, keys and values of a token."""
        return 2 * self.num_key_heads * self.key_dim + self.inner_dim

    @property
    def cache_spec(self) -> CacheSpec:
        """The inputs of the convolution at earlier tokens, and the matrices."""
        states = {"recurrent": (self.num_heads, self.key_dim, self.head_dim)}
        return CacheSpec(1, self.convolved_dim, self.kernel_size, ("conv",), states)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights of the convolution and of the decay."""
        shape = self.kernel_size, self.convolved_dim
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        if self.convolution_bias:
            self.bias = self.add_weight(shape=shape[1:], initializer="zeros", name="bias")
        # Logarithm of the largest decay in a step of size 1, as in the reference of Gated DeltaNet.
        rates = keras.initializers.RandomUniform(-4.6, 2.8)
        self.decay_log = self.add_weight(shape=(self.num_heads,), initializer=rates, name="decay_log")
        self.decay_bias = self.add_weight(shape=(self.num_heads,), initializer="ones", name="decay_bias")

    def convolve(self, x: Tensor, real: Tensor | None, cache: LayerCache | None) -> tuple[Tensor, LayerCache | None]:
        """Convolves queries, keys and values with those of the last tokens.

        Args:
            x: `(B, T, C)`.
            real: As of `mix`.
            cache: As in the call of the layer.

        Returns:
            `((B, T, C) in float32, updated cache or None)`; those of padding are finite, but not 0.
        """
        y, cache = convolved(without_padding(x, real), self.kernel, self.bias, cache)
        return ops.cast(activation(self.activation)(y), "float32"), cache

    def steps(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the size of the step of each token in each head, and the logarithm of the decay in it.

        Args:
            x: Logits of the sizes, `(B, T, H)`.
            real: As of `mix`.

        Returns:
            Two tensors `(B, H, T)` in float32, 0 for padding.
        """
        bias, rates = (ops.cast(ops.convert_to_tensor(each), "float32") for each in (self.decay_bias, self.decay_log))
        size = without_padding(ops.softplus(ops.cast(x, "float32") + bias), real)
        return ops.transpose(size, (0, 2, 1)), ops.transpose(size * -ops.exp(rates), (0, 2, 1))

    def for_value_heads(self, heads: Tensor) -> Tensor:
        """Repeats queries or keys `(B, G, T, K)` for each of the value heads that share them, `(B, H, T, K)`."""
        if self.num_heads == self.num_key_heads:
            return heads
        return ops.take(heads, np.repeat(np.arange(self.num_key_heads), self.num_heads // self.num_key_heads), axis=1)

    def state_before(self, x: Tensor, cache: LayerCache | None) -> Tensor:
        """Returns the matrices before the tokens `x`, `(B, H, K, V)` in float32."""
        if cache is not None:
            return ops.cast(cache.states[0], "float32")
        return ops.zeros((ops.shape(x)[0], self.num_heads, self.key_dim, self.head_dim), "float32")

"""Gated short convolution over tokens, which takes the place of attention in some layers of a decoder."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.cache import CacheSpec, LayerCache
from kerasformer.layers.core import PACKAGE, build_once
from kerasformer.layers.layer_types import Initializer, LayerOptions
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.token_mixer import TokenMixer


@keras.saving.register_keras_serializable(PACKAGE)
class ShortConvolution(TokenMixer):
    """Causal convolution over a few tokens, between two gates: `output(c * convolution(b * x))`.

    `b`, `c` and `x` are projections of the input. Each channel is convolved by itself: token `t` of a channel is the
    sum of the products of the kernel with the tokens `t - kernel_size + 1` to `t`. Padding contributes 0, whatever its
    content, so that a text with padding on the left has the states that it has alone.

    It takes the place of attention, see `TokenMixer`. Its cache has one tensor `conv`, the products `b * x` of earlier
    tokens, `(B, 1, S, E)`.

    Args:
        hidden_dim: Size `E` of the output.
        kernel_size: Number of tokens in the kernel, at least 2.
        use_bias: Whether the projections and the convolution have a bias.
        kernel_initializer: A Keras initializer of the projections and of the kernel `(kernel_size, E)`.
        kwargs: `keras.layers.Layer` arguments.

    Raises:
        InputError: `kernel_size` is less than 2.

    Reference: Liquid AI 2025, "LFM2 Technical Report", arXiv:2511.23404; `transformers.models.lfm2`.
    """

    def __init__(
        self,
        hidden_dim: int,
        kernel_size: int,
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if kernel_size < 2:
            raise InputError(f"kernel_size must be at least 2. Received: kernel_size={kernel_size}")
        self.hidden_dim, self.kernel_size, self.use_bias = hidden_dim, kernel_size, use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.input_dense = self.dense(3 * hidden_dim, "input", use_bias)
        self.output_dense = self.dense(hidden_dim, "output", use_bias)
        self.kernel: Tensor = None
        self.bias: Tensor = None

    @property
    def cache_spec(self) -> CacheSpec:
        """The inputs of the convolution at earlier tokens."""
        return CacheSpec(1, self.hidden_dim, self.kernel_size, ("conv",))

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        build_once(self.input_dense, input_shape)
        build_once(self.output_dense, (None, None, self.hidden_dim))
        shape, initializer = (self.kernel_size, self.hidden_dim), self.kernel_initializer
        self.kernel = self.add_weight(shape=shape, initializer=initializer, name="kernel")
        if self.use_bias:
            self.bias = self.add_weight(shape=shape[1:], initializer="zeros", name="bias")

    def mix(self, x: Tensor, real: Tensor | None, cache: LayerCache | None) -> tuple[Tensor, LayerCache | None]:
        """See `TokenMixer.mix`."""
        b, c, x = ops.split(self.input_dense(x), 3, axis=-1)
        y, cache = convolved(without_padding(b * x, real), self.kernel, self.bias, cache)
        return self.output_dense(c * y), cache


def without_padding(x: Tensor, real: Tensor | None) -> Tensor:
    """Sets what padding contributes to a state to 0.

    Args:
        x: `(B, T, E)`.
        real: `True` for tokens, `(B or 1, T)`; `None` if there is no padding.
    """
    # Not a product with the mask, which would keep a NaN.
    return x if real is None else ops.where(ops.expand_dims(real, -1), x, ops.zeros_like(x))


def convolved(
    x: Tensor, kernel: Tensor, bias: Tensor | None, cache: LayerCache | None
) -> tuple[Tensor, LayerCache | None]:
    """Convolves each channel with its last tokens.

    Args:
        x: `(B, T, E)`.
        kernel: Variable `(N, E)`; row `N - 1` belongs to the token itself.
        bias: Variable `(E,)`, optional.
        cache: `LayerCache` with one tensor, the inputs of earlier tokens `(B, 1, S, E)`; optional.

    Returns:
        `((B, T, E), updated cache or None)`.
    """
    length, size = ops.shape(x)[1], kernel.shape[0]
    if cache is None:
        joined = ops.pad(x, ((0, 0), (size - 1, 0), (0, 0)))
    else:
        before = cache.last(size - 1)[0]
        joined = ops.concatenate([ops.cast(before[:, 0], x.dtype), x], axis=1)
        _, cache = cache.update(ops.expand_dims(x, 1))
    rows = ops.cast(ops.convert_to_tensor(kernel), x.dtype)
    y = sum(joined[:, start : start + length] * rows[start] for start in range(size))
    return (y if bias is None else y + ops.cast(ops.convert_to_tensor(bias), x.dtype)), cache

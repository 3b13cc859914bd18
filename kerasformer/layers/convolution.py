"""Gated short convolution over tokens, which takes the place of attention in some layers of a decoder."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.cache import CacheSpec, LayerCache
from kerasformer.layers.core import PACKAGE, Composite, Configured, Dense, build_once, packed
from kerasformer.layers.layer_types import Initializer, LayerOptions, Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.visibility import Visibility, visibility_of


@keras.saving.register_keras_serializable(PACKAGE)
class ShortConvolution(Configured, Composite):
    """Causal convolution over a few tokens, between two gates: `output(c * convolution(b * x))`.

    `b`, `c` and `x` are projections of the input. Each channel is convolved by itself: token `t` of a channel is the
    sum of the products of the kernel with the tokens `t - kernel_size + 1` to `t`. Padding contributes 0, whatever its
    content, so that a text with padding on the left has the states that it has alone.

    It takes the place of the attention of a `DecoderLayer`. Its cache has one tensor `conv`, the products `b * x` of
    earlier tokens, `(B, 1, S, E)`.

    Args:
        hidden_dim: Size `E` of the output.
        kernel_size: Number of tokens in the kernel, at least 2.
        use_bias: Whether the projections and the convolution have a bias.
        kernel_initializer: A Keras initializer of the projections and of the kernel `(kernel_size, E)`.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 for real tokens, `(B, T)`, or `(B, S)` with a cache; optional.
        visibility: `Visibility` shared by all layers of a stack, optional; only its slots and its padding matter.
        cache: `LayerCache` of `conv`, optional.
        return_attention: Ignored, since there are no weights.
        return_cache: Returns a dictionary of `output` and `cache`, the updated cache.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: `kernel_size` is less than 2, or in a call, a visibility that is not causal or a mask with a row for
            each query.

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
        self.input_dense = self._dense(3 * hidden_dim, "input")
        self.output_dense = self._dense(hidden_dim, "output")
        self.kernel: Tensor = None
        self.bias: Tensor = None

    def _dense(self, units: int, name: str) -> Dense:
        initializer = keras.initializers.get(keras.initializers.serialize(self.kernel_initializer))
        return Dense(units, self.use_bias, kernel_initializer=initializer, name=name, dtype=self.dtype_policy)

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
        real = real_tokens(type(self).__name__, x, attention_mask, visibility, cache)
        b, c, x = ops.split(self.input_dense(x), 3, axis=-1)
        y, cache = convolved(without_padding(b * x, real), self.kernel, self.bias, cache)
        return packed(self.output_dense(c * y), return_attention or return_cache, cache=cache if return_cache else None)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to itself."""
        return (*input_shape[:-1], self.hidden_dim)


def real_tokens(
    name: str, x: Tensor, attention_mask: Tensor | None, visibility: Visibility | None, cache: LayerCache | None
) -> Tensor | None:
    """Returns which tokens a layer reads that takes the place of causal attention; others are padding.

    Args:
        name: Name of the layer in an error.
        x: Its input, `(B, T, E)`.
        attention_mask: As in the call of the layer.
        visibility: As in the call of the layer.
        cache: As in the call of the layer.

    Returns:
        `True` for tokens, `(B or 1, T)`; `None` if there is no padding.

    Raises:
        InputError: the visibility is not causal, or a mask has a row for each query.
    """
    length = ops.shape(x)[1]
    visibility = visibility_of(visibility, attention_mask, None, x, None if cache is not None else x.shape[1])
    if visibility.causal is False:
        raise InputError(f"A {name} is causal. Expected: a visibility with causal=True. Received: False")
    return visibility.with_slots(length, [cache]).real_queries(length)


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

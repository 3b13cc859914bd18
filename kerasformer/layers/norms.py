"""Normalization over the last axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.core import PACKAGE, Configured
from kerasformer.layers.layer_types import LayerOptions
from kerasformer.layers.tensor import Tensor


class _Affine(keras.layers.Layer):
    """Base of all norms: a learned scale of the last axis and a bias, both optional."""

    def __init__(self, use_bias: bool, use_scale: bool = True, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.use_bias, self.use_scale = use_bias, use_scale

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the scale and the bias, if there are any, of size `input_shape[-1]`."""
        shape = (input_shape[-1],)
        self.scale: Any = self.add_weight(shape=shape, initializer="ones", name="scale") if self.use_scale else None
        self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias") if self.use_bias else None

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the input."""
        return input_shape


class _Norm(_Affine):
    """Base of the norms that divide by a standard deviation or a root mean square: an affine layer with an epsilon."""

    def __init__(self, epsilon: float, use_bias: bool, use_scale: bool = True, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(use_bias, use_scale, **kwargs)
        self.epsilon = epsilon


@keras.saving.register_keras_serializable(PACKAGE)
class LayerNormalization(Configured, _Norm):
    """Layer normalization over the last axis, as `nn.LayerNorm`.

    Args:
        epsilon: Added to the variance.
        use_bias: Whether to add a bias.
        use_scale: Whether to multiply by a scale; OPT may have neither.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`; the result has the same shape.

    Reference: Ba et al. 2016, arXiv:1607.06450.
    """

    def __init__(
        self, epsilon: float = 1e-5, use_bias: bool = True, use_scale: bool = True, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(epsilon, use_bias, use_scale, **kwargs)

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return primitives.layer_norm(x, self.scale, self.bias, self.epsilon)


@keras.saving.register_keras_serializable(PACKAGE)
class HeadNormalization(Configured, _Norm):
    """Layer normalization of each attention head, with a scale of its own and without bias (Cohere).

    Args:
        epsilon: Added to the variance.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., H, D)`; the result has the same shape.

    Reference: `transformers.models.cohere`.
    """

    def __init__(self, epsilon: float = 1e-5, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(epsilon, use_bias=False, **kwargs)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the scale `(H, D)`."""
        self.scale = self.add_weight(shape=input_shape[-2:], initializer="ones", name="scale")

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        wide = ops.cast(x, "float32")
        centered = wide - ops.mean(wide, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        y = ops.cast(centered * ops.rsqrt(variance + self.epsilon), x.dtype)
        return y * ops.convert_to_tensor(self.scale)


@keras.saving.register_keras_serializable(PACKAGE)
class RMSNormalization(Configured, _Norm):
    """Root mean square normalization over the last axis, as `nn.RMSNorm`: without mean and bias.

    Args:
        epsilon: Added to the mean square.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`; the result has the same shape.

    Reference: Zhang and Sennrich 2019, arXiv:1910.07467.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(epsilon, use_bias=False, **kwargs)

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return primitives.rms_norm(x, self.scale, self.epsilon)


@keras.saving.register_keras_serializable(PACKAGE)
class ElementwiseAffine(Configured, _Affine):
    """Multiplication by a scale and addition of a bias, without normalization: the NoNorm of MobileBERT.

    Args:
        use_bias: Whether to add a bias.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`; the result has the same shape.

    Reference: Sun et al. 2020, arXiv:2004.02984, section 3.3.
    """

    def __init__(self, use_bias: bool = True, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(use_bias, **kwargs)

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        y = x * ops.convert_to_tensor(self.scale)
        return y if self.bias is None else y + ops.convert_to_tensor(self.bias)


_NORMS: dict[str, Callable[..., keras.layers.Layer]] = {
    "layer_norm": LayerNormalization,
    "plain_layer_norm": lambda epsilon, use_bias, **kwargs: LayerNormalization(epsilon, False, False, **kwargs),
    "head_norm": lambda epsilon, use_bias, **kwargs: HeadNormalization(epsilon, **kwargs),
    "rms_norm": lambda epsilon, use_bias, **kwargs: RMSNormalization(epsilon, **kwargs),
    "no_norm": lambda epsilon, use_bias, **kwargs: ElementwiseAffine(use_bias, **kwargs),
}


def normalization(
    kind: str, epsilon: float, use_bias: bool = True, **kwargs: Unpack[LayerOptions]
) -> keras.layers.Layer:
    """Returns a norm of the given kind.

    Args:
        kind: `"layer_norm"`; `"plain_layer_norm"`, which has neither scale nor bias; `"rms_norm"`, which never has a
            bias; `"head_norm"`, for queries and keys alone, likewise; or `"no_norm"`, which has no epsilon.
        epsilon: Epsilon of the norm.
        use_bias: Whether the norm has a bias.
        kwargs: `keras.layers.Layer` arguments.

    Raises:
        InputError: the kind is unknown.
    """
    if kind not in _NORMS:
        raise InputError(f"Unknown normalization. Expected one of {', '.join(_NORMS)}. Received: {kind!r}")
    return _NORMS[kind](epsilon, use_bias, **kwargs)

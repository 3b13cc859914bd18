"""Normalization over the last axis."""

from __future__ import annotations

from typing import Any

import keras

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.core import PACKAGE
from kerasformer.layers.tensor import Tensor


class _Norm(keras.layers.Layer):
    """Base of the norms: a learned scale of the last axis, an optional bias and an epsilon."""

    def __init__(self, epsilon: float, use_bias: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon, self.use_bias = epsilon, use_bias

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the scale and the bias, if there is one, of size `input_shape[-1]`."""
        shape = (input_shape[-1],)
        self.scale = self.add_weight(shape=shape, initializer="ones", name="scale")
        self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias") if self.use_bias else None

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(PACKAGE)
class LayerNormalization(_Norm):
    """Layer normalization over the last axis, as `nn.LayerNorm`.

    Args:
        epsilon: Added to the variance.
        use_bias: Whether to add a bias.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`; the result has the same shape.

    Reference: Ba et al. 2016, arXiv:1607.06450.
    """

    def __init__(self, epsilon: float = 1e-5, use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(epsilon, use_bias, **kwargs)

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return primitives.layer_norm(x, self.scale, self.bias, self.epsilon)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "use_bias": self.use_bias}


@keras.saving.register_keras_serializable(PACKAGE)
class RMSNormalization(_Norm):
    """Root mean square normalization over the last axis, as `nn.RMSNorm`: without mean and bias.

    Args:
        epsilon: Added to the mean square.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`; the result has the same shape.

    Reference: Zhang and Sennrich 2019, arXiv:1910.07467.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon, use_bias=False, **kwargs)

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return primitives.rms_norm(x, self.scale, self.epsilon)


_NORMS = {"layer_norm": LayerNormalization, "rms_norm": RMSNormalization}


def normalization(kind: str, epsilon: float, use_bias: bool = True, **kwargs: Any) -> keras.layers.Layer:
    """Returns a norm of the given kind, `"layer_norm"` or `"rms_norm"`; the latter never has a bias.

    Raises:
        InputError: the kind is unknown.
    """
    if kind not in _NORMS:
        raise InputError(f"Unknown normalization. Expected one of {', '.join(_NORMS)}. Received: {kind!r}")
    return _NORMS[kind](epsilon, **({} if kind == "rms_norm" else {"use_bias": use_bias}), **kwargs)

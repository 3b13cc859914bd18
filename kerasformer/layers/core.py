"""The layers that hold nearly all weights: `nn.Linear`, `nn.Embedding` and the norms, on top of the primitives."""

from __future__ import annotations

from typing import Any

import keras

from kerasformer.layers import primitives
from kerasformer.layers.activations import activation as get_activation
from kerasformer.layers.primitives import Tensor

PACKAGE = "kerasformer"


def build_once(layer: keras.layers.Layer, input_shape: Any = None) -> None:
    """Creates the layer's weights, unless it has them: a layer that was given to another may be built already."""
    if not layer.built:
        layer.build(input_shape)


def serialize_part(layer: keras.layers.Layer | None) -> dict[str, Any] | None:
    """A layer's serialized form, for the config of the layer that holds it.

    Without the shapes it was built for: the holder builds it anew, so that its variables have the holder's path.
    """
    if layer is None:
        return None
    return {name: x for name, x in keras.saving.serialize_keras_object(layer).items() if name != "build_config"}


@keras.saving.register_keras_serializable(PACKAGE)
class Dense(keras.layers.Layer):
    """`nn.Linear`: `y = activation(x @ kernel + bias)`. The kernel is `(in, out)`, the transpose of PyTorch's.

    Args:
        units: Size of the output's last axis.
        use_bias: Adds a learned vector.
        activation: A name that `kerasformer.layers.activation` knows, or `None`.
        kernel_initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., in)`; the result is `(..., units)`.
    """

    def __init__(
        self,
        units: int,
        use_bias: bool = True,
        activation: str | None = None,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.use_bias = use_bias
        self.activation = activation
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._activate = get_activation(activation)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs whose last axis has `input_shape[-1]` entries."""
        shape = (input_shape[-1], self.units)
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias") if self.use_bias else None

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return self._activate(primitives.linear(x, self.kernel, self.bias))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """`(..., in)` to `(..., units)`."""
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        initializer = keras.initializers.serialize(self.kernel_initializer)
        own = {"units": self.units, "use_bias": self.use_bias, "activation": self.activation}
        return {**super().get_config(), **own, "kernel_initializer": initializer}


@keras.saving.register_keras_serializable(PACKAGE)
class Embedding(keras.layers.Layer):
    """`nn.Embedding`: a table `(input_dim, output_dim)` whose rows are looked up, and which may also be the output.

    Args:
        input_dim: Rows, such as the size of the vocabulary.
        output_dim: Size of a row.
        embeddings_initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        ids: Integers `(...)`; the result is `(..., output_dim)`.
    """

    def __init__(
        self, input_dim: int, output_dim: int, embeddings_initializer: Any = "random_normal", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, input_shape: Any = None) -> None:
        """Creates the table."""
        shape = (self.input_dim, self.output_dim)
        self.embeddings = self.add_weight(shape=shape, initializer=self.embeddings_initializer, name="embeddings")

    def call(self, ids: Tensor) -> Tensor:
        """Looks rows up."""
        return keras.ops.cast(primitives.embedding(self.embeddings, ids), self.compute_dtype)

    def project(self, x: Tensor, bias: Any = None) -> Tensor:
        """Scores of every row: `x @ table^T + bias`, `(..., output_dim)` to `(..., input_dim)` (a tied output)."""
        return primitives.linear(x, self.embeddings, bias, transposed=True)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """`(...)` to `(..., output_dim)`."""
        return (*input_shape, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        initializer = keras.initializers.serialize(self.embeddings_initializer)
        own = {"input_dim": self.input_dim, "output_dim": self.output_dim, "embeddings_initializer": initializer}
        return {**super().get_config(), **own}


class _Norm(keras.layers.Layer):
    """What the two norms share: a learned scale over the last axis and an epsilon."""

    has_bias = False

    def __init__(self, epsilon: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates scale, and bias where the norm has one, of size `input_shape[-1]`."""
        shape = (input_shape[-1],)
        self.scale = self.add_weight(shape=shape, initializer="ones", name="scale")
        self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias") if self.has_bias else None

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(PACKAGE)
class LayerNormalization(_Norm):
    """`nn.LayerNorm` over the last axis.

    Args:
        epsilon: Added to the variance.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`, and so is the result.

    Reference: Ba et al. 2016, arXiv:1607.06450.
    """

    has_bias = True

    def __init__(self, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(epsilon, **kwargs)

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return primitives.layer_norm(x, self.scale, self.bias, self.epsilon)


@keras.saving.register_keras_serializable(PACKAGE)
class RMSNormalization(_Norm):
    """`nn.RMSNorm` over the last axis: no mean is taken away and no bias added.

    Args:
        epsilon: Added to the mean square.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`, and so is the result.

    Reference: Zhang and Sennrich 2019, arXiv:1910.07467.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon, **kwargs)

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return primitives.rms_norm(x, self.scale, self.epsilon)

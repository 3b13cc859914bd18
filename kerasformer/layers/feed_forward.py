"""The position-wise feed-forward network of Transformer layers."""

from __future__ import annotations

from typing import Any, Unpack

import keras

from kerasformer.layers.activations import activation as get_activation
from kerasformer.layers.core import PACKAGE, Composite, Configured, Dense, Dropout, build_once
from kerasformer.layers.layer_types import Initializer, LayerOptions
from kerasformer.layers.tensor import Tensor, scaled


@keras.saving.register_keras_serializable(PACKAGE)
class FeedForward(Configured, Composite):
    """Position-wise feed-forward network.

    Computes `output(activation(intermediate(x)))`, or gated (GEGLU, SwiGLU) `output(activation(gate(x)) * up(x))`.

    Args:
        hidden_dim: Size `E` of the output.
        intermediate_dim: Size `F` of the intermediate layer.
        activation: Name of the activation.
        gated: Whether to use the gated form (Shazeer 2020, arXiv:2002.05202).
        use_bias: Whether the projections have a bias.
        output_bias: Whether the output projection has a bias; `use_bias` by default.
        gate_scale: Factor of what is activated (Falcon-H1).
        output_scale: Factor of the output, likewise.
        dropout: Dropout rate after the activation.
        kernel_initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`; the result has the same shape.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.3.
    """

    def __init__(
        self,
        hidden_dim: int,
        intermediate_dim: int,
        activation: str = "gelu",
        gated: bool = False,
        use_bias: bool = True,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        output_bias: bool | None = None,
        gate_scale: float = 1.0,
        output_scale: float = 1.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim, self.intermediate_dim = hidden_dim, intermediate_dim
        self.activation, self.gated = activation, gated
        self.use_bias, self.dropout = use_bias, dropout
        self.gate_scale, self.output_scale = gate_scale, output_scale
        self.output_bias = use_bias if output_bias is None else output_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._activate = get_activation(activation)
        # Names as in the literature: with a gate, the activation applies to `gate` and not to `up`.
        self.intermediate: Any = None
        self.gate: Any = None
        self.up: Any = None
        if gated:
            self.gate = self._dense(intermediate_dim, use_bias, "gate")
            self.up = self._dense(intermediate_dim, use_bias, "up")
        else:
            self.intermediate = self._dense(intermediate_dim, use_bias, "intermediate")
        self.output_dense = self._dense(hidden_dim, self.output_bias, "output")
        self.activation_dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def _dense(self, units: int, use_bias: bool, name: str) -> Dense:
        initializer = keras.initializers.get(keras.initializers.serialize(self.kernel_initializer))
        return Dense(units, use_bias, kernel_initializer=initializer, name=name, dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(..., E)`."""
        for layer in (self.intermediate, self.gate, self.up):
            if layer is not None:
                build_once(layer, input_shape)
        build_once(self.output_dense, (*input_shape[:-1], self.intermediate_dim))

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Applies the layer."""
        y = scaled((self.gate if self.gated else self.intermediate)(x), self.gate_scale)
        y = self._activate(y) * self.up(x) if self.gated else self._activate(y)
        return scaled(self.output_dense(self.activation_dropout(y, training=training)), self.output_scale)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(..., in)` to `(..., E)`."""
        return (*input_shape[:-1], self.hidden_dim)

"""Long short-term memory in both directions over padded rows.

Reference: Hochreiter and Schmidhuber 1997, "Long Short-Term Memory"; `nn.LSTM` of PyTorch.
"""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from kerasformer.layers import primitives
from kerasformer.layers.core import PACKAGE, Composite, Configured, OptionalOutputs, build_once
from kerasformer.layers.layer_types import LayerOptions
from kerasformer.layers.primitives import LSTMWeights
from kerasformer.layers.tensor import Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class LSTM(Configured, OptionalOutputs):
    """Long short-term memory over the entries of each row, from the first to the last.

    Args:
        units: Size `H` of the state.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`; the result is `(B, T, H)`.
    """

    def __init__(self, units: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        gates = 4 * self.units
        self.weights_of_gates = LSTMWeights(
            self.add_weight(shape=(input_shape[-1], gates), initializer="glorot_uniform", name="input_kernel"),
            self.add_weight(shape=(gates,), initializer="zeros", name="input_bias"),
            self.add_weight(shape=(self.units, gates), initializer="orthogonal", name="kernel"),
            self.add_weight(shape=(gates,), initializer="zeros", name="bias"),
        )

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return primitives.lstm(x, self.weights_of_gates)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to `(B, T, H)`."""
        return (*input_shape[:-1], self.units)


@keras.saving.register_keras_serializable(PACKAGE)
class BidirectionalLSTM(Configured, Composite):
    """Two `LSTM`, one from the first entry of a row to the last, one from the last to the first.

    Args:
        units: Size `H` of the state of each direction.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`, with padding at the end of rows.
        lengths: Number of entries of each row that are no padding, int32 `(B,)`.

    Returns:
        `(B, T, 2 * H)`: the states of the first direction, then those of the second; arbitrary numbers for padding.
    """

    def __init__(self, units: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.forwards = LSTM(units, name="forward", dtype=self.dtype_policy)
        self.backwards = LSTM(units, name="backward", dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        build_once(self.forwards, input_shape)
        build_once(self.backwards, input_shape)

    def call(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Applies both."""
        # Real entries are reversed and padding follows them, so that neither direction reads padding before them.
        last = ops.expand_dims(lengths, 1) - 1
        slots = ops.maximum(last - ops.arange(ops.shape(x)[1], dtype="int32"), 0)
        slots = ops.expand_dims(slots, -1)
        backwards = self.backwards(ops.take_along_axis(x, slots, axis=1))
        return ops.concatenate([self.forwards(x), ops.take_along_axis(backwards, slots, axis=1)], axis=-1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to `(B, T, 2 * H)`."""
        return (*input_shape[:-1], 2 * self.units)

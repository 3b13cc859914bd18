"""Fixed sinusoidal positions."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.core import PACKAGE, Configured, as_ids
from kerasformer.layers.layer_types import LayerOptions
from kerasformer.layers.tensor import Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class SinusoidalPositions(Configured):
    """Fixed sinusoidal position embeddings, computed in float32.

    The vectors are not stored: CTRL's configuration has 50,000 positions, whose table would take 256 MB in each
    function of an exported model.

    Args:
        max_length: Number of positions.
        hidden_dim: Size of a vector; even.
        interleaved: Whether sines and cosines alternate, as in the paper; otherwise all sines precede all cosines.
        endpoint: Whether the last frequency is 1/10000 (tensor2tensor, XGLM); otherwise, as in the paper, it is the one
            before it in the series.
        zero_row: Position whose vector is 0, such as the id of the padding token (fairseq); optional.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        positions: Integers `(...)`; the result is `(..., hidden_dim)`.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """

    def __init__(
        self,
        max_length: int,
        hidden_dim: int,
        interleaved: bool = True,
        endpoint: bool = False,
        zero_row: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if hidden_dim % 2:
            raise InputError(f"hidden_dim must be even for sinusoidal positions. Received: hidden_dim={hidden_dim}")
        if endpoint and hidden_dim < 4:
            raise InputError(
                "Sinusoidal positions with endpoint=True need hidden_dim of at least 4. "
                f"Received: hidden_dim={hidden_dim}"
            )
        self.max_length, self.hidden_dim, self.interleaved = max_length, hidden_dim, interleaved
        self.endpoint, self.zero_row = endpoint, zero_row
        self.autocast = False  # floating-point positions would be rounded to half precision
        self._frequencies = frequencies(hidden_dim, endpoint).astype("float32")

    def call(self, positions: Tensor) -> Tensor:
        """Computes the vectors."""
        positions = ops.expand_dims(as_ids(positions), -1)
        angles = ops.cast(positions, "float32") * self._frequencies
        waves = ops.sin(angles), ops.cos(angles)
        if self.interleaved:
            vectors = ops.reshape(ops.stack(waves, axis=-1), (*ops.shape(angles)[:-1], self.hidden_dim))
        else:
            vectors = ops.concatenate(waves, axis=-1)
        if self.zero_row is not None:
            vectors = vectors * ops.cast(positions != self.zero_row, "float32")
        return ops.cast(vectors, self.compute_dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...] | None) -> tuple[int | None, ...]:
        """Maps `(...)` to `(..., hidden_dim)`."""
        return (*(input_shape or (None, None)), self.hidden_dim)


def sinusoids(max_length: int, hidden_dim: int, interleaved: bool = True) -> np.ndarray:
    """Returns a table with the vectors of `SinusoidalPositions`, float32 `(max_length, hidden_dim)`.

    An odd `hidden_dim` is possible if sines and cosines are interleaved; the last cosine is then left out.
    """
    angle = np.arange(max_length)[:, None] * frequencies(hidden_dim)
    waves = np.stack([np.sin(angle), np.cos(angle)], axis=-1 if interleaved else 1)
    return waves.reshape(max_length, -1)[:, :hidden_dim].astype("float32")


def frequencies(hidden_dim: int, endpoint: bool = False) -> np.ndarray:
    """Returns the frequencies of `SinusoidalPositions`, float64 `(hidden_dim / 2 rounded up,)`."""
    exponents: np.ndarray = -np.arange(0, hidden_dim, 2) / (hidden_dim - 2 if endpoint else hidden_dim)
    return 10000.0**exponents

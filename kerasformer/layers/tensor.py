"""The tensor type, selection of tokens, and reshapes between hidden vectors and heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.errors import InputError

Tensor = Any
"""A tensor of the Keras backend in use, or a symbolic one: backends share no class."""

Shape = tuple[int | None, ...]
"""Shape of a tensor; `None` for an unknown dimension."""

Dimension = int | Tensor
"""Size of an axis: a number, or a tensor or a name that stands for it in a graph."""

TensorFunction = Callable[..., Any]
"""A function of tensors, which returns one or a structure of several."""

Index = int | slice | tuple[slice, ...] | None
"""Index of a part of an array."""

_CONVERTED_AT_ONCE = 2**22
"""Number of values of a matrix that are converted to another data type at once."""


def parts_to_convert(x: Tensor, weight: Tensor, axis: int) -> Sequence[Index]:
    """Returns the indices of the parts of a matrix that are converted one after the other, see `in_dtype_of`.

    Args:
        x: The activation that the matrix is multiplied with.
        weight: The matrix.
        axis: Axis of the outputs of the product, along which it is divided.

    Returns:
        Indices as for an array; `[None]` for a matrix that is small or need not be converted.
    """
    count, width = weight.shape[axis], weight.shape[1 - axis]
    step = max(1, _CONVERTED_AT_ONCE // width)
    if weight.dtype == x.dtype or count <= step:
        return [None]
    slices = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    return slices if axis == 0 else [(slice(None), part) for part in slices]


def in_dtype_of(x: Tensor, weight: Tensor, part: Index = None) -> Tensor:
    """Converts a weight to the data type of the activation that it is multiplied with.

    In a graph of TensorFlow, the conversion waits for the activation. Otherwise all weights would be converted at the
    start, since they depend on nothing else, and the memory of a model stored in 16 bits would be that of float32.

    Args:
        x: The activation, or any tensor of its data type that must be computed before.
        weight: The weight.
        part: Index of a part of the weight; `None` for the whole weight.
    """
    if weight.dtype == x.dtype:
        return weight
    if keras.backend.backend() != "tensorflow":
        return ops.cast(weight if part is None else weight[part], x.dtype)
    import tensorflow as tf

    with tf.control_dependencies([x]):
        return tf.cast(weight if part is None else weight[part], x.dtype)


def scaled(x: Tensor, scale: float) -> Tensor:
    """Multiplies by a constant; 1 adds no operation."""
    return x if scale == 1.0 else x * ops.cast(scale, x.dtype)


def shifted(x: Tensor, distance: int, count: int | None = None) -> list[Tensor]:
    """Returns the neighbors of each token up to a distance: the tokens before it, itself, and the tokens after it.

    Args:
        x: `(B, T, E)`.
        distance: Number of neighbors on each side; beyond the ends of the text they are 0.
        count: Number of first tokens whose neighbors are returned; all by default.

    Returns:
        `2 * distance + 1` tensors `(B, count or T, E)`.
    """
    length = ops.shape(x)[1] if count is None else count
    padded = ops.pad(x, ((0, 0), (distance, distance), (0, 0)))
    return [
        x if start == distance and count is None else padded[:, start : start + length]
        for start in range(2 * distance + 1)
    ]


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text that a layer computes; all by default.

    Attributes:
        count: Number of the first tokens.
        slots: Slot of the only token of each row, int32 `(B,)`, instead of `count`.
    """

    count: int | None = None
    slots: Tensor | None = None

    @property
    def all(self) -> bool:
        """Whether these are all tokens."""
        return self.count is None and self.slots is None

    def of(self, x: Tensor) -> Tensor:
        """Selects the tokens from `(B, T, E)`, or from `(B, T)`."""
        if self.slots is None:
            return x if self.count is None else x[:, : self.count]
        index = ops.reshape(self.slots, (-1, 1, 1) if len(x.shape) == 3 else (-1, 1))
        return ops.take_along_axis(x, index, axis=1)


def at_slots(x: Tensor, slots: Tensor) -> Tensor:
    """Selects one slot of each row, int32 `(B,)`, from states `(B, T, E)`: `(B, E)`."""
    return ops.take_along_axis(x, ops.reshape(slots, (-1, 1, 1)), axis=1)[:, 0]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits `(B, T, H * D)` into heads `(B, H, T, D)`."""
    batch, length = ops.shape(x)[:2]
    return ops.transpose(ops.reshape(x, (batch, length, x.shape[-1] // head_dim, head_dim)), (0, 2, 1, 3))


def merge_heads(x: Tensor) -> Tensor:
    """Merges heads `(B, H, T, D)` into `(B, T, H * D)`."""
    batch, heads, length, head_dim = ops.shape(x)
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch, length, heads * head_dim))


def zero_padding(x: Tensor, mask: Tensor) -> Tensor:
    """Sets the vectors of padding to 0.

    Args:
        x: `(B, T, E)`.
        mask: 1 for real tokens, `(B, T)`.
    """
    return x * ops.expand_dims(ops.cast(mask, x.dtype), -1)


def is_concrete(value: object) -> bool:
    """Whether a value is an array or an eager tensor, rather than a symbolic tensor of a graph."""
    if not ops.is_tensor(value):
        return isinstance(value, np.ndarray | list | tuple)
    if keras.backend.backend() == "jax":
        import jax

        return not isinstance(value, jax.core.Tracer)
    return hasattr(value, "numpy") and not isinstance(value, keras.KerasTensor)


def check_mask(mask: Tensor | None) -> None:
    """Raises an `InputError` for numbers for each query in the place of a mask, such as the values of attention.

    It is applied to arrays and to the inputs of functional models. Within a graph a mask may be of floats: Keras builds
    a saved model with floating-point inputs, and leaves out weights of layers that fail then.
    """
    if mask is not None and len(mask.shape) > 2 and "float" in str(mask.dtype):
        raise InputError(
            "attention_mask must be boolean or integers; True or 1 attends. A layer's arguments are query, key_value "
            "and attention_mask: attention(x) for self-attention, attention(x, memory) for cross attention, and bias= "
            f"for numbers that are added to scores. Received: {mask.dtype} of shape {mask.shape}"
        )

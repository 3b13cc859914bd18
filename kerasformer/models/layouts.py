"""Layouts: how a tensor of a checkpoint arranges one or several variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.layers.positions import sinusoids


class Layout:
    """Arrangement of variables in a tensor of a checkpoint; by default they are concatenated along the first axis.

    Shapes and values are those of PyTorch: a variable `(in, out)` of a transposed row is `(out, in)` here.

    Attributes:
        axis: Axis of concatenation.
    """

    axis: int = 0

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Returns the shape of the tensor from the shapes of the variables."""
        total = list(shapes[0])
        total[self.axis] = sum(shape[self.axis] for shape in shapes)
        return tuple(total)

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Splits the tensor into the values of variables with these shapes."""
        ends = np.cumsum([shape[self.axis] for shape in shapes])[:-1]
        return np.split(tensor, ends, axis=self.axis)

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Joins the values of the variables to the tensor."""
        return np.concatenate(values, axis=self.axis)


@dataclass(frozen=True)
class SideBySide(Layout):
    """Variables concatenated along an axis, such as fused queries, keys and values (GPT-2).

    Attributes:
        axis: Axis of concatenation.
    """

    axis: int = 0


@dataclass(frozen=True)
class Interleaved(Layout):
    """Variables interleaved by heads along the first axis, such as `(H, 3, D)` for queries, keys and values of BLOOM.

    Attributes:
        groups: Number of heads, or of groups of heads, each with an equal share of every variable.
    """

    groups: int

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `Layout.split`."""
        grouped = tensor.reshape(self.groups, -1, *tensor.shape[1:])
        ends = np.cumsum([shape[0] // self.groups for shape in shapes])[:-1]
        return [
            part.reshape(shape) for part, shape in zip(np.split(grouped, ends, axis=1), map(tuple, shapes), strict=True)
        ]

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.joined`."""
        grouped = [value.reshape(self.groups, -1, *value.shape[1:]) for value in values]
        return np.concatenate(grouped, axis=1).reshape(-1, *values[0].shape[1:])


@dataclass(frozen=True)
class Stacked(Layout):
    """Variables of equal shape stacked along a new first axis, which has size 1 for a single variable."""

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """See `Layout.shape`."""
        return (len(shapes), *shapes[0])

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `Layout.split`."""
        return list(tensor)

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.joined`."""
        return np.stack(values)


@dataclass(frozen=True)
class Offset(Layout):
    """Variable that is the tensor plus a constant, such as the scale of norms that multiply by `1 + w` (Gemma).

    Attributes:
        offset: The constant.
    """

    offset: float = 1.0

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `Layout.split`."""
        return [tensor.astype("float32") + np.float32(self.offset)]  # 1 + w has more digits than a w of 16 bits

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.joined`."""
        return (values[0].astype("float32") - np.float32(self.offset)).astype(values[0].dtype)


@dataclass(frozen=True)
class Convolution(Layout):
    """Kernel of a convolution over tokens: `(out, in, size)` in the tensor, `(size * in, out)` in the variable.

    Attributes:
        size: Number of tokens in the kernel.
    """

    size: int = 1

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """See `Layout.shape`."""
        rows, columns = shapes[0]
        return columns, rows // self.size, self.size

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `Layout.split`."""
        return [tensor.transpose(2, 1, 0).reshape(-1, tensor.shape[0])]

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.joined`."""
        return values[0].reshape(self.size, -1, values[0].shape[1]).transpose(2, 1, 0)


@dataclass(frozen=True)
class SinusoidTable(Layout):
    """Tensor of a row without variables: a table of sinusoids, all sines before all cosines, which layers compute.

    Attributes:
        max_length: Number of positions.
        hidden_dim: Size of a vector.
    """

    max_length: int
    hidden_dim: int

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """See `Layout.shape`."""
        return self.max_length, self.hidden_dim

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Checks the values, within the precision of bfloat16.

        Raises:
            ValueError: other values.
        """
        error = np.abs(tensor.astype("float32") - self.joined(())).max()
        if not error < 2**-8:
            raise ValueError(f"expected a table of sinusoids, received values that differ by up to {error:.2g}")
        return []

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the table."""
        return sinusoids(self.max_length, self.hidden_dim, interleaved=False)

"""Weights of ONNX files: their layouts and their quantization.

Weights are never held in a protobuf in memory: a `StoredWeight` computes its values from the Keras variable when the
file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import keras
import numpy as np
from onnx import TensorProto, helper

from kerasformer.errors import ExportError
from kerasformer.export.formats.onnx import rounding as onnx_rounding
from kerasformer.export.graph.variable_values import value_of
from kerasformer.export.quantization.compensation import RoundedKernel

PAIRS = "_pairs"
"""Part of the names of matrices whose adjacent levels have limited sums."""
SCALED = "_scaled"
"""End of the names of matrices that are divided by the scales of their input's channels."""


@dataclass(frozen=True)
class StoredWeight:
    """A tensor of the file.

    Attributes:
        name: Name of the initializer.
        shape: Shape as stored.
        kind: Number of the type in `TensorProto`.
        produce: Returns an array whose bytes are those of the tensor; four-bit values are packed two in a byte.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    produce: Callable[[], np.ndarray]

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""
        count = int(np.prod(self.shape, dtype=np.int64))
        if self.kind == TensorProto.INT4:
            return -(-count // 2)
        return count * helper.tensor_dtype_to_np_dtype(self.kind).itemsize

    def proto(self) -> TensorProto:
        """Returns a `TensorProto` with name, type and shape, without values."""
        return TensorProto(name=self.name, data_type=self.kind, dims=self.shape)


@dataclass(frozen=True)
class Quantized:
    """Initializers of a quantized matrix.

    Attributes:
        data: Name of the integers.
        scale: Name of the float32 scales.
        size: Number of outputs `N` and inputs `K`.
        bits: Bits of a value, 8 or 4.
        block: Number of values of an output that share a scale; all of them if `None`.
    """

    data: str
    scale: str
    size: tuple[int, int]
    bits: int = 8
    block: int | None = None


class WeightStore:
    """Collection of the weights that the graphs of a bundle use, each stored once per layout.

    A matrix is passed as names of variables that are concatenated along their outputs. The variables have the shape
    `(N, K)` if `output_first`, else `(K, N)`.

    Args:
        variables: Variables by the name of their initializer.

    Attributes:
        stored: Weights that were requested, by name of the initializer.
    """

    def __init__(self, variables: Mapping[str, keras.Variable]) -> None:
        self.variables = variables
        self.stored: dict[str, StoredWeight] = {}

    def plain(self, name: str, permutation: Sequence[int] | None = None) -> str:
        """Stores a variable unchanged or with its axes permuted, and returns the initializer's name."""
        variable = self.variables[name]
        axes = tuple(range(len(variable.shape))) if permutation is None else tuple(permutation)
        stored = name if permutation is None else f"{name}.permuted_{'_'.join(map(str, axes))}"
        dtype = keras.backend.standardize_dtype(variable.dtype)
        dtype = "float32" if dtype in ("float16", "bfloat16") else dtype
        self._store(stored, [variable.shape[a] for a in axes], dtype, lambda: value_of(variable).transpose(axes))
        return stored

    def joined(self, names: Sequence[str], axis: int = -1, dtype: str = "float32") -> str:
        """Stores variables concatenated along an axis, and returns the initializer's name."""
        if len(names) == 1 and dtype == "float32":
            return self.plain(names[0])
        shapes = [list(self.variables[name].shape) for name in names]
        shape = shapes[0]
        shape[axis] = sum(other[axis] for other in shapes)
        stored = "+".join(names) + ("" if dtype == "float32" else f".{dtype}")
        self._store(stored, shape, dtype, lambda: self._values(names, axis))
        return stored

    def gates(self, names: Sequence[str]) -> str:
        """Stores weights of an LSTM, `(N, 4 * H)` each or `(4 * H,)`, as ONNX has them; returns the initializer's name.

        Matrices are `(1, 4 * H, N)`, and biases `(1, 8 * H)`, with the gates in the order input, output, forget,
        candidate instead of input, forget, candidate, output.
        """
        shapes = [tuple(self.variables[name].shape)[::-1] for name in names]
        shape = (1, sum(shape[0] for shape in shapes), *shapes[0][1:])

        def produce() -> np.ndarray:
            parts = [np.split(value_of(self.variables[name]).astype("float32").T, 4) for name in names]
            return np.concatenate([part[gate] for part in parts for gate in (0, 3, 1, 2)])[None]

        stored = f"{'+'.join(names)}.gates"
        self._store(stored, shape, "float32", produce)
        return stored

    def size(self, names: Sequence[str], output_first: bool) -> tuple[int, int]:
        """Returns the number of outputs `N` and of inputs `K`."""
        shapes = [shape if output_first else shape[::-1] for shape in (self.variables[n].shape for n in names)]
        return sum(shape[0] for shape in shapes), shapes[0][1]

    def channels(
        self, names: Sequence[str], output_first: bool, pairs: bool, input_scale: np.ndarray | None = None
    ) -> Quantized:
        """Stores int8 `(K, N)` and a scale for each output; see `rounding.in_channels`.

        Args:
            names: Names of the variables.
            output_first: Whether the variables have the shape `(N, K)`.
            pairs: Whether to limit the sums of adjacent levels.
            input_scale: Scales of the input's channels `(K,)`, by which the matrix is divided; optional.
        """
        rows, columns = size = self.size(names, output_first)
        scaled = "" if input_scale is None else SCALED
        matrix = Quantized(f"{'+'.join(names)}.int8{PAIRS if pairs else ''}{scaled}", "", size)

        halves = self._halves(names, output_first, _in_channels(pairs, input_scale))
        return self._quantized(matrix, TensorProto.INT8, (columns, rows), (rows,), halves)

    def sums_and_bias(
        self, names: Sequence[str], output_first: bool, pairs: bool, input_scale: np.ndarray | None, bias: str
    ) -> str:
        """Stores the sums over the inputs of a matrix from `channels`, dequantized, and a bias: `(2, N)`.

        Args:
            names: Names of the variables of the matrix.
            output_first: As for `channels`.
            pairs: As for `channels`.
            input_scale: As for `channels`.
            bias: Name of the initializer of the bias `(N,)`.

        Returns:
            The initializer's name.
        """
        rows, _ = self.size(names, output_first)
        added, quantize = self.stored[bias], _in_channels(pairs, input_scale)

        def produce() -> np.ndarray:
            levels, scales = quantize(self._rows(names, output_first))
            return np.stack([levels.sum(axis=0, dtype=np.int64) * scales, added.produce()])

        stored = f"{'+'.join(names)}.sums_and_bias"
        self._store(stored, (2, rows), "float32", produce)
        return stored

    def rows(self, name: str) -> Quantized:
        """Stores a table in int8 `(N, K)`, with a scale for each row."""
        size = self.size([name], output_first=True)

        def quantize(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            levels, scales = onnx_rounding.in_channels(matrix, pairs=False)
            return levels.T, scales

        halves = self._halves([name], True, quantize)
        return self._quantized(Quantized(f"{name}.int8_rows", "", size), TensorProto.INT8, size, size[:1], halves)

    def blocks(
        self,
        names: Sequence[str],
        output_first: bool,
        bits: int,
        block: int,
        rounded: Callable[[np.ndarray], RoundedKernel] | None = None,
    ) -> Quantized:
        """Stores uint8 `(N, blocks, block * bits / 8)` and a scale for each block; see `rounding.in_blocks`.

        A scale is shared by a block and not by a whole row, because MatMulNBits quantizes activations in the same
        blocks, so that a large value affects only its own block.

        Args:
            names: Names of the variables.
            output_first: Whether the variables have the shape `(N, K)`.
            bits: Bits of a value, 8 or 4.
            block: Number of values that share a scale.
            rounded: Function that rounds the matrix `(N, K)` to four bits; `None` for the least error of each block.
        """
        rows, columns = size = self.size(names, output_first)
        count = -(-columns // block)
        matrix = Quantized(f"{'+'.join(names)}.uint{bits}_{block}", "", size, bits, block)
        halves = self._halves(
            names, output_first, lambda m: onnx_rounding.in_blocks(m, bits, block, rounded and rounded(m))
        )
        return self._quantized(matrix, TensorProto.UINT8, (rows, count, block * bits // 8), (rows, count), halves)

    def offsets(self, matrix: Quantized, kernel: Callable[[], RoundedKernel]) -> str:
        """Stores the offsets of a matrix of `blocks`, float32 `(blocks, N)`, and returns the initializer's name."""
        rows, columns = matrix.size
        shape = columns // (matrix.block or columns), rows
        stored = f"{matrix.data}.offset"
        self._store(stored, shape, "float32", lambda: np.ascontiguousarray(np.asarray(kernel().offsets).T))
        return stored

    def columns(
        self,
        names: Sequence[str],
        output_first: bool,
        bits: int,
        block: int | None,
        rounded: Callable[[np.ndarray], RoundedKernel] | None = None,
    ) -> Quantized:
        """Stores int8 or int4 `(K, N)` and scales; see `rounding.in_columns` and `blocks`.

        The scales are `(blocks, N)`, or `(N,)` if `block` is `None`.
        """
        rows, columns = size = self.size(names, output_first)
        matrix = Quantized(f"{'+'.join(names)}.int{bits}_{block or 'channel'}", "", size, bits, block)
        width = block or columns + columns % 2  # levels are packed in pairs
        halves = self._halves(
            names, output_first, lambda m: onnx_rounding.in_columns(m, bits, width, rounded and rounded(m))
        )
        data_type = TensorProto.INT8 if bits == 8 else TensorProto.INT4
        scales = (rows,) if block is None else (-(-columns // block), rows)
        return self._quantized(matrix, data_type, (columns, rows), scales, halves)

    def _halves(
        self, names: Sequence[str], output_first: bool, quantize: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    ) -> _Halves:
        return _Halves(lambda: quantize(self._rows(names, output_first)))

    def _quantized(
        self, matrix: Quantized, data_type: int, shape: tuple[int, ...], scales: tuple[int, ...], halves: _Halves
    ) -> Quantized:
        matrix = replace(matrix, scale=f"{matrix.data}.scale")
        if matrix.data not in self.stored:
            self.stored[matrix.data] = StoredWeight(matrix.data, shape, data_type, halves.data)
            self.stored[matrix.scale] = StoredWeight(matrix.scale, scales, TensorProto.FLOAT, halves.scales)
        return matrix

    def _values(self, names: Sequence[str], axis: int) -> np.ndarray:
        values = [value_of(self.variables[name]) for name in names]
        return values[0] if len(values) == 1 else np.concatenate(values, axis=axis)

    def _rows(self, names: Sequence[str], output_first: bool) -> np.ndarray:
        """Returns the matrix as `(N, K)`."""
        return self._values(names, 0) if output_first else self._values(names, 1).T

    def _store(self, name: str, shape: Sequence[int], dtype: str, produce: Callable[[], np.ndarray]) -> None:
        def narrowed() -> np.ndarray:
            value = produce()
            if dtype == "float16" and np.abs(value).max(initial=0) > np.finfo(dtype).max:
                raise ExportError(
                    f"float16 represents values up to 65504. Received: {np.abs(value).max():.3g} in {name}. "
                    "Store it in float32 with the recipe's `layers`"
                )
            return value.astype(dtype, copy=False)

        data_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.stored.setdefault(name, StoredWeight(name, tuple(shape), data_type, narrowed))


class _Halves:
    """Integers and scales of a matrix, which is quantized once although they are written one after the other."""

    def __init__(self, quantize: Callable[[], tuple[np.ndarray, np.ndarray]]) -> None:
        self.quantize = quantize
        self.pending_scales: np.ndarray | None = None

    def data(self) -> np.ndarray:
        data, self.pending_scales = self.quantize()
        return data

    def scales(self) -> np.ndarray:
        scales = self.pending_scales if self.pending_scales is not None else self.quantize()[1]
        self.pending_scales = None
        return scales


def _in_channels(pairs: bool, input_scale: np.ndarray | None) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Returns a function that divides a matrix `(N, K)` by the scales of its input, and quantizes it."""

    def quantize(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return onnx_rounding.in_channels(matrix if input_scale is None else matrix / input_scale, pairs)

    return quantize

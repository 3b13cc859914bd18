"""Weights of an ONNX file: which layout each has, how it is quantized, and how the file is written around them.

Weights never enter a protobuf in memory. The file is written in one pass: the graph, then each weight straight from
its Keras variable, one at a time, so that writing costs little more memory than the largest weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import keras
import numpy as np
import onnx
from onnx import TensorProto, helper

Progress = Callable[[int, int], None]
"""Called with the bytes of weights written so far and in all."""

INLINE_LIMIT = 2_000_000_000
"""Bytes of weights above which they go to a file of their own: a protobuf ends at 2 GiB."""

_ALIGNMENT = 4096  # of weights in their own file, so that a runtime can map them
_ROWS = 4096  # rows quantized at a time


@dataclass(frozen=True)
class StoredWeight:
    """A tensor of the file.

    Attributes:
        name: Of the initializer.
        shape: As stored.
        dtype: NumPy's name of the type.
        produce: Makes the array.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    produce: Callable[[], np.ndarray]

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def proto(self) -> TensorProto:
        """Name, type and shape, without the values."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        return TensorProto(name=self.name, data_type=kind, dims=self.shape)


@dataclass(frozen=True)
class Blocks:
    """A quantized matrix: uint8 `(N, blocks, block)` with zero at 128, and float32 scales `(N, blocks)`.

    Attributes:
        data: Name of the uint8 tensor.
        scale: Name of the scales.
        size: Outputs `N` and inputs `K`; the last block is padded with zeros where `K` is no multiple of `block`.
        block: Values that share a scale.
    """

    data: str
    scale: str
    size: tuple[int, int]
    block: int


class WeightStore:
    """Collects the weights that a graph uses, each once per layout.

    Args:
        variables: By the name that their initializers shall have.
    """

    def __init__(self, variables: Mapping[str, keras.Variable]) -> None:
        self.variables = variables
        self.stored: dict[str, StoredWeight] = {}

    def plain(self, name: str, permutation: Sequence[int] | None = None) -> str:
        """Stores a variable as it is, or with its axes permuted; returns the initializer's name."""
        variable = self.variables[name]
        axes = tuple(range(len(variable.shape))) if permutation is None else tuple(permutation)
        stored = name if permutation is None else f"{name}.permuted_{'_'.join(map(str, axes))}"
        dtype = keras.backend.standardize_dtype(variable.dtype)
        dtype = "float32" if dtype in ("float16", "bfloat16") else dtype
        self._store(stored, [variable.shape[a] for a in axes], dtype, lambda: _value(variable).transpose(axes))
        return stored

    def joined(self, names: Sequence[str], axis: int = -1) -> str:
        """Stores variables one after the other along an axis; returns the initializer's name."""
        if len(names) == 1:
            return self.plain(names[0])
        shapes = [list(self.variables[name].shape) for name in names]
        shape = shapes[0]
        shape[axis] = sum(each[axis] for each in shapes[1:]) + shape[axis]
        stored = "+".join(names)
        self._store(stored, shape, "float32", lambda: self._values(names, axis))
        return stored

    def size(self, names: Sequence[str], output_first: bool) -> tuple[int, int]:
        """Outputs `N` and inputs `K` of matrices whose outputs follow each other."""
        shapes = [shape if output_first else shape[::-1] for shape in (self.variables[n].shape for n in names)]
        return sum(shape[0] for shape in shapes), shapes[0][1]

    def blocks(self, names: Sequence[str], output_first: bool) -> Blocks:
        """Stores matrices whose outputs follow each other in 8 bits.

        Blocks rather than whole rows share a scale, because MatMulNBits quantizes the activations in the same blocks:
        one large value then harms its block alone.

        Args:
            names: Variables `(N, K)` if `output_first`, else `(K, N)`.
            output_first: How they lie in Keras.
        """
        rows, columns = self.size(names, output_first)
        block = _block_size(columns)
        count = -(-columns // block)
        stored = "+".join(names) if output_first else f"{'+'.join(names)}.transposed"
        blocks = Blocks(f"{stored}.uint8", f"{stored}.scale", (rows, columns), block)

        def matrix() -> np.ndarray:
            return self._values(names, axis=0) if output_first else self._values(names, axis=1).T

        self._store(blocks.data, (rows, count, block), "uint8", lambda: quantize(matrix(), block)[0])
        self._store(blocks.scale, (rows, count), "float32", lambda: block_scales(matrix(), block))
        return blocks

    def _values(self, names: Sequence[str], axis: int) -> np.ndarray:
        values = [_value(self.variables[name]) for name in names]
        return values[0] if len(values) == 1 else np.concatenate(values, axis=axis)

    def _store(self, name: str, shape: Sequence[int], dtype: str, produce: Callable[[], np.ndarray]) -> None:
        self.stored[name] = StoredWeight(name, tuple(shape), dtype, produce)


def _value(variable: keras.Variable) -> np.ndarray:
    value = keras.ops.convert_to_numpy(variable.value)
    return value if value.dtype.kind in "iub" else value.astype("float32", copy=False)


def _block_size(columns: int) -> int:
    """64, or a smaller power of two that wastes less on a narrow matrix."""
    return min((64, 32, 16), key=lambda block: (-(-columns // block) * block, -block))


def quantize(matrix: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric 8-bit values of `(N, K)`: uint8 `(N, blocks, block)` around 128 and float32 scales `(N, blocks)`."""
    scales = block_scales(matrix, block)
    data = np.empty((*scales.shape, block), dtype="uint8")
    for start in range(0, len(matrix), _ROWS):
        part = slice(start, start + _ROWS)
        values = np.rint(_in_blocks(matrix[part], block) / scales[part][..., None])
        data[part] = (np.clip(values, -127, 127) + 128).astype("uint8")
    return data, scales


def block_scales(matrix: np.ndarray, block: int) -> np.ndarray:
    """The largest magnitude of each block over 127; 1 for a block of zeros."""
    parts = [matrix[start : start + _ROWS] for start in range(0, len(matrix), _ROWS)]
    largest = np.concatenate([np.abs(_in_blocks(part, block)).max(axis=-1) for part in parts])
    return np.where(largest > 0, largest / 127, 1).astype("float32")


def _in_blocks(rows: np.ndarray, block: int) -> np.ndarray:
    count = -(-rows.shape[1] // block)
    padded = np.pad(rows, ((0, 0), (0, count * block - rows.shape[1])))
    return padded.reshape(len(rows), count, block)


def write_model(
    model: onnx.ModelProto, weights: Sequence[StoredWeight], path: Path, progress: Progress | None = None
) -> None:
    """Writes a model whose graph lacks `weights` together with them.

    Args:
        model: Without initializers for the weights.
        weights: Its weights.
        path: The file; weights of more than 2 GB in all go to `<path>_data` beside it.
        progress: Told how far it is.
    """
    total = sum(weight.num_bytes for weight in weights)
    track = _Tracker(total, progress)
    if total <= INLINE_LIMIT:
        _write_inline(model, weights, path, track)
        return
    references = []
    location = path.name + "_data"
    with path.with_name(location).open("wb") as file:
        for weight in weights:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            tensor = weight.proto()
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", location), ("offset", file.tell()), ("length", weight.num_bytes)):
                tensor.external_data.add(key=key, value=str(value))
            references.append(tensor)
            track.write(file, weight)
    complete = onnx.ModelProto()
    complete.CopyFrom(model)
    complete.graph.initializer.extend(references)
    path.write_bytes(complete.SerializeToString())


def _write_inline(model: onnx.ModelProto, weights: Sequence[StoredWeight], path: Path, track: _Tracker) -> None:
    """Protobuf's wire format: every field is a tag, a length and its content, so sizes are all that must be known."""
    shell = onnx.ModelProto()
    shell.CopyFrom(model)
    shell.ClearField("graph")
    graph = model.graph.SerializeToString()
    raw_data = TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number
    initializer = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
    heads = []
    for weight in weights:
        inner = weight.proto().SerializeToString() + _field(raw_data, weight.num_bytes)
        heads.append(_field(initializer, len(inner) + weight.num_bytes) + inner)
    size = len(graph) + sum(len(head) + weight.num_bytes for head, weight in zip(heads, weights, strict=True))
    with path.open("wb") as file:
        file.write(shell.SerializeToString())
        file.write(_field(onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number, size))
        file.write(graph)
        for head, weight in zip(heads, weights, strict=True):
            file.write(head)
            track.write(file, weight)


def _field(number: int, size: int) -> bytes:
    """Tag and length of a field of `size` bytes."""
    return bytes([*_varint(number << 3 | 2), *_varint(size)])


def _varint(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


class _Tracker:
    """Writes weights and tells how far it is."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self.progress, self.done = total, progress, 0

    def write(self, file: BinaryIO, weight: StoredWeight) -> None:
        array = weight.produce().astype(np.dtype(weight.dtype).newbyteorder("<"), copy=False)
        file.write(np.ascontiguousarray(array).data)
        self.done += weight.num_bytes
        if self.progress is not None:
            self.progress(self.done, self.total)

"""Writing of ONNX files in one pass: the graph, then each weight directly from its Keras variable, one at a time.

Writing needs little more memory than the largest weight. Weights are stored in the file itself, or in a data file
beside it if they are too large for one protobuf or are shared by several files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto

from kerasformer.basics.progress import CountProgress
from kerasformer.export.formats.onnx.weights import StoredWeight

INLINE_LIMIT = 100_000_000
"""Total size of weights in bytes above which they are stored in a data file.

ONNX Runtime maps a data file, but holds weights within a protobuf twice while it loads them; a protobuf is also limited
to 2 GiB.
"""

SHARED_LIMIT = 100_000
"""Size of a weight in bytes above which several files share it."""

_ALIGNMENT = 4096  # alignment of weights in a data file, so that a runtime can map them


@dataclass
class ModelFile:
    """A file to be written.

    Attributes:
        model: The model without initializers for the weights.
        weights: Its weights by name.
        standalone: Whether it shares no weights with other files.
    """

    model: onnx.ModelProto
    weights: Mapping[str, StoredWeight]
    standalone: bool = False


def write_models(files: Mapping[Path, ModelFile], progress: CountProgress | None = None) -> None:
    """Writes models together with their weights.

    Weights of more than 100 MB in total are stored in `<path>_data`. A weight that several files use is stored once, in
    the data file of the last of them, unless one of these files is standalone.

    Args:
        files: The files by path, all in the same folder.
        progress: Called with the number of bytes of weights that are written, and the total.
    """
    readers = Counter(name for file in files.values() for name in file.weights)
    weights = {name: weight for file in files.values() for name, weight in file.weights.items()}
    unshared = {name for file in files.values() if file.standalone for name in file.weights}
    large = {name for name, weight in weights.items() if weight.num_bytes > SHARED_LIMIT}
    shared = {name for name in large - unshared if readers[name] > 1}
    track = _Tracker(
        sum(weights[name].num_bytes * (1 if name in shared else readers[name]) for name in weights), progress
    )
    shared_initializers: dict[str, TensorProto] = {}
    for path, file in reversed(list(files.items())):
        too_large = sum(weight.num_bytes for weight in file.weights.values()) > INLINE_LIMIT
        external = [w for name, w in file.weights.items() if too_large or name in shared]
        new = [weight for weight in external if weight.name not in shared_initializers]
        initializers = {**shared_initializers, **_write_data(new, path.with_name(f"{path.name}_data"), track)}
        shared_initializers |= {name: tensor for name, tensor in initializers.items() if name in shared}
        model = onnx.ModelProto()
        model.CopyFrom(file.model)
        model.graph.initializer.extend(initializers[weight.name] for weight in external)
        names = {weight.name for weight in external}
        _write_model(model, [w for name, w in file.weights.items() if name not in names], path, track)


def _write_data(weights: Sequence[StoredWeight], path: Path, track: _Tracker) -> dict[str, TensorProto]:
    """Writes weights to a data file and returns initializers that refer to it."""
    initializers: dict[str, TensorProto] = {}
    if not weights:
        return initializers
    with path.open("wb") as file:
        for weight in weights:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            tensor = weight.proto()
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", path.name), ("offset", file.tell()), ("length", weight.num_bytes)):
                tensor.external_data.add(key=key, value=str(value))
            initializers[weight.name] = tensor
            track.write(file, weight)
    return initializers


def _write_model(model: onnx.ModelProto, weights: Sequence[StoredWeight], path: Path, track: _Tracker) -> None:
    """Writes a model in protobuf's wire format, where every field is a tag, a length and its content.

    Only the sizes of the weights must be known before their content is written.
    """
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
    """Returns the tag and the length of a field of `size` bytes."""
    return bytes([*_varint(number << 3 | 2), *_varint(size)])


def _varint(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


class _Tracker:
    """Writes weights and reports the progress."""

    def __init__(self, total: int, progress: CountProgress | None) -> None:
        self.total, self.progress, self.done = total, progress, 0

    def write(self, file: BinaryIO, weight: StoredWeight) -> None:
        array = weight.produce()
        file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
        self.done += weight.num_bytes
        if self.progress is not None:
            self.progress(self.done, self.total)

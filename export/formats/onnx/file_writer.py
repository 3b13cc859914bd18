"""ONNX files written in one pass: the graph, then each weight straight from its Keras variable, one at a time.

Writing costs little more memory than the largest weight. Weights lie in the file itself, or in a data file beside it
where they are too large for one protobuf or are read by several files.
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

from kerasformer.export.formats.onnx.weights import StoredWeight
from kerasformer.progress import CountProgress

INLINE_LIMIT = 2_000_000_000
"""Bytes of weights above which they go to a file of their own: a protobuf ends at 2 GiB."""

SHARED_LIMIT = 100_000
"""Bytes of a weight above which files that read it share it."""

_ALIGNMENT = 4096  # of weights in a data file, so that a runtime can map them


@dataclass
class ModelFile:
    """A file to be written.

    Attributes:
        model: Without initializers for the weights.
        weights: Its weights by their names.
        alone: It reads no other file's data.
    """

    model: onnx.ModelProto
    weights: Mapping[str, StoredWeight]
    alone: bool = False


def write_models(files: Mapping[Path, ModelFile], progress: CountProgress | None = None) -> None:
    """Writes models together with their weights.

    Weights of more than 2 GB in all go to `<path>_data` beside the file. A weight that several files read is stored
    once, in the data file of the last of them, unless one of these files is to stand alone.

    Args:
        files: In one folder.
        progress: Told how far it is.
    """
    readers = Counter(name for file in files.values() for name in file.weights)
    weights = {name: weight for file in files.values() for name, weight in file.weights.items()}
    alone = {name for file in files.values() if file.alone for name in file.weights}
    large = {name for name, weight in weights.items() if weight.num_bytes > SHARED_LIMIT}
    shared = {name for name in large - alone if readers[name] > 1}
    track = _Tracker(
        sum(weights[name].num_bytes * (1 if name in shared else readers[name]) for name in weights), progress
    )
    places: dict[str, TensorProto] = {}
    for path, file in reversed(list(files.items())):
        too_large = sum(weight.num_bytes for weight in file.weights.values()) > INLINE_LIMIT
        outside = [w for name, w in file.weights.items() if too_large or name in shared]
        new = [weight for weight in outside if weight.name not in places]
        found = {**places, **_write_data(new, path.with_name(f"{path.name}_data"), track)}
        places |= {name: tensor for name, tensor in found.items() if name in shared}
        model = onnx.ModelProto()
        model.CopyFrom(file.model)
        model.graph.initializer.extend(found[weight.name] for weight in outside)
        names = {weight.name for weight in outside}
        _write_model(model, [w for name, w in file.weights.items() if name not in names], path, track)


def _write_data(weights: Sequence[StoredWeight], path: Path, track: _Tracker) -> dict[str, TensorProto]:
    """Writes weights into a data file; returns initializers that point to it."""
    places: dict[str, TensorProto] = {}
    if not weights:
        return places
    with path.open("wb") as file:
        for weight in weights:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            tensor = weight.proto()
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", path.name), ("offset", file.tell()), ("length", weight.num_bytes)):
                tensor.external_data.add(key=key, value=str(value))
            places[weight.name] = tensor
            track.write(file, weight)
    return places


def _write_model(model: onnx.ModelProto, weights: Sequence[StoredWeight], path: Path, track: _Tracker) -> None:
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

    def __init__(self, total: int, progress: CountProgress | None) -> None:
        self.total, self.progress, self.done = total, progress, 0

    def write(self, file: BinaryIO, weight: StoredWeight) -> None:
        array = weight.produce()
        file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
        self.done += weight.num_bytes
        if self.progress is not None:
            self.progress(self.done, self.total)

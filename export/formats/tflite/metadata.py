"""Metadata inside of a TFLite file: what its tensors mean, and the vocabulary that makes texts into ids.

The metadata are a flatbuffer of their own (identifier `M001`) in a buffer of the model's; the files that they name lie
behind the model as an uncompressed ZIP archive, so that both are read where they are.

Schema: `mediapipe/tasks/metadata/metadata_schema.fbs`; format: https://ai.google.dev/edge/litert/conversion/tensorflow/metadata.
"""

from __future__ import annotations

import mmap
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerasformer.errors import ExportError, require
from kerasformer.export.formats.tflite.flatbuffer import MAX_BYTES
from kerasformer.export.formats.tflite.graph_skeleton import schema

_NAME = "TFLITE_METADATA"
# Places of fields in the tables of both schemas, in the order in which these declare them.
_FILE_NAME, _FILE_TYPE = 0, 2
_TENSOR_NAME, _TENSOR_DESCRIPTION, _TENSOR_CONTENT, _TENSOR_FILES = 0, 1, 3, 6
_GRAPH_INPUTS, _GRAPH_OUTPUTS, _GRAPH_INPUT_UNITS = 2, 3, 5
_METADATA_NAME, _METADATA_DESCRIPTION, _METADATA_GRAPHS, _METADATA_PARSER = 0, 1, 3, 7
_MODEL_VERSION, _MODEL_BUFFERS, _MODEL_METADATA, _MODEL_FIELDS = 0, 4, 6, 8
_ENTRY_NAME, _ENTRY_BUFFER = 0, 1
_BUFFER_DATA = 0
_LABELS, _VOCABULARY = 2, 5
_FEATURES = {0: 1, 1: {}}
"""A `Content` whose properties are `FeatureProperties`: plain numbers."""
_ALIGNMENT = 64
"""Of weights, which stay aligned when something is put in front of them."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The time of a file in an archive is part of its bytes."""


@dataclass(frozen=True)
class Tensor:
    """What a tensor means.

    Attributes:
        name: Under which the runtime looks for it.
        description: For people.
        labels: File with the name of each entry, a line each.
    """

    name: str
    description: str
    labels: str | None = None


@dataclass(frozen=True)
class VocabularyFile:
    """The tokenizer.

    Attributes:
        unit: `WORDPIECE` or `SENTENCEPIECE`.
        file: Name of its file.
        content: Of the file: a token a line, or a SentencePiece model.
    """

    unit: int
    file: str
    content: bytes


WORDPIECE, SENTENCEPIECE = 4, 5
"""Numbers of tokenizers in the schema's union of process units."""


def metadata(
    name: str, description: str, inputs: Sequence[Tensor], output: Tensor, vocabulary: VocabularyFile
) -> bytes:
    """The metadata of a model that reads a text.

    Args:
        name: Of the model.
        description: For people.
        inputs: In the order of the graph's inputs.
        output: The one output.
        vocabulary: Of its tokenizer.
    """
    file = {_FILE_NAME: vocabulary.file, _FILE_TYPE: _VOCABULARY}
    graph = {
        _GRAPH_INPUTS: [_tensor(each) for each in inputs],
        _GRAPH_OUTPUTS: [_tensor(output)],
        _GRAPH_INPUT_UNITS: [{0: vocabulary.unit, 1: {0: [file]}}],
    }
    content = {
        _METADATA_NAME: name,
        _METADATA_DESCRIPTION: description,
        _METADATA_GRAPHS: [graph],
        _METADATA_PARSER: "1.1.0",  # the first that knows process units of a graph
    }
    builder = require("flatbuffers", "export").Builder(1024)
    builder.Finish(_written(builder, content), b"M001")
    return bytes(builder.Output())


def attach(path: Path, content: bytes, files: Mapping[str, bytes]) -> None:
    """Puts metadata into a TFLite file, and the files that they name behind it.

    Distances in a flatbuffer are relative and point forward. So a new root with the metadata goes in front of the file
    and refers to the parts that are there already: no weight is read or moved against another.

    Args:
        path: The model, replaced by another file.
        content: Of `metadata`.
        files: By name.
    Raises:
        ExportError: the model has metadata already, or would exceed 2 GB.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as model:
        head = _head(model, content)
    added = len(head) + sum(map(len, files.values()))
    if path.stat().st_size + added > MAX_BYTES:
        raise ExportError(f"A TFLite file holds less than 2 GB. Received: {path.stat().st_size + added} bytes")
    aside = path.with_name(f"{path.name}.new")
    with aside.open("wb") as new, path.open("rb") as old:
        new.write(head)
        shutil.copyfileobj(old, new)
    with zipfile.ZipFile(aside, "a", zipfile.ZIP_STORED) as archive:
        for name, bytes_ in files.items():
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.create_system = 3  # the same bytes on every system
            archive.writestr(entry, bytes_)
    os.replace(aside, path)


def input_order(path: Path) -> list[str]:
    """Names of the inputs of a file's one signature, in the order of its graph, which converters change."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        model = schema().Model.GetRootAs(content, 0)
        signature, graph = model.SignatureDefs(0), model.Subgraphs(0)
        entries = [signature.Inputs(i) for i in range(signature.InputsLength())]
        names = {entry.TensorIndex(): entry.Name().decode() for entry in entries}
        return [names[graph.Inputs(i)] for i in range(graph.InputsLength())]


def _tensor(tensor: Tensor) -> dict[int, Any]:
    table = {_TENSOR_NAME: tensor.name, _TENSOR_DESCRIPTION: tensor.description, _TENSOR_CONTENT: _FEATURES}
    files = [] if tensor.labels is None else [{_FILE_NAME: tensor.labels, _FILE_TYPE: _LABELS}]
    return {**table, _TENSOR_FILES: files} if files else table


def _written(builder: Any, value: Any) -> int:
    """Offset of a text, of a vector of tables (a list), or of a table: a dictionary from places to parts."""
    if isinstance(value, str):
        return int(builder.CreateString(value))
    if isinstance(value, list):
        return _vector(builder, [_written(builder, each) for each in value])
    parts = {place: _written(builder, part) for place, part in value.items() if not isinstance(part, int)}
    builder.StartObject(max(value, default=-1) + 1)
    for place, part in value.items():
        if isinstance(part, int):
            builder.PrependInt8Slot(place, part, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(place, parts[place], 0)
    return int(builder.EndObject())


def _vector(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _head(model: Any, content: bytes) -> bytes:
    """What goes in front of a model: a root that has the metadata and all that the model has.

    A builder counts offsets from the end of what it builds, where the model will begin: a part of the model at byte
    `p` has the offset `-p`.
    """
    root = schema().Model.GetRootAs(model, 0)
    if any(root.Metadata(i).Name() == _NAME.encode() for i in range(root.MetadataLength())):
        raise ExportError("This TFLite file has metadata already. Received: a second one for the same file")
    builder = require("flatbuffers", "export").Builder(1024 + len(content))
    builder.Prep(_ALIGNMENT, 0)  # the length of the whole is a multiple of it
    data = builder.CreateByteVector(content)
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(_BUFFER_DATA, data, 0)
    buffer = builder.EndObject()
    name = builder.CreateString(_NAME)
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(_ENTRY_NAME, name, 0)
    builder.PrependUint32Slot(_ENTRY_BUFFER, root.BuffersLength(), 0)
    entry = builder.EndObject()
    buffers = [-root.Buffers(i)._tab.Pos for i in range(root.BuffersLength())]
    entries = [-root.Metadata(i)._tab.Pos for i in range(root.MetadataLength())]
    parts = {place: -_position(root, place) for place in range(1, _MODEL_FIELDS) if _position(root, place)}
    parts[_MODEL_BUFFERS] = _vector(builder, [*buffers, buffer])
    parts[_MODEL_METADATA] = _vector(builder, [*entries, entry])
    builder.StartObject(_MODEL_FIELDS)
    for place, part in parts.items():
        builder.PrependUOffsetTRelativeSlot(place, part, 0)
    builder.PrependUint32Slot(_MODEL_VERSION, root.Version(), 0)
    builder.Finish(builder.EndObject(), b"TFL3")
    return bytes(builder.Output())


def _position(root: Any, place: int) -> int:
    """Where the part begins that a field of the root refers to; 0 where there is none."""
    table = root._tab
    field = table.Offset(4 + 2 * place)
    return int(table.Indirect(table.Pos + field)) if field else 0

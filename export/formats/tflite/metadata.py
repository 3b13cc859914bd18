"""Metadata of a TFLite file: the meaning of its tensors, and the vocabulary of its tokenizer.

The metadata are a separate flatbuffer (identifier `M001`) in a buffer of the model. The files that they refer to follow
the model as an uncompressed ZIP archive, so that a memory-mapped file can be used without unpacking.

Schema: `mediapipe/tasks/metadata/metadata_schema.fbs`; format: https://ai.google.dev/edge/litert/conversion/tensorflow/metadata.
"""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.engines.litert.flatbuffer_schema import schema
from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite.prepended_root import BUFFERS, METADATA, offsets, old, prepend_root
from kerasformer.extras import require
from kerasformer.files.publishing import replacing

if TYPE_CHECKING:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as tflite

_NAME = "TFLITE_METADATA"
# Indices of fields in the tables of both schemas, in the order of their declarations.
_FILE_NAME, _FILE_TYPE = 0, 2
_TENSOR_NAME, _TENSOR_DESCRIPTION, _TENSOR_CONTENT, _TENSOR_FILES = 0, 1, 3, 6
_GRAPH_INPUTS, _GRAPH_OUTPUTS, _GRAPH_INPUT_UNITS = 2, 3, 5
_METADATA_NAME, _METADATA_DESCRIPTION, _METADATA_GRAPHS, _METADATA_PARSER = 0, 1, 3, 7
_ENTRY_NAME, _ENTRY_BUFFER = 0, 1
_BUFFER_DATA = 0
_LABELS, _VOCABULARY = 2, 5
_FEATURES = {0: 1, 1: {}}
"""A `Content` whose properties are `FeatureProperties`, for plain numbers."""
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of the files in the archive, fixed so that the same content gives the same bytes."""


@dataclass(frozen=True)
class Tensor:
    """Meaning of a tensor.

    Attributes:
        name: Name by which the runtime finds it.
        description: Human-readable description.
        labels: Name of the file with the name of each entry, one per line.
    """

    name: str
    description: str
    labels: str | None = None


@dataclass(frozen=True)
class VocabularyFile:
    """Vocabulary of a tokenizer.

    Attributes:
        unit: Kind of the tokenizer, `WORDPIECE` or `SENTENCEPIECE`.
        file: Name of the file.
        content: Content of the file: one token per line, or a SentencePiece model.
    """

    unit: int
    file: str
    content: bytes


WORDPIECE, SENTENCEPIECE = 4, 5
"""Numbers of the tokenizers in the schema's union of process units."""


def metadata(
    name: str, description: str, inputs: Sequence[Tensor], output: Tensor, vocabulary: VocabularyFile
) -> bytes:
    """Returns the metadata of a model that takes texts.

    Args:
        name: Name of the model.
        description: Human-readable description.
        inputs: Inputs in the order of the graph.
        output: The only output.
        vocabulary: Vocabulary of the tokenizer.
    """
    file = {_FILE_NAME: vocabulary.file, _FILE_TYPE: _VOCABULARY}
    graph = {
        _GRAPH_INPUTS: [_tensor(tensor) for tensor in inputs],
        _GRAPH_OUTPUTS: [_tensor(output)],
        _GRAPH_INPUT_UNITS: [{0: vocabulary.unit, 1: {0: [file]}}],
    }
    content = {
        _METADATA_NAME: name,
        _METADATA_DESCRIPTION: description,
        _METADATA_GRAPHS: [graph],
        _METADATA_PARSER: "1.1.0",  # the first version with process units of a graph
    }
    builder = require("flatbuffers", "export").Builder(1024)
    builder.Finish(_build(builder, content), b"M001")
    return bytes(builder.Output())


def attach(path: Path, content: bytes, files: Mapping[str, bytes]) -> None:
    """Adds metadata to a TFLite file, and appends the files that they refer to.

    Args:
        path: The model file, which is replaced.
        content: Result of `metadata`.
        files: Contents of the files by name.

    Raises:
        ExportError: The model has metadata already, or would exceed 2 GB.
    """
    with replacing(path) as temporary:
        prepend_root(path, temporary, partial(_added, content), sum(map(len, files.values())))
        with zipfile.ZipFile(temporary, "a", zipfile.ZIP_STORED) as archive:
            for name, data in files.items():
                entry = zipfile.ZipInfo(name, _FIXED_TIME)
                entry.create_system = 3  # fixed, so that the bytes are the same on every system
                archive.writestr(entry, data)


def input_order(path: Path) -> list[str]:
    """Returns the names of the inputs of a file's only signature in the order of its graph, which converters change."""
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


def _build(builder: flatbuffers.Builder, value: Any) -> int:
    """Builds a string, a vector of tables (a list), or a table (a dictionary by field index); returns its offset."""
    if isinstance(value, str):
        return int(builder.CreateString(value))
    if isinstance(value, list):
        return offsets(builder, [_build(builder, table) for table in value])
    parts = {field: _build(builder, part) for field, part in value.items() if not isinstance(part, int)}
    builder.StartObject(max(value, default=-1) + 1)
    for field, part in value.items():
        if isinstance(part, int):
            builder.PrependInt8Slot(field, part, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(field, parts[field], 0)
    return int(builder.EndObject())


def _added(content: bytes, builder: flatbuffers.Builder, root: tflite.Model) -> dict[int, int]:
    """Builds the entry and the buffer of the metadata after those that a model has."""
    if any(root.Metadata(i).Name() == _NAME.encode() for i in range(root.MetadataLength())):
        raise ExportError("Metadata can be added to a TFLite file only once. Received: a file that has them already")
    data = builder.CreateByteVector(content)
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(_BUFFER_DATA, data, 0)
    buffer = builder.EndObject()
    name = builder.CreateString(_NAME)
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(_ENTRY_NAME, name, 0)
    builder.PrependUint32Slot(_ENTRY_BUFFER, root.BuffersLength(), 0)
    entry = builder.EndObject()
    buffers = [old(root.Buffers(i)) for i in range(root.BuffersLength())]
    entries = [old(root.Metadata(i)) for i in range(root.MetadataLength())]
    return {BUFFERS: offsets(builder, [*buffers, buffer]), METADATA: offsets(builder, [*entries, entry])}

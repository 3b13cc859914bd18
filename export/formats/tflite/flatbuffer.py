"""Writing a TFLite file whose weights are streamed, one at a time, behind the graph.

A flatbuffer refers to its parts by the distance to them. So the graph is packed with a one-element vector in every
weight's place, the true vectors are written behind it, and the distances are set to reach them. Memory stays near the
size of one weight, and the result is a plain TFLite file: nothing lies outside of the flatbuffer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from kerasformer.errors import ExportError, require
from kerasformer.export.formats.tflite.graph_skeleton import Skeleton, schema
from kerasformer.progress import CountProgress

MAX_BYTES = 2**31 - 2**24
"""Offsets are checked as signed 32-bit numbers by every reader; the difference is room for the graph."""


_ALIGNMENT = 64
# Places in the tables' vtables, from TFLite's schema.
_BUFFER_DATA, _QUANTIZATION_SCALE, _QUANTIZATION_ZERO_POINT = 4, 8, 10


def write(skeleton: Skeleton, path: Path, progress: CountProgress | None = None) -> None:
    """Writes the graph and its weights.

    Args:
        skeleton: Its weights are constants, and it is finished.
        path: The file, overwritten.
        progress: Told how far the writing of the weights is.
    Raises:
        ExportError: the file would exceed 2 GB.
    """
    header = bytearray(_pack(skeleton.model))
    model = schema().Model.GetRootAs(header, 0)
    quantization = _quantization_tables(model)
    total = sum(stored.num_bytes for stored in skeleton.stored.values())
    if len(header) + total > MAX_BYTES:
        raise ExportError(f"A TFLite file holds less than 2 GB. Received: {(len(header) + total) / 1e9:.2f} GB")
    zeros: dict[int, int] = {}
    done = 0
    with path.open("wb") as file:
        file.write(header)
        for index, stored in skeleton.stored.items():
            scales = stored.scales()
            if scales is not None:
                rows = len(scales)
                scale_at = _vector(file, rows, [scales.tobytes()])
                if rows not in zeros:
                    zeros[rows] = _vector(file, rows, [bytes(8 * rows)])
                for table in quantization[index]:
                    _refer(header, table, _QUANTIZATION_SCALE, scale_at)
                    _refer(header, table, _QUANTIZATION_ZERO_POINT, zeros[rows])
            content = _vector(file, stored.num_bytes, stored.content())
            _refer(header, model.Buffers(index)._tab, _BUFFER_DATA, content)
            done += stored.num_bytes
            if progress is not None:
                progress(done, total)
        file.write(bytes(_ALIGNMENT))  # vectorized kernels may read a little beyond the last row
        file.seek(0)
        file.write(header)


def _pack(model: Any) -> bytes:
    builder = require("flatbuffers", "export").Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _quantization_tables(model: Any) -> dict[int, list[Any]]:
    """Tables of quantization parameters, by the buffer of the tensors that they belong to."""
    tables: dict[int, list[Any]] = {}
    for g in range(model.SubgraphsLength()):
        graph = model.Subgraphs(g)
        for t in range(graph.TensorsLength()):
            tensor = graph.Tensors(t)
            if tensor.Quantization() is not None:
                tables.setdefault(tensor.Buffer(), []).append(tensor.Quantization()._tab)
    return tables


def _vector(file: BinaryIO, length: int, content: Iterable[bytes]) -> int:
    """Appends a flatbuffer vector, its elements aligned; returns its position."""
    position = -(-(file.tell() + 4) // _ALIGNMENT) * _ALIGNMENT - 4
    file.write(bytes(position - file.tell()))
    file.write(struct.pack("<I", length))
    for part in content:
        file.write(part)
    return position


def _refer(header: bytearray, table: Any, entry: int, position: int) -> None:
    """Makes a field of a table refer to the vector at `position`."""
    field = table.Pos + table.Offset(entry)
    struct.pack_into("<I", header, field, position - field)

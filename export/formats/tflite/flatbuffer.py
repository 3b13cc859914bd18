"""Writing of a TFLite file whose weights are streamed, one at a time, after the graph.

A flatbuffer refers to its parts by relative offsets. The graph is packed with a one-element vector in place of each
weight, the real vectors are written after it, and the offsets are changed to point to them. Peak memory is close to the
size of one weight, and the result is a plain TFLite file: all weights are inside of the flatbuffer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kerasformer.basics.progress import CountProgress
from kerasformer.engines.litert.flatbuffer_schema import schema
from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite.graph_skeleton import Skeleton
from kerasformer.extras import require

if TYPE_CHECKING:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as tflite

MAX_BYTES = 2**31 - 2**24
"""Largest total size of the weights in bytes: readers check offsets as signed 32-bit numbers, and the graph needs some
space."""


_ALIGNMENT = 64
# Offsets in the tables' vtables, from TFLite's schema.
_BUFFER_DATA, _QUANTIZATION_SCALE, _QUANTIZATION_ZERO_POINT = 4, 8, 10


def write(skeleton: Skeleton, path: Path, progress: CountProgress | None = None) -> None:
    """Writes the graph and its weights.

    Args:
        skeleton: A finished graph whose weights are constants.
        path: The file, which is overwritten.
        progress: Called with the number of bytes of weights that are written, and the total.

    Raises:
        ExportError: The file would exceed 2 GB.
    """
    header = bytearray(_pack(skeleton.model))
    model = schema().Model.GetRootAs(header, 0)
    quantization = _quantization_tables(model)
    total = sum(stored.num_bytes for stored in skeleton.stored.values())
    if len(header) + total > MAX_BYTES:
        raise ExportError(f"A TFLite file must be smaller than 2 GB. Received: {(len(header) + total) / 1e9:.2f} GB")
    zeros: dict[int, int] = {}
    done = 0
    with path.open("wb") as file:
        file.write(header)
        for index, stored in skeleton.stored.items():
            scales = stored.scales()
            if scales is not None:
                rows = len(scales)
                scale_position = _vector(file, rows, [scales.tobytes()])
                if rows not in zeros:
                    zeros[rows] = _vector(file, rows, [bytes(8 * rows)])
                for table in quantization[index]:
                    _refer(header, table, _QUANTIZATION_SCALE, scale_position)
                    _refer(header, table, _QUANTIZATION_ZERO_POINT, zeros[rows])
            content = _vector(file, stored.num_bytes, stored.content())
            _refer(header, model.Buffers(index)._tab, _BUFFER_DATA, content)
            done += stored.num_bytes
            if progress is not None:
                progress(done, total)
        file.write(bytes(_ALIGNMENT))  # vectorized kernels may read slightly beyond the last row
        file.seek(0)
        file.write(header)


def _pack(model: tflite.ModelT) -> bytes:
    builder = require("flatbuffers", "export").Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _quantization_tables(model: tflite.Model) -> dict[int, list[flatbuffers.table.Table]]:
    """Returns the tables of quantization parameters by the buffer of their tensors."""
    tables: dict[int, list[flatbuffers.table.Table]] = {}
    for g in range(model.SubgraphsLength()):
        graph = model.Subgraphs(g)
        for t in range(graph.TensorsLength()):
            tensor = graph.Tensors(t)
            if tensor.Quantization() is not None:
                tables.setdefault(tensor.Buffer(), []).append(tensor.Quantization()._tab)
    return tables


def _vector(file: BinaryIO, length: int, content: Iterable[bytes]) -> int:
    """Appends a flatbuffer vector with aligned elements and returns its position in the file."""
    position = -(-(file.tell() + 4) // _ALIGNMENT) * _ALIGNMENT - 4
    file.write(bytes(position - file.tell()))
    file.write(struct.pack("<I", length))
    for part in content:
        file.write(part)
    return position


def _refer(header: bytearray, table: flatbuffers.table.Table, entry: int, position: int) -> None:
    """Makes a field of a table refer to the vector at a position."""
    field = table.Pos + table.Offset(entry)
    struct.pack_into("<I", header, field, position - field)

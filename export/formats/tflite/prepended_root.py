"""A new root that is put before an existing TFLite model, and refers to the model's parts.

Offsets in a flatbuffer are relative and point forward. A file with a new root before the model therefore needs only the
parts that change; all others, such as the weights, are neither parsed nor moved.
"""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.engines.litert.flatbuffer_schema import schema
from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite.flatbuffer import MAX_BYTES
from kerasformer.extras import require

if TYPE_CHECKING:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as tflite

VERSION, CODES, GRAPHS, BUFFERS, METADATA, SIGNATURES = 0, 1, 2, 4, 6, 7
"""Fields of a model's root table, in the order of the schema."""

_FIELDS = 8
_ALIGNMENT = 64
"""Alignment of weights in bytes, which content inserted before them must preserve."""

Change = Callable[["flatbuffers.Builder", "tflite.Model"], dict[int, int]]
"""Builds parts with a `flatbuffers.Builder`, given the old root; returns their offsets by the field of the new root."""


def prepend_root(source: Path, target: Path, change: Change, appended: int = 0) -> None:
    """Writes a copy of a model with a new root before it.

    Args:
        source: The model file.
        target: The copy, a different file.
        change: Builds the new parts. A builder counts offsets from the end of its data, where the old model starts, so
            that an old part at byte `p` has the offset `-p` (`old`).
        appended: Size of what the caller appends to the copy, in bytes.

    Raises:
        ExportError: The copy would exceed 2 GB.
    """
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        head = _head(content, change)
    size = source.stat().st_size + len(head) + appended
    if size > MAX_BYTES:
        raise ExportError(f"A TFLite file must be smaller than 2 GB. Received: {size} bytes")
    with target.open("wb") as new, source.open("rb") as file:
        new.write(head)
        shutil.copyfileobj(file, new)


def old(part: Any) -> int:
    """Returns the offset of a part of the old model."""
    return -int(part._tab.Pos)


def old_field(part: Any, field: int) -> int:
    """Returns the offset of what a field of an old table refers to, or 0 if the field is absent."""
    table = part._tab
    entry = table.Offset(4 + 2 * field)
    return -int(table.Indirect(table.Pos + entry)) if entry else 0


def offsets(builder: flatbuffers.Builder, values: Sequence[int]) -> int:
    """Builds a vector of tables or strings."""
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependUOffsetTRelative(value)
    return int(builder.EndVector())


def _head(content: mmap.mmap, change: Change) -> bytes:
    root = schema().Model.GetRootAs(content, 0)
    builder = require("flatbuffers", "export").Builder(1 << 16)
    builder.Prep(_ALIGNMENT, 0)  # makes the total length a multiple of the alignment
    parts = {field: old_field(root, field) for field in range(1, _FIELDS)} | change(builder, root)
    builder.StartObject(_FIELDS)
    for field, offset in parts.items():
        if offset:
            builder.PrependUOffsetTRelativeSlot(field, offset, 0)
    builder.PrependUint32Slot(VERSION, root.Version(), 0)
    builder.Finish(builder.EndObject(), b"TFL3")
    return bytes(builder.Output())

"""The container format GGUF: a header of named values, a list of tensors, and their data.

`gguf.GGUFReader` creates an array for each token of the vocabulary, which takes seconds, and trusts the sizes in the
header; this reader checks each of them against the file. The types of blocks are those of the library.

Reference: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.errors import CheckpointError
from kerasformer.extras import require
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.files.sources import inside

if TYPE_CHECKING:
    import gguf

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32  # bytes, if the header has no other
_MAX_DIMENSIONS = 4
_PART = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Codes of `struct` by the number of the type of a value."""
_STRING, _ARRAY = 8, 9
_SMALLEST_VALUE, _SMALLEST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8  # bytes of an entry with an empty name


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in a file.

    Attributes:
        path: The file.
        offset: Position of the data in bytes.
        shape: Shape of the tensor, slowest dimension first, as in NumPy.
        type: Type of the blocks, a `gguf.GGMLQuantizationType`.
        size: Size of the data in bytes.
    """

    path: Path
    offset: int
    shape: tuple[int, ...]
    type: gguf.GGMLQuantizationType
    size: int


@dataclass(frozen=True)
class Container:
    """Content of a GGUF file, or of all parts of a model, without the data of the tensors.

    Attributes:
        path: The file, or the first part.
        values: Values of the header by their keys; arrays are lists.
        tensors: Tensors by their names.
        paths: The files.
    """

    path: Path
    values: JsonMapping
    tensors: Mapping[str, TensorEntry]
    paths: tuple[Path, ...] = ()


def read(path: Path) -> Container:
    """Reads the header of a GGUF file; if it is the first part of a model, also those of the other parts.

    Raises:
        CheckpointError: the file is not a GGUF file, has an unsupported version or byte order, is damaged or truncated,
            or is a part of a model whose other parts are missing.
        MissingExtraError: the library gguf is not installed.
    """
    values, tensors = _read_file(path)
    count = values.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return Container(path, values, tensors, (path,))
    paths = _parts(path, count, values.get("split.no"))
    for part in paths[1:]:
        _, others = _read_file(part)
        if double := sorted(set(tensors) & set(others)):
            raise CheckpointError(f"{part} repeats tensors of an earlier part. Received: {', '.join(double[:3])}")
        tensors |= others
    expected = values.get("split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise CheckpointError(
            f"{path.name} and its other parts must have {expected} tensors. Received: {len(tensors)}. Download all "
            "parts of the same model"
        )
    return Container(path, values, tensors, tuple(paths))


def _parts(path: Path, count: int, number: object) -> list[Path]:
    """Returns the paths of all parts of a model.

    Raises:
        CheckpointError: the file is not the first part, its name does not show those of the others, or one is missing.
    """
    match = _PART.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise CheckpointError(
            f"{path} is one of {count} parts of a model, which are found by their names. Expected: a name that ends "
            f"with -00001-of-{count:05}.gguf. Received: {path.name}"
        )
    names = [f"{match['name']}-{index:05}-of-{count:05}{path.suffix}" for index in range(1, count + 1)]
    if number != 0:
        raise CheckpointError(
            f"{path.name} is a part of a model without its settings. Expected: the first part, {names[0]}. The others "
            "are found by their names"
        )
    paths = [path, *(inside(path.parent, name) for name in names[1:])]
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        raise CheckpointError(
            f"{path} is the first of {count} parts, which must be in one folder. Missing: {', '.join(missing[:5])}"
        )
    return paths


def _read_file(path: Path) -> tuple[JsonObject, dict[str, TensorEntry]]:
    try:
        with path.open("rb") as file:
            start = file.read(24)
            _check_start(path, start)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                cursor = _Cursor(path, data)
                return _read_header(cursor, *struct.unpack_from("<QQ", start, 8))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _check_start(path: Path, start: bytes) -> None:
    """Checks magic number, byte order and version."""
    if start[:4] != MAGIC:
        raise CheckpointError(f"{path} is not a GGUF file, which starts with {MAGIC!r}. Received: {start[:4]!r}")
    if len(start) < 24:
        raise CheckpointError(f"{path} is truncated: a header has at least 24 bytes. Received: {len(start)}")
    version = int.from_bytes(start[4:8], "little")
    if version & 0xFFFF == 0:
        raise CheckpointError(
            f"{path} is big-endian (version {int.from_bytes(start[4:8], 'big')}), and only little-endian files are "
            "supported. Convert it with gguf's gguf-convert-endian, or download a little-endian file"
        )
    if version not in _VERSIONS:
        expected = " or ".join(map(str, _VERSIONS))
        raise CheckpointError(f"{path} must have version {expected} of the format GGUF. Received: version {version}")


class _Cursor:
    """Position in a file; every read is checked against the size of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.position = 24

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def damaged(self, problem: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path} is truncated or damaged: {problem}, at byte {self.position} of {len(self.data)}. Download or "
            "copy it again"
        )

    def numbers(self, code: str, count: int, what: str) -> tuple[Any, ...]:
        size = struct.calcsize(f"<{code}") * count
        if size > self.remaining:
            raise self.damaged(f"{what} takes {size} bytes, and {self.remaining} are left")
        values = struct.unpack_from(f"<{count}{code}", self.data, self.position)
        self.position += size
        return values

    def number(self, code: str, what: str) -> Any:
        return self.numbers(code, 1, what)[0]

    def text(self, what: str) -> str:
        size = self.number("Q", f"the length of {what}")
        if size > self.remaining:
            raise self.damaged(f"{what} has {size} bytes, and {self.remaining} are left")
        content = self.data[self.position : self.position + size]
        self.position += size
        # Vocabularies of bytes may contain tokens that are not valid UTF-8; llama.cpp takes them as they are.
        return content.decode("utf-8", "replace")


def _read_header(cursor: _Cursor, num_tensors: int, num_values: int) -> tuple[JsonObject, dict[str, TensorEntry]]:
    least = num_values * _SMALLEST_VALUE + num_tensors * _SMALLEST_TENSOR
    if least > cursor.remaining:
        raise cursor.damaged(
            f"{num_values} values and {num_tensors} tensors, as in its header, take at least {least} bytes, and "
            f"{cursor.remaining} are left"
        )
    values: JsonObject = {}
    for index in range(num_values):
        key = cursor.text(f"the key of value {index}")
        if key in values:
            raise cursor.damaged(f"the key {key!r:.100} occurs twice")
        values[key] = _read_value(cursor, cursor.number("I", f"the type of {key!r:.100}"), key)
    entries: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for index in range(num_tensors):
        name = cursor.text(f"the name of tensor {index}")
        if name in entries:
            raise cursor.damaged(f"the tensor {name!r:.100} occurs twice")
        entries[name] = _read_entry(cursor, f"tensor {name!r:.100}")
    alignment = values.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise cursor.damaged(f"general.alignment must be a power of two. Received: {alignment!r:.100}")
    start = math.ceil(cursor.position / alignment) * alignment
    return values, {name: _located(cursor, start, name, *entry) for name, entry in entries.items()}


def _read_value(cursor: _Cursor, kind: int, key: str) -> Any:
    what = f"the value of {key!r:.100}"
    if kind in _NUMBERS:
        return cursor.number(_NUMBERS[kind], what)
    if kind == _STRING:
        return cursor.text(what)
    if kind != _ARRAY:
        raise cursor.damaged(f"{what} has the type {kind}, which is unknown")
    element, count = cursor.number("I", what), cursor.number("Q", what)
    if element in _NUMBERS:
        return list(cursor.numbers(_NUMBERS[element], count, what))
    if element != _STRING:
        raise cursor.damaged(f"{what} is an array of the type {element}; numbers or strings were expected")
    if count * 8 > cursor.remaining:
        raise cursor.damaged(f"{what} has {count} strings, and {cursor.remaining} bytes are left")
    return [cursor.text(what) for _ in range(count)]


def _read_entry(cursor: _Cursor, what: str) -> tuple[tuple[int, ...], int, int]:
    """Returns the shape, the number of the type, and the offset of a tensor in the data."""
    dimensions = cursor.number("I", f"the number of dimensions of {what}")
    if dimensions > _MAX_DIMENSIONS:
        raise cursor.damaged(f"{what} has {dimensions} dimensions, and at most {_MAX_DIMENSIONS} are possible")
    shape = cursor.numbers("Q", dimensions, f"the shape of {what}")
    kind, offset = cursor.number("I", f"the type of {what}"), cursor.number("Q", f"the offset of {what}")
    return tuple(reversed(shape)), kind, offset


def _located(cursor: _Cursor, start: int, name: str, shape: tuple[int, ...], kind: int, offset: int) -> TensorEntry:
    """Returns the entry of a tensor whose data is in the file.

    Raises:
        CheckpointError: the type of the blocks is unknown, the shape does not fit them, or the data is outside the
            file.
    """
    gguf = require("gguf", "gguf")
    path, what = cursor.path, f"tensor {name!r:.100}"
    try:
        type_ = gguf.GGMLQuantizationType(kind)
        elements, size = gguf.GGML_QUANT_SIZES[type_]
    except (ValueError, KeyError) as error:
        known = ", ".join(member.name for member in gguf.GGMLQuantizationType)
        raise CheckpointError(
            f"{path}: {what} has blocks of the type {kind}, which the installed version of gguf does not know. "
            f"Expected one of {known}"
        ) from error
    if (shape[-1] if shape else 1) % elements:
        raise CheckpointError(
            f"{path} is damaged: rows of blocks of {type_.name} have a multiple of {elements} values. Received: {what} "
            f"of shape {shape}"
        )
    count = math.prod(shape) // elements * size
    begin = start + offset
    if begin + count > len(cursor.data):
        raise CheckpointError(
            f"{path} is truncated or damaged: {what} is at the bytes {begin} to {begin + count}. Expected: a file of "
            f"at least {begin + count} bytes. Received: {len(cursor.data)}. Download or copy it again"
        )
    return TensorEntry(path, begin, shape, type_, count)

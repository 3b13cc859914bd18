"""States of engines that are kept outside of the engine, in memory or in a file.

A file has the format of the library safetensors, with a checksum in its metadata. It contains only numbers and text, so
that reading it runs no code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from kerasformer.errors import InputError, SourceError
from kerasformer.files.reading import JsonMapping, JsonObject, local_path, parse_json

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_FILE_BYTES = 2**34
"""Default limit of the size of a file, 16 GiB."""
_MAX_HEADER_BYTES = 2**24
_FORMAT = "kerasformer-state-1"
_IDS = "ids"
_TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I8": "int8",
}
"""Data types of the file format that occur in states, by their names in NumPy."""


@dataclass(frozen=True, eq=False)
class SavedState:
    """A copy of a state, which any number of states can be restored from; see `ResumableStep.save`.

    Attributes:
        model: Identity of the model that it belongs to, `ResumableStep.identity()`.
        arrays: Content by name, read-only; of the caches, only the slots in use. The names and shapes are those of the
            engine.
        ids: Tokens in the caches of a single text, int32 `(N,)`, if the caller has added them.
        note: Further text of the caller, which files contain, too.
    """

    model: str
    arrays: Mapping[str, np.ndarray]
    ids: np.ndarray | None = None
    note: str = ""

    @classmethod
    def copy_of(cls, model: str, arrays: Mapping[str, np.ndarray]) -> Self:
        """Copies arrays, which may be views of the buffers of an engine.

        Args:
            model: Identity of the model.
            arrays: Arrays by name.
        """
        # One block takes a fifth of the time of many allocations of a few megabytes, as it is made of large pages.
        layout = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        copies = _views(np.empty(_size(layout), np.uint8), layout)
        for name, array in arrays.items():
            np.copyto(copies[name], array)
            copies[name].flags.writeable = False
        return cls(model, copies)

    @property
    def num_bytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(array.nbytes for array in self.arrays.values())

    def check_model(self, identity: str) -> None:
        """Checks that the state belongs to a model.

        Raises:
            InputError: it belongs to another one.
        """
        if self.model != identity:
            raise InputError(
                "This saved state belongs to another model or adapter, or to this one before its weights were changed "
                f"or its bundle was exported again. Expected: the model {identity[:12]}. Received: {self.model[:12]}. "
                "Read the text again"
            )

    def array(self, name: str, shape: tuple[int | None, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """Returns an array, whose shape and data type are checked.

        Args:
            name: Name of the array.
            shape: Expected shape; `None` for any dimension.
            dtype: Expected data type.
        Raises:
            InputError: there is no such array, or it has another shape or data type.
        """
        array = self.arrays.get(name)
        received = None if array is None else (array.dtype.name, array.shape)
        if (
            array is None
            or array.dtype != dtype
            or len(array.shape) != len(shape)
            or any(want not in (None, size) for want, size in zip(shape, array.shape, strict=True))
        ):
            raise InputError(
                f"This saved state is not one of this engine. Expected: {name} with the data type "
                f"{np.dtype(dtype).name} and the shape {shape}. Received: {received}. Read the text again"
            )
        return array

    def integers(self, name: str, shape: tuple[int | None, ...], low: int, high: int) -> np.ndarray:
        """Returns an array of int64, as `array`, and checks that its numbers are from `low` to `high`.

        Raises:
            InputError: as for `array`, or a number is outside of these limits.
        """
        array = self.array(name, shape, "int64")
        if array.size and not low <= int(array.min()) <= int(array.max()) <= high:
            raise InputError(
                f"This saved state is not one of this engine. Expected: {name} from {low} to {high}. "
                f"Received: {array.min()} to {array.max()}. Read the text again"
            )
        return array

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes the state to a file, which replaces an existing one when it is complete.

        Returns:
            The absolute path.
        Raises:
            SourceError: the file cannot be written.
        """
        file = local_path(path)
        arrays = dict(self.arrays) | ({} if self.ids is None else {_IDS: np.asarray(self.ids, np.int32)})
        layout = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        names = {dtype: name for name, dtype in _TYPES.items()}
        header: JsonObject = {"__metadata__": {"format": _FORMAT, "model": self.model, "note": self.note}}
        for name, start, end in _extents(layout):
            dtype, shape = layout[name]
            header[name] = {"dtype": names[dtype.name], "shape": list(shape), "data_offsets": [start, end]}
        checksum = _header_checksum(header)
        contents = [np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8) for name, _, _ in _extents(layout)]
        for content in contents:
            checksum = zlib.crc32(content.data, checksum)
        header["__metadata__"]["checksum"] = f"{checksum:08x}"
        text = json.dumps(header, ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        try:
            _write(file, [len(text).to_bytes(8, "little"), text, *contents])
        except OSError as error:
            raise SourceError(f"The state cannot be written: {error}. Received: {file}. Choose another file") from error
        return file

    @classmethod
    def read(cls, path: str | os.PathLike[str], max_bytes: int = MAX_FILE_BYTES) -> Self:
        """Reads a file of `write`.

        Args:
            path: The file.
            max_bytes: Largest size that is read.
        Raises:
            SourceError: the file is missing, is not one of `write`, was truncated or changed, or is too large.
        """
        file = local_path(path)
        try:
            with file.open("rb") as opened:
                return cls._read(opened, file, max_bytes)
        except FileNotFoundError:
            raise SourceError(f"There is no saved state. Expected a file. Received: {file}") from None
        except OSError as error:
            raise SourceError(f"The saved state cannot be read: {error}. Received: {file}") from error

    @classmethod
    def _read(cls, opened: BinaryIO, file: Path, max_bytes: int) -> Self:
        size = os.fstat(opened.fileno()).st_size
        if size > max_bytes:
            raise SourceError(f"A saved state of at most {max_bytes} bytes is read. Received: {size} bytes in {file}")
        length = int.from_bytes(opened.read(8), "little")
        if not 2 <= length <= min(_MAX_HEADER_BYTES, size - 8):
            raise _damaged(file, "its header is not that of a saved state")
        header = parse_json(opened.read(length), str(file))
        metadata, layout = _parsed(header, file)
        if _size(layout) != size - 8 - length:
            raise _damaged(file, f"its content has {size - 8 - length} bytes instead of {_size(layout)}")
        content = np.fromfile(opened, np.uint8)
        checksum = metadata.pop("checksum", "")
        if f"{zlib.crc32(content.data, _header_checksum(header)):08x}" != checksum:
            raise _damaged(file, "its checksum is wrong")
        content.flags.writeable = False
        arrays = _views(content, layout)
        ids = arrays.pop(_IDS, None)
        return cls(metadata["model"], arrays, ids, metadata["note"])


def identity_of(*parts: object) -> str:
    """Returns a digest of values whose `repr` is the same in every process, for `ResumableStep.identity`."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


_Layout = Mapping[str, tuple[np.dtype, tuple[int, ...]]]
"""Data types and shapes by name."""


def _extents(layout: _Layout) -> list[tuple[str, int, int]]:
    """Returns the name, start and end of each array; larger items first, so that all are aligned without gaps."""
    extents, start = [], 0
    for name, (dtype, shape) in sorted(layout.items(), key=lambda item: -item[1][0].itemsize):
        end = start + math.prod(shape) * dtype.itemsize
        extents.append((name, start, end))
        start = end
    return extents


def _size(layout: _Layout) -> int:
    return sum(math.prod(shape) * dtype.itemsize for dtype, shape in layout.values())


def _views(block: np.ndarray, layout: _Layout) -> dict[str, np.ndarray]:
    """Returns the arrays that lie one after another in a block of bytes."""
    return {
        name: block[start:end].view(layout[name][0]).reshape(layout[name][1]) for name, start, end in _extents(layout)
    }


def _header_checksum(header: JsonMapping) -> int:
    """Returns the checksum of a header without its checksum, independent of the order of its fields."""
    metadata = {name: value for name, value in header["__metadata__"].items() if name != "checksum"}
    return zlib.crc32(json.dumps({**header, "__metadata__": metadata}, sort_keys=True).encode())


def _parsed(header: Any, file: Path) -> tuple[dict[str, str], _Layout]:
    """Returns the metadata and the arrays that a header describes."""
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
        raise _damaged(file, f"its header lacks the format {_FORMAT}")
    if not all(isinstance(metadata.get(name), str) for name in ("model", "note", "checksum")):
        raise _damaged(file, "its header is incomplete")
    layout = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape = np.dtype(_TYPES[entry["dtype"]]), tuple(entry["shape"])
        except (KeyError, TypeError) as error:
            raise _damaged(file, f"the description of {name} cannot be used: {error}") from error
        if not all(type(size) is int and size >= 0 for size in shape):
            raise _damaged(file, f"{name} has the shape {shape}")
        layout[name] = (dtype, shape)
    if any(header[name].get("data_offsets") != [start, end] for name, start, end in _extents(layout)):
        raise _damaged(file, "its arrays do not follow each other")
    return dict(metadata), layout


def _damaged(file: Path, reason: str) -> SourceError:
    return SourceError(
        f"This file is not a complete saved state: {reason}. Expected: a file written by SavedState.write. Received: "
        f"{file}. Save the state again"
    )


def _write(file: Path, parts: Sequence[Any]) -> None:
    """Writes a file under another name and renames it, so that no incomplete file is ever found."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            for part in parts:
                opened.write(part)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise

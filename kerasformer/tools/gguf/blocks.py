"""Tensors of a GGUF file under their names in the checkpoint; blocks are converted to float32 as they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasformer.errors import CheckpointError
from kerasformer.extras import require
from kerasformer.files.tensors import TensorFile
from kerasformer.tools.gguf.container import TensorEntry

if TYPE_CHECKING:
    import gguf

    from kerasformer.tools.gguf.architecture import Layout

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
"""Data types of tensors that are stored as numbers, by the names of their types."""


def read_entry(entry: TensorEntry) -> np.ndarray:
    """Reads a tensor: numbers in their own data type, blocks as float32.

    Raises:
        CheckpointError: the file cannot be read, or was changed after it was opened.
    """
    gguf = require("gguf", "gguf")
    try:
        data = np.fromfile(entry.path, np.uint8, entry.size, offset=entry.offset)
    except OSError as error:
        raise CheckpointError(f"{entry.path} was opened, but cannot be read. Received: {error}") from error
    if data.size != entry.size:
        raise CheckpointError(
            f"{entry.path} was changed after it was opened. Expected: {entry.size} bytes of a tensor. "
            f"Received: {data.size}"
        )
    name = _DTYPES.get(entry.type.name)
    if name is not None:
        dtype = np.dtype(require("ml_dtypes", "gguf").bfloat16 if name == "bfloat16" else f"<{_code(name)}")
        return data.view(dtype).reshape(entry.shape).astype(dtype.newbyteorder("="), copy=False)
    rows = data.reshape(*entry.shape[:-1], -1)
    array: np.ndarray = gguf.dequantize(rows, entry.type).reshape(entry.shape)
    return array


def _code(name: str) -> str:
    return f"f{np.dtype(name).itemsize}"


@cache
def _is_converted(block_type: gguf.GGMLQuantizationType) -> bool:
    """Whether the library converts blocks of a type to numbers."""
    gguf = require("gguf", "gguf")
    try:
        gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[block_type][1]), np.uint8), block_type)
    except NotImplementedError:
        return False
    return True


class GgufTensors(TensorFile):
    """The tensors of a GGUF file. They are read from the file each time, and blocks are converted to float32.

    Args:
        paths: The files.
        entries: Tensors by their names in the checkpoint, with their layouts.
    """

    on_disk = True

    def __init__(self, paths: Sequence[Path], entries: Mapping[str, tuple[TensorEntry, Layout]]) -> None:
        self.paths = list(paths)
        self._entries = entries
        self.quantized = any(entry.type.name not in _DTYPES for entry, _ in entries.values())

    def names(self) -> list[str]:
        """Returns the names of all tensors in the checkpoint."""
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor in the checkpoint."""
        entry, layout = self._entries[name]
        shape: tuple[int, ...] = layout.shape(entry.shape)
        return shape

    def problem(self, name: str) -> str | None:
        """Describes integers, and blocks that the library gguf does not convert to numbers."""
        block_type = self._entries[name][0].type
        if block_type.name in _DTYPES or _is_converted(block_type):
            return None
        return f"of type {block_type.name}, which the installed version of gguf does not convert to numbers"

    def dtype(self, name: str) -> str:
        """Returns the data type of a tensor; that of blocks is float32."""
        return _DTYPES.get(self._entries[name][0].type.name, "float32")

    def _read(self, name: str) -> np.ndarray:
        entry, layout = self._entries[name]
        array: np.ndarray = layout.restore(read_entry(entry))
        return array

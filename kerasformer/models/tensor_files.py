"""Tensor files: safetensors, single or sharded, and PyTorch's own format where PyTorch is installed.

Tensors are read one at a time, so that loading a model needs little more memory than the model.
"""

from __future__ import annotations

import errno
import json
import math
import sys
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.errors import CheckpointError, require
from kerasformer.files import parse_json, read_json
from kerasformer.sources import inside

_LARGE = 200 * 2**20  # bytes; above this, loading shows its progress


class TensorFile(Collection[str]):
    """Named tensors of a checkpoint: a collection of their names, from which each can be read."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        self.paths = [inside(folder, name) for name in files]
        for path in self.paths:
            if not path.is_file():
                raise CheckpointError(f"A weight file is missing. Expected: {path}")

    def __str__(self) -> str:
        return self.paths[0].name if len(self.paths) == 1 else f"{self.paths[0].parent.name} ({len(self.paths)} files)"

    @abstractmethod
    def names(self) -> list[str]:
        """All tensors."""

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""

    @abstractmethod
    def problem(self, name: str) -> str | None:
        """What a tensor is instead of floating-point numbers that can be read, such as "of type I8"."""

    def read(self, name: str) -> np.ndarray:
        """A tensor, as NumPy keeps it; bfloat16 is widened to float32.

        Raises:
            CheckpointError: it does not hold floating-point numbers, see `problem`.
        """
        problem = self.problem(name)
        if problem is not None:
            raise CheckpointError(f"{name} of {self}: {FLOATS} were expected. Received: a tensor {problem}")
        return self._read(name)

    @abstractmethod
    def _read(self, name: str) -> np.ndarray:
        """A tensor that has no `problem`."""

    @contextmanager
    def progress(self) -> Iterator[Callable[[int], None]]:
        """Shows how much was read, if the files are large; gives the function that counts bytes."""
        total = sum(path.stat().st_size for path in self.paths)
        if total < _LARGE or not sys.stderr.isatty():
            yield lambda count: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"Loading {self}", total=total)
            yield lambda count: bar.advance(task, count)


FLOATS = "floating-point numbers (float16, bfloat16, float32 or float64)"

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Data types of safetensors, as NumPy reads them; bfloat16 is the upper half of a float32."""


class Safetensors(TensorFile):
    """One or several `.safetensors` files.

    The library checks them; tensors are read as parts of a file and not through its mapping, whose pages would count
    as memory until the last one is read.
    """

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        super().__init__(folder, files)
        safetensors = require("safetensors", "tensorflow")
        self._places: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        for path in self.paths:
            try:
                with safetensors.safe_open(path, framework="numpy"):
                    self._places.update(_safetensors_header(path))
            except (safetensors.SafetensorError, OSError) as error:
                raise CheckpointError(
                    f"{path} is not a whole safetensors file. Received: {error}. Download or copy it again."
                ) from error

    def names(self) -> list[str]:
        """All tensors."""
        return list(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""
        return tuple(self._places[name][2]["shape"])

    def problem(self, name: str) -> str | None:
        """A data type that is none of floating-point numbers."""
        dtype = self._places[name][2]["dtype"]
        return None if dtype in _DTYPES else f"of type {dtype}"

    def _read(self, name: str) -> np.ndarray:
        path, start, entry = self._places[name]
        begin = start + entry["data_offsets"][0]
        array = np.fromfile(path, _DTYPES[entry["dtype"]], math.prod(entry["shape"]), offset=begin)
        if entry["dtype"] == "BF16":
            array = (array.astype("uint32") << 16).view("float32")
        return array.reshape(entry["shape"])


def _safetensors_header(path: Path) -> dict[str, tuple[Path, int, dict[str, Any]]]:
    """Where each tensor lies: the file, where its data begin, and the tensor's entry in the header."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = parse_json(file.read(size), f"the header of {path}")
    return {name: (path, 8 + size, entry) for name, entry in header.items() if name != "__metadata__"}


def save_tensors(tensors: Mapping[str, np.ndarray], path: Path) -> None:
    """Writes a `.safetensors` file that everyone may read.

    Raises:
        OSError: the disk is full, or the file cannot be written.
    """
    safetensors_numpy = require("safetensors.numpy", "tensorflow")
    safetensors = require("safetensors", "tensorflow")
    try:
        safetensors_numpy.save_file(dict(tensors), path, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:  # the library's own type, without a number
        raise OSError(errno.EIO, f"{path.name} could not be written: {error}") from error
    path.chmod(0o644)  # safetensors makes its files private


class TorchFile(TensorFile):
    """`pytorch_model.bin`, one or several; only weights are read, no code is run."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        super().__init__(folder, files)
        torch = require("torch", "test")
        self._torch = torch
        self._tensors: dict[str, Any] = {}
        for path in self.paths:
            try:
                content = torch.load(path, map_location="cpu", weights_only=True, mmap=_can_be_mapped(path))
            except Exception as error:  # on damage it raises whatever its parts raise
                raise CheckpointError(_why_unreadable(path, error)) from error
            if not isinstance(content, Mapping):
                raise CheckpointError(f"{path} must hold tensors by name. Received: {type(content).__name__}")
            others = {str(name): type(x).__name__ for name, x in content.items() if not isinstance(x, torch.Tensor)}
            if others:
                raise CheckpointError(f"{path} must hold tensors by name alone. Received: {str(others)[:200]}")
            self._tensors.update({str(name): tensor.detach() for name, tensor in content.items()})

    def names(self) -> list[str]:
        """All tensors."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""
        return tuple(self._tensors[name].shape)

    def problem(self, name: str) -> str | None:
        """Quantized, sparse, nested or without data; or a data type that is none of floating-point numbers."""
        torch, tensor = self._torch, self._tensors[name]
        if tensor.is_quantized:
            return f"that is quantized ({tensor.dtype})"
        if tensor.layout != torch.strided or tensor.is_nested:
            return "that is sparse or nested"
        if tensor.is_meta:
            return "without data"
        floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        return None if tensor.dtype in floats else f"of type {str(tensor.dtype).removeprefix('torch.')}"

    def _read(self, name: str) -> np.ndarray:
        # In the order of its own strides: a transposed view comes out as it is meant.
        tensor = self._tensors[name]
        if tensor.dtype == self._torch.bfloat16:
            tensor = tensor.float()
        array: np.ndarray = tensor.contiguous().numpy()
        return array


def _can_be_mapped(path: Path) -> bool:
    """Whether tensors lie in the file as they are: older files are no zip, and others were compressed anew."""
    try:
        with zipfile.ZipFile(path) as archive:
            return all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return False


def _why_unreadable(path: Path, error: Exception) -> str:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if type(error).__name__ == "UnpicklingError":
        return (
            f"{path} holds more than weights, and this package runs no code of a checkpoint. "
            f"Convert it to safetensors. Received: {reason}"
        )
    return f"{path} cannot be read as PyTorch weights. Received: {reason}"


def open_tensors(folder: Path) -> TensorFile:
    """The weights of a checkpoint folder; safetensors are preferred.

    Raises:
        CheckpointError: no weight file, or an index that cannot be read.
    """
    kinds: list[tuple[str, type[TensorFile]]] = [("model.safetensors", Safetensors), ("pytorch_model.bin", TorchFile)]
    for name, kind in kinds:
        if (folder / name).exists():
            return kind(folder, [name])
        index = f"{name}.index.json"
        if (folder / index).exists():
            return kind(folder, _shards(folder, index))
    raise CheckpointError(
        f"No weights found. Expected model.safetensors or pytorch_model.bin, whole or with an index, in {folder}. "
        f"Received: {', '.join(sorted(path.name for path in folder.iterdir())) or 'an empty folder'}"
    )


def _shards(folder: Path, index: str) -> list[str]:
    content = read_json(inside(folder, index))
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(x, str) for x in weight_map.values()):
        raise CheckpointError(
            f"{folder / index} has no weight_map from tensors to files. Received: {json.dumps(content)[:200]}"
        )
    return sorted(set(weight_map.values()))

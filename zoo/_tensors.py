"""Tensor files: safetensors, single or sharded, and PyTorch's own format where PyTorch is installed.

Tensors are read one at a time, so that loading a model needs little more memory than the model.
"""

from __future__ import annotations

import json
import math
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.errors import CheckpointError, require
from kerasformer.sources import inside, read_json

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
    def read(self, name: str) -> np.ndarray:
        """A tensor, as NumPy keeps it; bfloat16 is widened to float32."""

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


_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip
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

    def read(self, name: str) -> np.ndarray:
        """A tensor."""
        path, start, entry = self._places[name]
        if entry["dtype"] not in _DTYPES:
            raise CheckpointError(
                f"{name} in {path} has a data type that cannot be read. "
                f"Expected one of {', '.join(_DTYPES)}. Received: {entry['dtype']}"
            )
        begin = start + entry["data_offsets"][0]
        array = np.fromfile(path, _DTYPES[entry["dtype"]], math.prod(entry["shape"]), offset=begin)
        if entry["dtype"] == "BF16":
            array = (array.astype("uint32") << 16).view("float32")
        return array.reshape(entry["shape"])


def _safetensors_header(path: Path) -> dict[str, tuple[Path, int, dict[str, Any]]]:
    """Where each tensor lies: the file, where its data begin, and the tensor's entry in the header."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    return {name: (path, 8 + size, entry) for name, entry in header.items() if name != "__metadata__"}


class TorchFile(TensorFile):
    """`pytorch_model.bin`, one or several; only weights are read, no code is run."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        super().__init__(folder, files)
        torch = require("torch", "test")
        self._tensors: dict[str, Any] = {}
        for path in self.paths:
            try:
                self._tensors.update(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
            except (RuntimeError, EOFError, OSError, ValueError) as error:
                raise CheckpointError(f"{path} cannot be read as PyTorch weights. Received: {error}") from error
            except Exception as error:
                if type(error).__name__ != "UnpicklingError":
                    raise
                raise CheckpointError(
                    f"{path} holds more than weights, and this package runs no code of a checkpoint. "
                    f"Convert it to safetensors. Received: {str(error).splitlines()[0]}"
                ) from error

    def names(self) -> list[str]:
        """All tensors."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""
        return tuple(self._tensors[name].shape)

    def read(self, name: str) -> np.ndarray:
        """A tensor, in the order of its own strides: a transposed view comes out as it is meant."""
        tensor = self._tensors[name].detach()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()
        array: np.ndarray = tensor.contiguous().numpy()
        return array


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

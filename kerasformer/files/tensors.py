"""Tensor files: safetensors, single or sharded, and the format of PyTorch if PyTorch is installed.

Tensors are read one at a time, so that loading a model needs little more memory than the model.
"""

from __future__ import annotations

import errno
import json
import math
import re
import sys
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.errors import CheckpointError, SourceError
from kerasformer.extras import require
from kerasformer.files.reading import parse_json, read_json
from kerasformer.files.sources import foreign_graph, inside

TORCH_SUFFIX = ".pt"
"""Suffix of a file of PyTorch with the tensors of a head, as of BGE-M3."""
_LARGE = 200 * 2**20  # bytes; loading shows its progress for larger files


class TensorFile(Collection[str]):
    """Base of tensor files: a collection of the names of the tensors, which can be read one at a time.

    Attributes:
        on_disk: Whether tensors are read from the disk each time, so that an open file takes no memory.
        quantized: Whether some of the floating-point numbers are computed from integers.
    """

    on_disk = False
    quantized = False

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        self.paths = [inside(folder, name) for name in files]
        for path in self.paths:
            if not path.is_file():
                raise CheckpointError(f"A weight file is missing. Expected: {path}")

    def __str__(self) -> str:
        return self.paths[0].name if len(self.paths) == 1 else f"{self.paths[0].parent.name} ({len(self.paths)} files)"

    @abstractmethod
    def names(self) -> list[str]:
        """Returns the names of all tensors."""

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor without reading it."""

    @abstractmethod
    def problem(self, name: str) -> str | None:
        """Describes why a tensor is unsupported, such as "of type I8"; `None` for floating-point tensors."""

    @abstractmethod
    def dtype(self, name: str) -> str:
        """Returns the data type of a tensor that has no `problem`, such as `"bfloat16"`."""

    def read(self, name: str) -> np.ndarray:
        """Reads a tensor as a NumPy array of its own data type; bfloat16 is that of `ml_dtypes`.

        Raises:
            CheckpointError: the tensor does not contain floating-point numbers, see `problem`.
        """
        problem = self.problem(name)
        if problem is not None:
            raise CheckpointError(f"{name} of {self}: {FLOATS} were expected. Received: a tensor {problem}")
        return self._read(name)

    def read_any(self, name: str) -> np.ndarray:
        """Reads a tensor, which may also be of integers if the file is of safetensors.

        Raises:
            CheckpointError: the tensor has another data type.
        """
        return self.read(name)

    @abstractmethod
    def _read(self, name: str) -> np.ndarray:
        """Reads a tensor that has no `problem`."""

    @contextmanager
    def progress(self) -> Iterator[Callable[[int], None]]:
        """Context that shows the progress of reading large files; yields a function to report the bytes read."""
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

_WRAPPERS = re.compile(r"^(?:(?:module|_orig_mod)\.)+|(?<=\.)_orig_mod\.")

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Names of the data types of safetensors in NumPy and `ml_dtypes`."""
_MAPPED = {"F32": "<f4", "U8": "u1", "I32": "<i4"}
_INTEGERS = {"I8": "int8", "U8": "uint8", "I16": "int16", "I32": "int32", "I64": "int64"}


def _numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns a data type of `_DTYPES`; the library for bfloat16 is imported only if a file has such tensors."""
    return np.dtype(require("ml_dtypes", "adapters").bfloat16 if name == "bfloat16" else name)


class Safetensors(TensorFile):
    """One or several `.safetensors` files.

    The safetensors library validates the files. Tensors are read from the file rather than from a memory mapping, whose
    pages would occupy memory until the file is closed.
    """

    on_disk = True

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        super().__init__(folder, files)
        safetensors = require("safetensors", "adapters")
        self._entries: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        for path in self.paths:
            try:
                with safetensors.safe_open(path, framework="numpy"):
                    self._entries.update(_safetensors_header(path))
            except (safetensors.SafetensorError, OSError) as error:
                raise CheckpointError(
                    f"{path} is not a complete safetensors file. Received: {error}. Download or copy it again."
                ) from error

    def names(self) -> list[str]:
        """Returns the names of all tensors."""
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor without reading it."""
        return tuple(self._entries[name][2]["shape"])

    def problem(self, name: str) -> str | None:
        """Describes a data type that is not floating-point."""
        dtype = self._entries[name][2]["dtype"]
        return None if dtype in _DTYPES else f"of type {dtype}"

    def dtype(self, name: str) -> str:
        """Returns the data type of a tensor."""
        return _DTYPES[self._entries[name][2]["dtype"]]

    def read_any(self, name: str) -> np.ndarray:
        """See `TensorFile.read_any`."""
        return self._read(name) if self._entries[name][2]["dtype"] in _INTEGERS else self.read(name)

    def _read(self, name: str) -> np.ndarray:
        path, start, entry = self._entries[name]
        offset = start + entry["data_offsets"][0]
        # Files are little-endian; bfloat16 has no such variant in NumPy, nor a reader.
        dtype = _numpy_dtype({**_DTYPES, **_INTEGERS}[entry["dtype"]])
        count = math.prod(entry["shape"])
        try:
            bits = np.fromfile(path, f"<u{dtype.itemsize}", count, offset=offset)
        except OSError as error:
            raise CheckpointError(f"{path} was opened, but {name} cannot be read from it. Received: {error}") from error
        if bits.size != count:
            raise CheckpointError(
                f"{path} was changed after it was opened. Expected: {count} values of {name}. Received: {bits.size}"
            )
        return bits.astype(f"u{dtype.itemsize}", copy=False).view(dtype).reshape(entry["shape"])


def _safetensors_header(path: Path) -> dict[str, tuple[Path, int, dict[str, Any]]]:
    """Returns for each tensor the file, the offset of the data section, and its entry in the header."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = parse_json(file.read(size), f"the header of {path}")
    return {name: (path, 8 + size, entry) for name, entry in header.items() if name != "__metadata__"}


def mapped_tensors(path: Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a safetensors file, mapped into memory, without the library.

    Raises:
        CheckpointError: the file is damaged, or has a tensor of another type than float32, uint8 and int32.
    """
    tensors: dict[str, np.ndarray] = {}
    try:
        for name, (_, start, entry) in _safetensors_header(path).items():
            dtype, (first, last) = _MAPPED[entry["dtype"]], entry["data_offsets"]
            shape = tuple(map(int, entry["shape"]))
            if last - first != math.prod(shape) * np.dtype(dtype).itemsize:
                raise ValueError(f"{name} has {last - first} bytes for the shape {shape}")
            tensors[name] = np.memmap(path, dtype, "r", start + first, shape)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SourceError) as error:
        raise CheckpointError(
            f"{path} must be a safetensors file of {', '.join(_MAPPED)}. Received: {error}"
        ) from error
    return tensors


def save_tensors(tensors: Mapping[str, np.ndarray], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a `.safetensors` file that is readable by all users.

    Args:
        tensors: Arrays by name.
        path: The file.
        metadata: Strings by name in its header; by default those that `transformers` expects.

    Raises:
        OSError: the disk is full, or the file cannot be written.
    """
    safetensors_numpy = require("safetensors.numpy", "adapters")
    safetensors = require("safetensors", "adapters")
    try:
        safetensors_numpy.save_file(dict(tensors), path, metadata=dict(metadata or {"format": "pt"}))
    except safetensors.SafetensorError as error:  # not an `OSError`, and without an error number
        raise OSError(errno.EIO, f"{path.name} could not be written: {error}") from error
    path.chmod(0o644)  # safetensors creates files that only their owner can read


def save_torch(tensors: Mapping[str, np.ndarray], path: Path) -> None:
    """Writes a file of PyTorch with nothing but tensors, for libraries that read no other.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    torch = require("torch", "test")
    torch.save({name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}, path)


class TorchFile(TensorFile):
    """One or several `pytorch_model.bin` files; only weights are loaded, no code is executed."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        super().__init__(folder, files)
        torch = require("torch", "test")
        self._torch = torch
        self._tensors: dict[str, Any] = {}
        for path in self.paths:
            try:
                content = torch.load(path, map_location="cpu", weights_only=True, mmap=_can_be_mapped(path))
            except Exception as error:  # damaged files raise many types of errors
                raise CheckpointError(_why_unreadable(path, error)) from error
            if not isinstance(content, Mapping):
                raise CheckpointError(f"{path} must contain tensors by name. Received: {type(content).__name__}")
            others = {str(name): type(x).__name__ for name, x in content.items() if not isinstance(x, torch.Tensor)}
            if others:
                raise CheckpointError(f"{path} must contain nothing but tensors by name. Received: {str(others)[:200]}")
            self._tensors.update({str(name): tensor.detach() for name, tensor in content.items()})

    def names(self) -> list[str]:
        """Returns the names of all tensors."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor without reading it."""
        return tuple(self._tensors[name].shape)

    def problem(self, name: str) -> str | None:
        """Describes a tensor that is quantized, sparse, nested, without data, or not floating-point."""
        torch, tensor = self._torch, self._tensors[name]
        if tensor.is_quantized:
            return f"that is quantized ({tensor.dtype})"
        if tensor.layout != torch.strided or tensor.is_nested:
            return "that is sparse or nested"
        if tensor.is_meta:
            return "without data"
        floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        return None if tensor.dtype in floats else f"of type {str(tensor.dtype).removeprefix('torch.')}"

    def dtype(self, name: str) -> str:
        """Returns the data type of a tensor."""
        return str(self._tensors[name].dtype).removeprefix("torch.")

    def _read(self, name: str) -> np.ndarray:
        # The array gets the logical order of elements also if the tensor is a transposed view.
        tensor = self._tensors[name].contiguous()
        if tensor.dtype == self._torch.bfloat16:  # PyTorch cannot convert it
            bits: np.ndarray = tensor.view(self._torch.int16).numpy()
            return bits.view(_numpy_dtype("bfloat16"))
        array: np.ndarray = tensor.numpy()
        return array


def _can_be_mapped(path: Path) -> bool:
    """Whether a file can be memory-mapped: older files are not zip archives, and archives may be compressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            return all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return False


def _why_unreadable(path: Path, error: Exception) -> str:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if type(error).__name__ == "UnpicklingError":
        return (
            f"{path} contains more than weights, and code in checkpoints is never executed. "
            f"Convert it to safetensors. Received: {reason}"
        )
    return f"{path} cannot be read as PyTorch weights. Received: {reason}"


class JoinedTensors(TensorFile):
    """Tensors of a checkpoint and of its subfolders, which are named after them: `2_Dense/linear.weight`.

    Args:
        parts: Tensor files by their subfolders; `""` is the folder itself.
    """

    def __init__(self, parts: Mapping[str, TensorFile]) -> None:
        self.paths = [path for part in parts.values() for path in part.paths]
        self._located = {
            f"{folder}/{name}" if folder else name: (part, name) for folder, part in parts.items() for name in part
        }
        self.on_disk = all(part.on_disk for part in parts.values())

    def names(self) -> list[str]:
        """Returns the names of all tensors."""
        return list(self._located)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor without reading it."""
        part, own = self._located[name]
        return part.shape(own)

    def problem(self, name: str) -> str | None:
        """Describes why a tensor is unsupported."""
        part, own = self._located[name]
        return part.problem(own)

    def dtype(self, name: str) -> str:
        """Returns the data type of a tensor."""
        part, own = self._located[name]
        return part.dtype(own)

    def _read(self, name: str) -> np.ndarray:
        part, own = self._located[name]
        return part.read(own)


class ReplacedTensors(TensorFile):
    """Tensors of a checkpoint, some of which are replaced, or added.

    Args:
        file: The checkpoint.
        arrays: The other tensors by name.
    """

    def __init__(self, file: TensorFile, arrays: Mapping[str, np.ndarray]) -> None:
        self.file, self.arrays = file, arrays
        self.paths, self.on_disk = file.paths, file.on_disk

    def names(self) -> list[str]:
        """Returns the names of all tensors."""
        return [*(name for name in self.file if name not in self.arrays), *self.arrays]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor without reading it."""
        return self.arrays[name].shape if name in self.arrays else self.file.shape(name)

    def problem(self, name: str) -> str | None:
        """Describes why a tensor is unsupported."""
        return None if name in self.arrays else self.file.problem(name)

    def dtype(self, name: str) -> str:
        """Returns the data type of a tensor."""
        return self.arrays[name].dtype.name if name in self.arrays else self.file.dtype(name)

    def _read(self, name: str) -> np.ndarray:
        return self.arrays[name] if name in self.arrays else self.file.read(name)


class RenamedTensors(TensorFile):
    """Tensors of a checkpoint by other names; one tensor may have several.

    Args:
        file: The checkpoint.
        located: Names in the checkpoint by the other names.
    """

    def __init__(self, file: TensorFile, located: Mapping[str, str]) -> None:
        self.file, self._located = file, dict(located)
        self.paths, self.on_disk = file.paths, file.on_disk

    def names(self) -> list[str]:
        """Returns the names of all tensors."""
        return list(self._located)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor without reading it."""
        return self.file.shape(self._located[name])

    def problem(self, name: str) -> str | None:
        """Describes why a tensor is unsupported."""
        return self.file.problem(self._located[name])

    def dtype(self, name: str) -> str:
        """Returns the data type of a tensor."""
        return self.file.dtype(self._located[name])

    def _read(self, name: str) -> np.ndarray:
        return self.file.read(self._located[name])


class SplitTensors(RenamedTensors):
    """Tensors of a checkpoint by other names, some of which are equal parts of a tensor along its first axis.

    Args:
        file: The checkpoint.
        located: Names in the checkpoint by the other names.
        parts: Index and number of the parts, by the other names of the tensors that are parts.
    """

    def __init__(self, file: TensorFile, located: Mapping[str, str], parts: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(file, located)
        self._parts = dict(parts)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor without reading it."""
        shape = super().shape(name)
        return (shape[0] // self._parts[name][1], *shape[1:]) if name in self._parts else shape

    def _read(self, name: str) -> np.ndarray:
        whole = super()._read(name)
        if name not in self._parts:
            return whole
        index, count = self._parts[name]
        return np.split(whole, count)[index]


def without_wrappers(file: TensorFile) -> TensorFile:
    """Returns a checkpoint with the names that tensors have in the model itself.

    Those of a model that was wrapped when it was saved begin with `module.` (`DataParallel`) or `_orig_mod.`
    (`torch.compile`).
    """
    located = {_WRAPPERS.sub("", name): name for name in file}
    return file if all(map(located.get, file)) or len(located) < len(file) else RenamedTensors(file, located)


def open_tensors(folder: Path) -> TensorFile:
    """Opens the tensor files of a checkpoint folder; safetensors take precedence. A file is one of PyTorch.

    Raises:
        CheckpointError: there is no tensor file, or an index cannot be read.
    """
    if folder.is_file():
        return TorchFile(folder.parent, [folder.name])
    kinds: list[tuple[str, type[TensorFile]]] = [("model.safetensors", Safetensors), ("pytorch_model.bin", TorchFile)]
    for name, kind in kinds:
        if (folder / name).exists():
            return kind(folder, [name])
        index = f"{name}.index.json"
        if (folder / index).exists():
            return kind(folder, _shards(folder, index))
    received = ", ".join(sorted(path.name for path in folder.iterdir())) or "an empty folder"
    raise CheckpointError(
        f"No weights found. Expected model.safetensors or pytorch_model.bin, or an index of their parts, in {folder}. "
        f"Received: {received}.{foreign_graph(folder)}"
    )


def _shards(folder: Path, index: str) -> list[str]:
    content = read_json(inside(folder, index))
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(x, str) for x in weight_map.values()):
        raise CheckpointError(
            f"{folder / index} must have a weight_map from tensors to files. Received: {json.dumps(content)[:200]}"
        )
    return sorted(set(weight_map.values()))

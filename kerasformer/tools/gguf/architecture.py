"""How llama.cpp stores an architecture: keys of its settings, names of its tensors, and the layouts that differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from kerasformer.basics.arguments import check, kind_of
from kerasformer.errors import CheckpointError, UnsupportedConfigError
from kerasformer.files.reading import JsonObject
from kerasformer.tools.gguf.container import Container

Settings = JsonObject
"""Content of a `config.json`."""

_Value = TypeVar("_Value")

_REQUIRED = object()
_KINDS: Mapping[type, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}


class Metadata:
    """Values in the header of a file, with checks of their types.

    Keys of the architecture, such as `llama.block_count`, are read by their names without the architecture.

    Args:
        container: The file.
    """

    def __init__(self, container: Container) -> None:
        self.container = container
        self._seen: set[str] = set()
        self.architecture: str = self.get("general.architecture", str)

    def get(self, key: str, kind: type, default: Any = _REQUIRED) -> Any:
        """Returns a value.

        Args:
            key: Key in the file.
            kind: Expected type: `int`, `float`, `str` or `bool`.
            default: Value of a missing key, which otherwise is an error. A list with one number for each layer is
                accepted if they are equal.

        Raises:
            CheckpointError: the key is missing, or its value has another type.
        """
        self._seen.add(key)
        values = self.container.values
        if key not in values:
            if default is _REQUIRED:
                raise CheckpointError(
                    f"{self.container.path} has no value for the key {key}, which is required. Received: "
                    f"{', '.join(sorted(values))[:400] or 'no keys'}"
                )
            return default
        value: Any = values[key]
        if isinstance(value, list) and value and kind is not str and all(item == value[0] for item in value):
            value = value[0]
        value = check(f"{key} in {self.container.path}", value, kind_of(kind), error=CheckpointError)
        # The shortest decimal with the same float32: 1e-05 rather than 9.999999747378752e-06.
        if kind is float:
            value = float(str(np.float32(value)))
        return value

    def own(self, key: str, kind: type, default: Any = _REQUIRED) -> Any:
        """Returns a value by its key without the architecture; see `get`."""
        return self.get(f"{self.architecture}.{key}", kind, default)

    def size_of(self, key: str, default: Any = _REQUIRED) -> int:
        """Returns a size by its key without the architecture, at least 1; see `get`."""
        value: int = self.own(key, int, default)
        if value < 1:
            raise CheckpointError(
                f"{self.architecture}.{key} in {self.container.path} must be at least 1. Received: {value}"
            )
        return value

    def strings(self, key: str) -> list[str]:
        """Returns a list of strings; see `get`."""
        return self._list(key, str, _REQUIRED)

    def numbers(self, key: str, default: Any = _REQUIRED) -> list[Any]:
        """Returns a list of numbers; see `get`."""
        return self._list(key, float, default)

    def flags(self, key: str, count: int) -> list[bool]:
        """Returns a list of as many truth values as the model has layers; see `get`."""
        values = self._list(key, bool, _REQUIRED)
        if len(values) != count:
            raise CheckpointError(
                f"{key} in {self.container.path} must have {count} values, one for each layer. Received: {len(values)}"
            )
        return values

    def _list(self, key: str, kind: type, default: Any) -> list[Any]:
        self._seen.add(key)
        value = self.container.values.get(key, default)
        if value is _REQUIRED:
            return [self.get(key, str)]  # raises the error
        if not isinstance(value, list) or not all(isinstance(item, _KINDS[kind]) for item in value):
            raise CheckpointError(f"{key} in {self.container.path} must be a list. Received: {value!r:.200}")
        return value

    def has_tensor(self, name: str) -> bool:
        """Whether the file has a tensor of this name."""
        return name in self.container.tensors

    def size(self, name: str, axis: int = 0) -> int:
        """Returns a dimension of a tensor.

        Raises:
            CheckpointError: the tensor is missing or has fewer dimensions.
        """
        entry = self.container.tensors.get(name)
        if entry is None or len(entry.shape) <= axis:
            raise CheckpointError(
                f"{self.container.path} has no tensor {name} of at least {axis + 1} dimensions, which is required. "
                f"Received: {'its shape ' + str(entry.shape) if entry else 'no such tensor'}"
            )
        return entry.shape[axis]

    def unread(self) -> Settings:
        """Returns the values of the architecture that were not read, by their keys."""
        prefix = f"{self.architecture}."
        values = self.container.values
        return {key: values[key] for key in values if key.startswith(prefix) and key not in self._seen}


def _unchanged(value: _Value) -> _Value:
    return value


@dataclass(frozen=True)
class Layout:
    """How the values of a tensor differ from those of the checkpoint.

    Attributes:
        restore: Converts the array of the file to that of the checkpoint.
        shape: Converts its shape.
    """

    restore: Callable[[np.ndarray], np.ndarray] = _unchanged
    shape: Callable[[tuple[int, ...]], tuple[int, ...]] = _unchanged


AS_IT_IS = Layout()
TRANSPOSED = Layout(lambda array: array.T, lambda shape: shape[::-1])
ONE_LESS = Layout(lambda array: array - np.ones((), array.dtype))
"""Scales of norms that multiply by `1 + w`; llama.cpp stores the sum."""


def paired(heads: int) -> Layout:
    """Rows of each head whose rotary pairs are neighbours; in the checkpoint, they are in the two halves of the head.

    Args:
        heads: Number of heads.
    """

    def restore(array: np.ndarray) -> np.ndarray:
        return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)

    return Layout(restore)


def by_kind(heads: int) -> Layout:
    """Rows of all queries, then of keys and values; in the checkpoint, those of each head are side by side.

    Args:
        heads: Number of heads.
    """

    def restore(array: np.ndarray) -> np.ndarray:
        return array.reshape(3, heads, -1, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)

    return Layout(restore)


def without_first(count: int) -> Layout:
    """A table without its first rows, which the model does not use."""

    def restore(array: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros((count, *array.shape[1:]), array.dtype), array])

    return Layout(restore, lambda shape: (shape[0] + count, *shape[1:]))


Target = str | tuple[str, Layout]
"""Name of a tensor in the checkpoint, without `.weight` or `.bias`, and its layout."""


@dataclass(frozen=True)
class Architecture:
    """How llama.cpp stores an architecture.

    Attributes:
        name: Content of `general.architecture`.
        settings: Returns the content of `config.json`. Keys of the file that it does not read are added by their own
            names, so that they are reported as those of any `config.json`.
        tensors: Returns the tensors of the checkpoint by their names in the file, with `{i}` for the layer and without
            `.weight` or `.bias`, for a `config.json`.
        ignored: Names of tensors that `settings` reads, or that the model computes.
        sentinels: Number of tokens that stand for masked spans, whose names llama.cpp does not write.
    """

    name: str
    settings: Callable[[Metadata], Settings]
    tensors: Callable[[Settings], Mapping[str, Target]]
    ignored: Sequence[str] = ()
    sentinels: int = 0


_LAYER = re.compile(r"(?<=blk\.)\d+(?=\.)")
_SUFFIX = re.compile(r"\.(weight|bias)$")


def located(names: Sequence[str], architecture: Architecture, settings: Settings) -> dict[str, tuple[str, Layout]]:
    """Returns the tensors of a file by their names in the checkpoint: the name in the file, and the layout.

    Tensors that the architecture does not have keep their names, so that they are reported.
    """
    targets = architecture.tensors(settings)
    result: dict[str, tuple[str, Layout]] = {}
    for name in names:
        if name in architecture.ignored:
            continue
        layer, suffix = _LAYER.search(name), _SUFFIX.search(name)
        stem = _SUFFIX.sub("", _LAYER.sub("{i}", name, count=1))
        target = targets.get(stem)
        if target is None:
            result[name] = name, AS_IT_IS
            continue
        tensor, layout = (target, AS_IT_IS) if isinstance(target, str) else target
        result[tensor.replace("{i}", layer[0] if layer else "") + (suffix[0] if suffix else "")] = name, layout
    return result


def find(metadata: Metadata, architectures: Sequence[Architecture]) -> Architecture:
    """Returns the architecture of a file.

    Raises:
        UnsupportedConfigError: it is unsupported.
    """
    for architecture in architectures:
        if architecture.name == metadata.architecture:
            return architecture
    raise UnsupportedConfigError(
        f"{metadata.container.path} contains a model of an unsupported architecture. Expected one of "
        f"{', '.join(sorted(architecture.name for architecture in architectures))}. "
        f"Received: general.architecture={metadata.architecture!r:.100}"
    )

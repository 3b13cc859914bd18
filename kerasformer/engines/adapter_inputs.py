"""Inputs of bundles for the matrices of low-rank adapters, which are written once and kept between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kerasformer.bundle.adapters import ALL_LINEAR, Adapter, Pair
from kerasformer.bundle.interface import ADAPTERS, Kind, Signature, TensorInfo
from kerasformer.errors import InputError


@dataclass(frozen=True)
class _Module:
    """The inputs for a module.

    Attributes:
        a: Name of the input for `A`.
        b: Names of the inputs for the parts of `B`, in their order in the tensor.
        groups: Number of groups of outputs, each with an equal share of every part.
    """

    a: str
    b: tuple[str, ...]
    groups: int


class AdapterInputs:
    """The values of the inputs for adapters; zeros, which are the base model, until an adapter is set.

    Args:
        signatures: Signatures of the bundle.
        name: Name of the model for error messages.
        rank_first: Whether the inputs for `A` are `(r, in)` and those for `B` `(out, r)`; otherwise their transposes.

    Attributes:
        arrays: float32 arrays by the name of the input.
        version: Digest of the adapter; empty for the base model.
    """

    def __init__(self, signatures: Iterable[Signature], name: str, rank_first: bool) -> None:
        self.name, self.rank_first, self.version = name, rank_first, ""
        infos = {
            key: info for signature in signatures for key, info in signature.inputs.items() if info.kind in ADAPTERS
        }
        self._infos: dict[str, TensorInfo] = infos
        self.arrays = {key: np.zeros(_sizes(info), np.float32) for key, info in infos.items()}
        self._modules = {module: _module(infos, module) for module in dict.fromkeys(i.module for i in infos.values())}

    def set(self, adapter: Adapter | None) -> None:
        """Replaces all values by those of an adapter; `None` for zeros.

        Raises:
            InputError: the bundle has no inputs for adapters.
            CheckpointError: the adapter has other modules, shapes or a higher rank than the inputs, lacks a module, or
                replaces whole tensors; the message lists all mismatches. The values are unchanged.
        """
        if not self._infos:
            raise InputError(
                "This bundle runs no adapters. Expected: a bundle that was exported with lora_rank=…, or an adapter "
                "that is merged before the export. Received: a bundle without inputs for adapters"
            )
        values = {} if adapter is None else self._values(adapter)
        digest = hashlib.sha256()
        for key, array in self.arrays.items():
            array[...] = values.get(key, 0)
            digest.update(array.data)
        self.version = "" if adapter is None else digest.hexdigest()

    def _values(self, adapter: Adapter) -> dict[str, np.ndarray]:
        merge = "Merge the adapter before the export: merge_adapter(), or kerasformer export --adapter"
        replaced = (*adapter.saved, *adapter.base, *adapter.biases)
        problems = [f"{name} is replaced as a whole. {merge}" for name in replaced]
        problems += [f"{name} has trained rows of tokens. {merge}" for name in adapter.rows]
        if adapter.config.dora:
            problems.append(f"use_dora: the bundle has no inputs for magnitudes. {merge}")
        values: dict[str, np.ndarray] = {}
        for path, pair in adapter.pairs.items():
            module = self._located(path)
            if module is None:
                problems.append(f"{path}: the bundle has no inputs for this module")
            elif module.a in values:
                problems.append(f"{path}: a second product of this module")
            elif problem := self._mismatch(module, pair):
                problems.append(f"{path}: {problem}")
            else:
                values |= self._of_module(module, pair)
        if not problems and adapter.config.targets != ALL_LINEAR:
            # As in Keras: a file without a part of its layers would answer, too, but wrongly.
            missing = [name for name, module in self._modules.items() if module.a not in values]
            problems += [
                f"missing: the product of {name}, one of target_modules"
                for name in missing
                if adapter.config.adapts(str(name))
            ]
        if problems:
            raise adapter.mismatch(self.name, problems, [str(name) for name in self._modules])
        return values

    def _located(self, path: str) -> _Module | None:
        """Returns a module by its path, which lacks a prefix, or has one, in models for other tasks."""
        if path in self._modules:
            return self._modules[path]
        matches = [
            module
            for name, module in self._modules.items()
            if path.endswith(f".{name}") or str(name).endswith(f".{path}")
        ]
        return matches[0] if len(matches) == 1 else None

    def _mismatch(self, module: _Module, pair: Pair) -> str | None:
        size, rank = self._size(module.a)
        outputs = sum(self._size(name)[0] for name in module.b)
        if pair.embedding or pair.a.shape != (pair.rank, size) or pair.b.shape != (outputs, pair.rank):
            return f"expected A (r, {size}) and B ({outputs}, r). Received: {pair.a.shape} and {pair.b.shape}"
        if pair.rank > rank:
            return f"expected a rank of at most {rank}, that of the export. Received: {pair.rank}"
        return None

    def _size(self, name: str) -> tuple[int, int]:
        """Returns the number of inputs or outputs of a matrix, and the rank."""
        first, second = _sizes(self._infos[name])
        rank_first = self.rank_first if self._infos[name].kind == Kind.ADAPTER_A else not self.rank_first
        return (second, first) if rank_first else (first, second)

    def _of_module(self, module: _Module, pair: Pair) -> Mapping[str, np.ndarray]:
        """Returns the values of a module's inputs, with zeros for the ranks that the adapter does not have."""
        rank = self._size(module.a)[1]
        a = np.pad(pair.a, ((0, rank - pair.rank), (0, 0)))
        b = np.pad(pair.b * np.float32(pair.scale), ((0, 0), (0, rank - pair.rank)))
        sizes = [self._size(name)[0] for name in module.b]
        grouped = b.reshape(module.groups, -1, rank)
        ends = np.cumsum([size // module.groups for size in sizes])[:-1]
        parts = [part.reshape(-1, rank) for part in np.split(grouped, ends, axis=1)]
        values = {module.a: a, **dict(zip(module.b, parts, strict=True))}
        return values if self.rank_first else {name: value.T for name, value in values.items()}


def _module(infos: Mapping[str, TensorInfo], module: str | None) -> _Module:
    module_infos = {name: info for name, info in infos.items() if info.module == module}
    (a,) = (name for name, info in module_infos.items() if info.kind == Kind.ADAPTER_A)
    b = sorted((info.part or 0, name) for name, info in module_infos.items() if info.kind == Kind.ADAPTER_B)
    return _Module(a, tuple(name for _, name in b), max(info.groups or 1 for info in module_infos.values()))


def _sizes(info: TensorInfo) -> tuple[int, int]:
    first, second = (int(size) for size in info.shape)
    return first, second

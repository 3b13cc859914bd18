"""Keys and values of earlier tokens on ONNX Runtime, in the form that a file can continue.

`SharedCaches` are for files with fused attention: one buffer is what a step reads and what it writes, so that it adds
its own positions and copies none. `GrowingCaches` are for all others: each step gives new, longer tensors.
Shape letters: `B` rows, `H` heads, `S` positions, `D` head size, `V` vocabulary, `T` tokens of one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from kerasformer.bundle.interface import LOGITS
from kerasformer.runtime.onnx.session import OnnxSession, tensor

_FIRST_ROOM = 64  # positions


class Caches(Protocol):
    """The caches of a batch. Which of their positions count is said by the caller: the rest is old or empty."""

    version: int
    """Rises with every change in place; who remembers an older one must not go on."""

    def run(self, inputs: Mapping[str, Any], length: int, count: int, scores: np.ndarray | None) -> Caches:
        """Reads `count` tokens after `length` others; returns the caches with them.

        Args:
            inputs: The decoder's other inputs, as ONNX Runtime's tensors.
            length: Positions that are filled.
            count: Tokens `T`.
            scores: float32 `(B, T, V)`, to be filled with the logits; `None` if nobody wants them, which saves time.
        """
        ...

    def reorder(self, rows: np.ndarray, length: int) -> Caches:
        """The caches of these rows. As many as before: those that others come from are in their old places."""
        ...

    def fork(self, length: int) -> Caches:
        """Caches that do not change with these."""
        ...


class GrowingCaches:
    """Tensors `(B, H, S, D)`, of which a step makes longer ones. None is ever changed.

    Args:
        session: The decoder.
        past: By the names of its inputs.
    """

    version = 0

    def __init__(self, session: OnnxSession, past: Mapping[str, Any]) -> None:
        self.session = session
        self.past = dict(past)

    @classmethod
    def empty(cls, session: OnnxSession, names: list[str], batch: int) -> GrowingCaches:
        """Without a position."""
        return cls(session, {name: tensor(np.zeros(_shape(session, name, batch, 0), np.float32)) for name in names})

    def run(self, inputs: Mapping[str, Any], length: int, count: int, scores: np.ndarray | None) -> GrowingCaches:
        """See `Caches.run`."""
        binding = self.session.binding()
        given = {**inputs, **self._cut(length)}  # to the end, as a binding does not hold the memory of arrays
        for name, value in given.items():
            binding.bind_ortvalue_input(name, value)
        after = self.session.signature.continued()
        for name in self.past:
            binding.bind_output(after[name], "cpu")
        if scores is not None:
            binding.bind_ortvalue_output(LOGITS, tensor(scores))
        self.session.run(binding)
        return GrowingCaches(self.session, dict(zip(self.past, binding.get_outputs(), strict=False)))

    def reorder(self, rows: np.ndarray, length: int) -> GrowingCaches:
        """See `Caches.reorder`."""
        if np.array_equal(rows, np.arange(next(iter(self.past.values())).shape()[0])):
            return self
        past = {name: tensor(value.numpy()[rows]) for name, value in self._cut(length).items()}
        return GrowingCaches(self.session, past)

    def fork(self, length: int) -> GrowingCaches:
        """These, as no step changes them."""
        return self

    def _cut(self, length: int) -> dict[str, Any]:
        """The first positions, where later ones were taken back."""
        return {
            name: value if value.shape()[2] == length else tensor(value.numpy()[:, :, :length])
            for name, value in self.past.items()
        }


class SharedCaches:
    """Buffers `(B, H, S, D)` with room to spare, which every step continues in place.

    They grow in powers of two: short texts need little memory, and a long one is copied a few times only.

    Args:
        session: The decoder, whose attention leaves alone what lies behind the positions that it is told of.
        arrays: By the names of its inputs.
        capacity: Positions that are never exceeded.
    """

    def __init__(self, session: OnnxSession, arrays: Mapping[str, np.ndarray], capacity: int) -> None:
        self.session, self.capacity = session, capacity
        self.version = 0
        self._hold(arrays)

    @classmethod
    def empty(cls, session: OnnxSession, names: list[str], batch: int, capacity: int) -> SharedCaches:
        """Without a position."""
        return cls(session, {name: np.zeros(_shape(session, name, batch, 0), np.float32) for name in names}, capacity)

    def run(self, inputs: Mapping[str, Any], length: int, count: int, scores: np.ndarray | None) -> SharedCaches:
        """See `Caches.run`."""
        self._make_room(length, length + count)
        for name, value in inputs.items():
            self.binding.bind_ortvalue_input(name, value)
        if scores is not None:
            self.binding.bind_ortvalue_output(LOGITS, tensor(scores))
        self.version += 1
        self.session.run(self.binding)
        return self

    def reorder(self, rows: np.ndarray, length: int) -> SharedCaches:
        """See `Caches.reorder`; copies rows that come from another one, and of those the filled positions."""
        self.version += 1
        if len(rows) != len(next(iter(self.arrays.values()))):
            return self._copy(rows, length)
        for place in np.flatnonzero(rows != np.arange(len(rows))):
            for array in self.arrays.values():
                array[place, :, :length] = array[rows[place], :, :length]
        return self

    def fork(self, length: int) -> SharedCaches:
        """See `Caches.fork`."""
        return self._copy(np.arange(len(next(iter(self.arrays.values())))), length)

    def _copy(self, rows: np.ndarray, length: int) -> SharedCaches:
        """Buffers of their own."""
        arrays = {}
        for name, array in self.arrays.items():
            arrays[name] = np.zeros((len(rows), *array.shape[1:]), np.float32)
            arrays[name][:, :, :length] = array[rows, :, :length]
        return SharedCaches(self.session, arrays, self.capacity)

    def _make_room(self, length: int, needed: int) -> None:
        room = next(iter(self.arrays.values())).shape[2]
        if needed <= room:
            return
        room = max(_FIRST_ROOM, 1 << (needed - 1).bit_length())
        arrays = {}
        for name, array in self.arrays.items():
            batch, heads, _, size = array.shape
            arrays[name] = np.zeros((batch, heads, min(room, self.capacity), size), np.float32)
            arrays[name][:, :, :length] = array[:, :, :length]
        self._hold(arrays)

    def _hold(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = dict(arrays)
        self.binding = self.session.binding()
        after = self.session.signature.continued()
        for name, array in self.arrays.items():
            value = tensor(array)
            self.binding.bind_ortvalue_input(name, value)
            self.binding.bind_ortvalue_output(after[name], value)


def _shape(session: OnnxSession, name: str, batch: int, length: int) -> tuple[int, int, int, int]:
    _, heads, _, size = session.signature.inputs[name].shape
    return batch, int(heads), length, int(size)

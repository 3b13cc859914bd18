"""Caches on ONNX Runtime, in the forms that exported files use.

`SharedCaches` are for files with fused attention: a step reads and writes the same buffers, so that it only adds its
slots and copies nothing. `GrowingCaches` are for all other files: each step returns new, longer tensors. Both also hold
the `ShiftingStates` of layers that read only the last tokens, which are small.
Shape letters: `B` rows, `H` heads, `S` slots, `D` head size, `V` vocabulary, `T` tokens of one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kerasformer.engines.onnx.session import OnnxSession, tensor

if TYPE_CHECKING:
    import onnxruntime

_MIN_SLOTS = 64
"""Smallest size of shared caches. Also slots that were never written take memory, since NumPy asks for large pages."""
Scores = tuple[str, np.ndarray]


class Caches(Protocol):
    """Caches of a batch. Callers pass the number of valid slots; the content of the others is undefined."""

    version: int
    """Incremented by every change in place; a state with an earlier version is invalid."""

    def run(
        self, inputs: Mapping[str, np.ndarray | onnxruntime.OrtValue], length: int, count: int, scores: Scores | None
    ) -> Caches:
        """Processes `count` tokens after `length` others; returns the caches that include them.

        Args:
            inputs: Other inputs of the decoder by name, as arrays or `OrtValue`s.
            length: Number of valid slots.
            count: Number of tokens `T`.
            scores: Name and array of the output for the logits, float32 `(B, T, V)`, or for the states that these are
                computed from; `None` if it is not needed.
        """
        ...

    def reorder(self, rows: np.ndarray, length: int) -> Caches:
        """Returns the caches of the given rows; rows that keep their index are not copied.

        If the number of rows does not change, a row that others are copied from must keep its index.
        """
        ...

    def fork(self, length: int) -> Caches:
        """Returns independent caches with the same content."""
        ...

    def content(self, length: int) -> dict[str, np.ndarray]:
        """Returns the valid slots `(B, H, S, D)` by input name; they may be views that later steps change."""
        ...


@dataclass(frozen=True)
class ShiftingStates:
    """States `(B, H, S, D)` with the last `S` slots of a text in its order, and 0 before it; never modified.

    Beside them, states without slots, from which no token is discarded.

    Attributes:
        session: Session of the decoder, in whose signature their inputs have a `margin`.
        arrays: States by input name.
        length: Number of tokens of the text that they end with.
    """

    session: OnnxSession
    arrays: Mapping[str, np.ndarray]
    length: int = 0

    @staticmethod
    def named(session: OnnxSession, names: Iterable[str]) -> list[str]:
        """Returns those of the inputs that are such states."""
        return [name for name in names if session.signature.inputs[name].margin is not None]

    @classmethod
    def of(cls, session: OnnxSession, content: Mapping[str, Any], length: int) -> ShiftingStates:
        """Selects the states from the content of all caches."""
        return cls(session, {name: content[name] for name in cls.named(session, content)}, length)

    @classmethod
    def empty(cls, session: OnnxSession, names: Iterable[str], batch: int) -> ShiftingStates:
        """Creates the states before a text."""
        return cls(session, {name: _unused(session, name, batch, 0) for name in cls.named(session, names)})

    def cut(self, length: int) -> ShiftingStates:
        """Returns the states after the first `length` tokens; what is older than the states is 0, and never read."""
        count = self.length - length
        if not count:
            return self
        arrays = {name: np.zeros_like(array) for name, array in self.arrays.items()}
        for name, array in arrays.items():
            array[:, :, count:] = self.arrays[name][:, :, :-count]
        return replace(self, arrays=arrays, length=length)

    def reorder(self, rows: np.ndarray) -> ShiftingStates:
        """Selects rows."""
        return replace(self, arrays={name: array[rows] for name, array in self.arrays.items()})

    def bind(self, binding: Any, count: int) -> ShiftingStates:
        """Binds the states, which the caller must keep, to a run of `count` tokens; returns those that it computes."""
        after, results = self.session.signature.continued(), {}
        for name, array in self.arrays.items():
            results[name] = np.empty_like(array)
            binding.bind_ortvalue_input(name, tensor(array))
            binding.bind_ortvalue_output(after[name], tensor(results[name]))
        return replace(self, arrays=results, length=self.length + count)


class GrowingCaches:
    """Caches `(B, H, S, D)` that every step replaces by longer tensors; existing tensors are never modified.

    Args:
        session: Session of the decoder.
        past: Tensors by input name.
        states: The other states.
    """

    version = 0

    def __init__(self, session: OnnxSession, past: Mapping[str, Any], states: ShiftingStates) -> None:
        self.session, self.states = session, states
        self.past = dict(past)

    @classmethod
    def empty(cls, session: OnnxSession, names: list[str], batch: int) -> GrowingCaches:
        """Creates caches without slots."""
        states = ShiftingStates.empty(session, names, batch)
        growing = [name for name in names if name not in states.arrays]
        return cls(session, {name: tensor(_unused(session, name, batch, 0)) for name in growing}, states)

    @classmethod
    def filled(cls, session: OnnxSession, content: Mapping[str, np.ndarray], length: int) -> GrowingCaches:
        """Creates caches with this content after `length` tokens; nothing is copied."""
        states = ShiftingStates.of(session, content, length)
        past = {name: tensor(array) for name, array in content.items() if name not in states.arrays}
        return cls(session, past, states)

    def run(
        self, inputs: Mapping[str, np.ndarray | onnxruntime.OrtValue], length: int, count: int, scores: Scores | None
    ) -> GrowingCaches:
        """Processes tokens; see `Caches.run`."""
        binding = self.session.binding()
        # Kept alive until the end, as a binding does not own its memory.
        tensors = {name: tensor(value) for name, value in inputs.items()} | self._cut(length)
        for name, value in tensors.items():
            binding.bind_ortvalue_input(name, value)
        after = self.session.signature.continued()
        for name in self.past:
            binding.bind_output(after[name], "cpu")
        before = self.states.cut(length)
        states = before.bind(binding, count)
        if scores is not None:
            binding.bind_ortvalue_output(scores[0], tensor(scores[1]))
        self.session.run(binding)
        return GrowingCaches(self.session, dict(zip(self.past, binding.get_outputs(), strict=False)), states)

    def reorder(self, rows: np.ndarray, length: int) -> GrowingCaches:
        """Selects rows; see `Caches.reorder`."""
        if np.array_equal(rows, np.arange(next(iter(self.past.values())).shape()[0])):
            return self
        past = {name: tensor(value.numpy()[rows]) for name, value in self._cut(length).items()}
        return GrowingCaches(self.session, past, self.states.cut(length).reorder(rows))

    def fork(self, length: int) -> GrowingCaches:
        """Returns the caches themselves, since they are never modified."""
        return self

    def content(self, length: int) -> dict[str, np.ndarray]:
        """Returns the valid slots; see `Caches.content`."""
        growing = {name: value.numpy()[:, :, :length] for name, value in self.past.items()}
        return growing | dict(self.states.cut(length).arrays)

    def _cut(self, length: int) -> dict[str, onnxruntime.OrtValue]:
        """Returns the tensors without the slots of tokens that were taken back."""
        return {
            name: value if value.shape()[2] == length else tensor(value.numpy()[:, :, :length])
            for name, value in self.past.items()
        }


class SharedCaches:
    """Caches in buffers `(B, H, S, D)` with unused slots, which every step updates in place.

    The size is a power of two and grows on demand: short texts need little memory, and long ones few copies. There is
    room for half as many tokens as the prompt has, so that growing never follows soon after it.

    Args:
        session: Session of the decoder, whose attention must ignore the slots after the valid ones.
        arrays: Buffers by input name.
        capacity: Maximum number of slots.
        states: The other states, which a step replaces.
    """

    def __init__(
        self, session: OnnxSession, arrays: Mapping[str, np.ndarray], capacity: int, states: ShiftingStates
    ) -> None:
        self.session, self.capacity, self.states = session, capacity, states
        self.version = 0
        self._hold(arrays)

    @classmethod
    def empty(cls, session: OnnxSession, names: list[str], batch: int, length: int, capacity: int) -> SharedCaches:
        """Creates caches for prompts of `length` tokens, without valid slots."""
        slots, states = _rounded(length + length // 2, capacity), ShiftingStates.empty(session, names, batch)
        arrays = {name: _unused(session, name, batch, slots) for name in names if name not in states.arrays}
        return cls(session, arrays, capacity, states)

    @classmethod
    def filled(
        cls, session: OnnxSession, content: Mapping[str, np.ndarray], length: int, capacity: int
    ) -> SharedCaches:
        """Creates caches with this content after `length` tokens, and unused slots for the next ones."""
        states = ShiftingStates.of(session, content, length)
        valid = {name: array for name, array in content.items() if name not in states.arrays}
        slots = _rounded(length + 1, capacity)
        # One block takes a fraction of the time of many allocations, as it is made of large pages.
        counts = [array.shape[0] * array.shape[1] * slots * array.shape[3] for array in valid.values()]
        parts = np.split(np.zeros(sum(counts), next(iter(valid.values())).dtype), np.cumsum(counts)[:-1])
        arrays = {}
        for (name, array), part in zip(valid.items(), parts, strict=True):
            arrays[name] = part.reshape(*array.shape[:2], slots, array.shape[3])
            arrays[name][:, :, :length] = array
        return cls(session, arrays, capacity, states)

    def run(
        self, inputs: Mapping[str, np.ndarray | onnxruntime.OrtValue], length: int, count: int, scores: Scores | None
    ) -> SharedCaches:
        """Processes tokens; see `Caches.run`."""
        self._grow(length, length + count)
        for name, value in inputs.items():
            self._set(name, value)
        before = self.states.cut(length)
        states = before.bind(self.binding, count)
        if scores is not None:
            self.binding.bind_ortvalue_output(scores[0], tensor(scores[1]))
        self.version += 1
        self.session.run(self.binding)
        self.states = states
        return self

    def _set(self, name: str, value: np.ndarray | onnxruntime.OrtValue) -> None:
        """Sets an input of the next run. Copying some integers takes a fraction of the time of binding them."""
        bound = self._bound.get(name)
        if bound is value:
            return
        if isinstance(value, np.ndarray):
            if bound is not None and bound.shape == value.shape:
                bound[...] = value
                return
            value = value.copy()
        self.binding.bind_ortvalue_input(name, tensor(value))
        self._bound[name] = value

    def reorder(self, rows: np.ndarray, length: int) -> SharedCaches:
        """Selects rows; see `Caches.reorder`. Copies the valid slots of rows whose index changes."""
        self.version += 1
        if len(rows) != len(next(iter(self.arrays.values()))):
            return self._copy(rows, length)
        self.states = self.states.cut(length).reorder(rows)
        for row in np.flatnonzero(rows != np.arange(len(rows))):
            for array in self.arrays.values():
                array[row, :, :length] = array[rows[row], :, :length]
        return self

    def fork(self, length: int) -> SharedCaches:
        """Copies the caches; see `Caches.fork`."""
        return self._copy(np.arange(len(next(iter(self.arrays.values())))), length)

    def content(self, length: int) -> dict[str, np.ndarray]:
        """Returns the valid slots; see `Caches.content`."""
        growing = {name: array[:, :, :length] for name, array in self.arrays.items()}
        return growing | dict(self.states.cut(length).arrays)

    def _copy(self, rows: np.ndarray, length: int) -> SharedCaches:
        """Returns new buffers with the given rows."""
        arrays = {}
        for name, array in self.arrays.items():
            arrays[name] = np.zeros((len(rows), *array.shape[1:]), array.dtype)
            arrays[name][:, :, :length] = array[rows, :, :length]
        return SharedCaches(self.session, arrays, self.capacity, self.states.cut(length).reorder(rows))

    def _grow(self, length: int, needed: int) -> None:
        slots = next(iter(self.arrays.values())).shape[2]
        if needed <= slots:
            return
        slots = _rounded(needed, self.capacity)
        arrays = {}
        for name, array in self.arrays.items():
            batch, heads, _, size = array.shape
            arrays[name] = np.zeros((batch, heads, slots, size), array.dtype)
            arrays[name][:, :, :length] = array[:, :, :length]
        self._hold(arrays)

    def _hold(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = dict(arrays)
        self.binding = self.session.binding()
        self._bound: dict[str, onnxruntime.OrtValue] = {}
        after = self.session.signature.continued()
        for name, array in self.arrays.items():
            value = tensor(array)
            self.binding.bind_ortvalue_input(name, value)
            self.binding.bind_ortvalue_output(after[name], value)


def _rounded(needed: int, capacity: int) -> int:
    """Returns the number of slots of buffers in which `needed` slots are used."""
    return min(max(_MIN_SLOTS, 1 << (needed - 1).bit_length()), capacity)


def _unused(session: OnnxSession, name: str, batch: int, slots: int) -> np.ndarray:
    """Returns the array of a cache `(B, H, S, D)` without content, with `slots` slots if their number may differ."""
    info = session.signature.inputs[name]
    size = slots if info.margin is None else int(info.shape[2])
    return np.zeros((batch, int(info.shape[1]), size, int(info.shape[3])), info.dtype)

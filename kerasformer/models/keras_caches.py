"""The caches of a Keras model while it generates: their sizes, and their contents in saved states.

Shape letters: `B` batch, `H` heads, `S` slots of a cache, `D` head size, `M` length of the encoded text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import keras
import numpy as np
from keras import ops

from kerasformer.engines.saved_state import SavedState
from kerasformer.layers import CacheSpec
from kerasformer.layers.tensor import Tensor
from kerasformer.models.weights_digest import host_array

# Functions are compiled for each size of the caches, which takes seconds. Therefore they grow in large steps.
_FIRST_SLOTS, _GROWTH = 256, 4

Memory = tuple[Tensor, list[tuple[Tensor, ...]]]
"""Mask `(B, M)` of an encoded text, and the caches of the cross attention of each layer."""


@dataclass(frozen=True)
class KerasState:
    """State of generation between steps.

    Attributes:
        caches: Tensors `(B, H, S, D)` of each layer's cache; little longer than the window in a layer with a window.
            After them, its states without an axis of tokens, `(B, H, K, V)`.
        slots: Number of slots of the caches of layers without a window.
        index: Slot of the next token in all rows.
        unused: Number of slots before `index` that no row uses, since prompts are padded.
        starts: Slot of the first real token of each row, `(B,)` int32.
        memory: Mask `(B, M)` and cross caches of an encoder-decoder; `None` for a decoder.
        steps: Number of tokens from `step` that can be discarded.
    """

    caches: list[tuple[Tensor, ...]]
    slots: int
    index: int
    unused: int
    starts: np.ndarray
    memory: Memory | None = None
    steps: int = 0

    @property
    def context(self) -> tuple[object, ...]:
        """The arguments of the compiled functions that steps do not change."""
        return (self.starts,) if self.memory is None else self.memory


@dataclass(frozen=True)
class KerasCaches:
    """Sizes and contents of the caches of a model.

    Attributes:
        model: A model that generates.
        slots: Number of slots of the caches of layers without a window when all are full.
        margin: Number of tokens that can be discarded from the caches of layers with a window.
    """

    model: keras.Model
    slots: int
    margin: int

    def sufficient(self, count: int) -> int:
        """Returns the size of caches for `count` slots."""
        slots = _FIRST_SLOTS // 2 if self.model.is_encoder_decoder else _FIRST_SLOTS  # which hold no prompt
        while slots < min(count, self.slots):
            slots *= _GROWTH
        return min(slots, self.slots)

    def discardable(self) -> int | None:
        """Returns the number of tokens that can be discarded; `None` for all."""
        if not self.model.rewinds:
            return 0
        return None if all(slots is None for slots in self.windows()) else self.margin

    def windows(self) -> list[int | None]:
        """Returns the number of slots of the layers with a window, which are overwritten in turn; `None` for others."""
        shapes = self.model.cache_shapes(1, self.slots, self.margin)
        return [shape[2] if shape[2] < self.slots else None for shape in shapes]

    def empty(self, batch: int, slots: int) -> list[tuple[Tensor, ...]]:
        """Returns caches without tokens."""
        layers = [self._tensors(spec, batch, slots) for spec in self.model.cache_specs()]
        zeros = {each: ops.zeros(*each) for each in {each for layer in layers for each in layer}}
        return [tuple(zeros[each] for each in layer) for layer in layers]

    def _tensors(self, spec: CacheSpec, batch: int, slots: int) -> list[tuple[tuple[int, ...], str]]:
        """Returns shape and data type of each tensor; a state, to which all tokens are added, is float32."""
        types = [self.model.compute_dtype] * len(spec.tensors) + ["float32"] * len(spec.states)
        return list(zip(spec.shapes(batch, slots, self.margin), types, strict=True))

    def with_room(self, state: KerasState, count: int) -> KerasState:
        """Returns the state with caches for `count` more tokens."""
        slots = self.sufficient(state.index + count)
        if slots <= state.slots:
            return state
        grown = [
            tuple(
                ops.pad(cache, ((0, 0), (0, 0), (0, shape[2] - cache.shape[2]), (0, 0)))
                for cache, shape in zip(caches, spec.shapes(len(state.starts), slots, self.margin), strict=True)
            )
            for caches, spec in zip(state.caches, self.model.cache_specs(), strict=True)
        ]
        return replace(state, caches=grown, slots=slots)

    def saved(self, state: KerasState) -> dict[str, np.ndarray]:
        """Copies the used slots and the memory to host memory."""
        arrays: dict[str, np.ndarray] = {}
        for layer, (caches, spec) in enumerate(zip(state.caches, self.model.cache_specs(), strict=True)):
            slots = spec.shape(1, self.slots, self.margin)[2]
            first, end = self._used_slots(slots, state.index, state.unused)
            for name, cache in zip(spec.names, caches, strict=True):
                array = host_array(cache)
                arrays[f"{name}.{layer}"] = array if name in spec.states else array[:, :, first:end]
        if state.memory is not None:
            arrays["memory_mask"] = host_array(state.memory[0]).astype(np.int64)
            memory = zip(self.model.memory_specs(), state.memory[1], strict=True)
            for layer, (spec, cross) in enumerate(memory):
                named = zip(spec.tensors, cross, strict=True)
                arrays |= {f"cross_{name}.{layer}": host_array(cache) for name, cache in named}
        return arrays

    def restored(
        self, saved: SavedState, batch: int, index: int, unused: int
    ) -> tuple[list[tuple[Tensor, ...]], int, Memory | None]:
        """Copies saved slots and the memory to tensors.

        Returns:
            `(caches, number of slots, memory)`, as in a `KerasState`.
        """
        caches, num_slots = [], self.sufficient(index + 1)
        for layer, spec in enumerate(self.model.cache_specs()):
            first, end = self._used_slots(spec.shape(batch, self.slots, self.margin)[2], index, unused)
            tensors: list[Tensor] = []
            for name, (shape, dtype) in zip(spec.names, self._tensors(spec, batch, num_slots), strict=True):
                used = (first, end) if name in spec.tensors else (0, shape[2])
                sizes = (*shape[:2], used[1] - used[0], shape[3])
                array = saved.array(f"{name}.{layer}", sizes, np.dtype(dtype))
                tensors.append(
                    ops.pad(ops.convert_to_tensor(array), ((0, 0), (0, 0), (used[0], shape[2] - used[1]), (0, 0)))
                )
            caches.append(tuple(tensors))
        return caches, num_slots, self._restored_memory(saved, batch) if self.model.is_encoder_decoder else None

    def _restored_memory(self, saved: SavedState, batch: int) -> Memory:
        mask = saved.integers("memory_mask", (batch, None), 0, 1)
        dtype = np.dtype(self.model.compute_dtype)
        cross: list[tuple[Tensor, ...]] = []
        for layer, spec in enumerate(self.model.memory_specs()):
            names, shape = (f"cross_{name}.{layer}" for name in spec.tensors), spec.shape(batch, mask.shape[1])
            cross.append(tuple(ops.convert_to_tensor(saved.array(name, shape, dtype)) for name in names))
        return ops.convert_to_tensor(mask.astype("int32")), cross

    def _used_slots(self, slots: int, index: int, unused: int) -> tuple[int, int]:
        """Returns the first used slot of a cache with `slots` slots, and the end of the used ones."""
        if slots < self.slots:  # those of a window are overwritten in turn
            return 0, min(index, slots)
        return unused, index

"""Caches of what layers keep of earlier tokens: immutable objects with tensors `(B, H, S, D)`.

A layer declares its tensors by a `CacheSpec`: keys and values of an attention, or the inputs of a convolution. It reads
and updates them by the methods of `LayerCache`, which do not depend on the kind of cache. `StaticCache` has a fixed
number of slots, which are overwritten from an index on (LiteRT and XLA reuse its buffer). `GrowingCache` appends new
tokens (portable ONNX). `FixedCache` is complete and accepts no tokens (cross attention to an encoded text).
`RollingCache` is for layers that read only the last tokens and is little longer than their window; `cache_of_slots`
chooses between it and `StaticCache`. `ShiftingCache` has the same content in the order of the text. `RecurrentCache` is
one of these with states that have no axis of tokens. `RowCaches` has a cache for each row of a batch. The tensors of a
cache with `CacheScales` are int8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.tensor import Dimension, Tensor

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]
"""Function from query, key, value and bias to `(context, weights)`, as `primitives.attention`."""


KEY_AND_VALUE = ("key", "value")
"""Names of the tensors of an attention's cache."""


@dataclass(frozen=True)
class CacheSpec:
    """Declaration of what a layer keeps of earlier tokens: tensors `(B, H, S, D)` of equal shape, axis 2 the tokens.

    Engines and exports create, copy, reorder, shorten and save the tensors by this alone. Every entry belongs to one
    token, so that the state of a shorter text is a part of that of a longer one. This does not hold for `states`, such
    as the matrix of a linear recurrence, which all tokens have changed: a model with one cannot discard tokens.

    Attributes:
        num_heads: Number `H` of heads, 1 for a layer without heads.
        size: Size `D` of the entry of a head.
        window: Number of last tokens that the layer reads, the newest included; `None` for all. With a window, only as
            many last tokens can be discarded as the cache is longer than it.
        tensors: Name of each tensor.
        states: Shape without batch, `(H, K, V)`, of each tensor without an axis of tokens, by name; all are 0 before a
            text.
    """

    num_heads: int
    size: int
    window: int | None = None
    tensors: tuple[str, ...] = KEY_AND_VALUE
    states: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def attends(self) -> bool:
        """Whether the tensors are keys and values, which queries find by slots; others are read in their order."""
        return self.tensors == KEY_AND_VALUE

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tensors, those without an axis of tokens last."""
        return (*self.tensors, *self.states)

    def shape(self, batch: Dimension, length: Dimension, margin: int | None = None) -> tuple[Dimension, ...]:
        """Returns the shape of each tensor.

        Args:
            batch: Batch size `B`, a number or a symbolic name.
            length: Number of slots `S`, likewise.
            margin: Number of tokens that can be discarded from a cache that is shorter than the text. With it, a layer
                with a window has such a cache if that is shorter than `length`, which must be a number. By default, all
                layers have `length` slots.
        """
        slots = length
        if margin is not None and self.window is not None:
            slots = min(length, RollingCache.num_slots(self.window, margin))
        return batch, self.num_heads, slots, self.size

    def shapes(self, batch: Dimension, length: Dimension, margin: int | None = None) -> list[tuple[Dimension, ...]]:
        """Returns the shapes of all tensors, in the order of `names`; arguments as for `shape`."""
        return [self.shape(batch, length, margin)] * len(self.tensors) + [
            (batch, *shape) for shape in self.states.values()
        ]

    def opened(self, tensors: Sequence[Tensor], make: Callable[[tuple[Tensor, ...]], LayerCache]) -> LayerCache:
        """Returns the cache of all tensors, in the order of `names`.

        Args:
            tensors: The tensors.
            make: Creates the cache of those with an axis of tokens.
        """
        count = len(self.tensors)
        cache = make(tuple(tensors[:count]))
        return RecurrentCache(cache, tuple(tensors[count:])) if self.states else cache


@dataclass(frozen=True, eq=False)
class CacheScales:
    """Scales of a cache whose tensors are int8: a stored number times its scale is an entry of a key or value.

    Each channel of each head has a scale of its own, since a few channels of keys are much larger than all others.

    Attributes:
        key: Scales of keys, float32 `(H, 1, D)`.
        value: Scales of values, likewise.
    """

    key: np.ndarray
    value: np.ndarray


class LayerCache(Protocol):
    """Cache of a layer."""

    @property
    def complete(self) -> bool:
        """Whether no tokens are added, so that attention need not project keys and values."""

    @property
    def scales(self) -> CacheScales | None:
        """Scales of int8 tensors; `None` if the tensors contain the keys and values themselves.

        With scales, the keys and values that are added are the int8 numbers, and attention multiplies by the scales.
        """

    @property
    def states(self) -> tuple[Tensor, ...]:
        """States without an axis of tokens, `(B, H, K, V)`, after the earlier tokens; 0 before the text.

        Raises:
            InputError: the cache has none, see `CacheSpec.opened`.
        """
        raise InputError(f"The layer has states. Expected: a cache of CacheSpec.opened. Received: {self!r:.100}")

    def with_states(self, *states: Tensor) -> LayerCache:
        """Returns the cache with other states, those after the tokens that were added; raises as `states`."""
        raise InputError(f"The layer has states. Expected: a cache of CacheSpec.opened. Received: {self!r:.100}")

    def key_slots(self, length: int | Tensor) -> Tensor | None:
        """Returns the slots `(S,)` of the keys that new tokens attend to; `None` for those of the visibility."""

    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns the slots of new tokens and of all keys, for a visibility without slots.

        Args:
            length: Number `T` of new tokens.

        Returns:
            `(slots of the tokens (T,) or (B, T), slots of the keys (S,))`; `None` for keys whose slots are `key_slots`.
        """

    def last(self, count: int) -> tuple[Tensor, ...]:
        """Returns the last `count` entries of each tensor, `(B, H, count, D)`, oldest first; 0 before the text."""

    def update(self, *entries: Tensor | None) -> tuple[tuple[Tensor, ...], LayerCache]:
        """Adds entries `(B, H, T, D)` to each tensor; returns those to attend to, and the updated cache."""
        ...

    def attend(
        self, attention: Attend, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, LayerCache]:
        """Adds keys and values, and computes attention of the queries to all keys of the cache.

        Args:
            attention: The attention function.
            query: `(B, H, T, D)`.
            key: Keys of the new tokens, `(B, H, T, D)`; ignored by a complete cache.
            value: Values of the new tokens, likewise.
            bias: Added to the scores, broadcastable to `(B, H, T, S)`; optional.

        Returns:
            The results of `attention`, and the updated cache.
        """
        ...


class _BatchCache(LayerCache):
    """Base of caches with tensors for the whole batch."""

    tensors: tuple[Tensor, ...]
    complete = False
    scales: CacheScales | None = None
    begun: Tensor | None = None
    """Whether the text has earlier tokens, a scalar; `None` if tensors before a text are always 0."""

    @property
    def key(self) -> Tensor:
        """Keys `(B, H, S, D)` of an attention."""
        return self.tensors[0]

    @property
    def value(self) -> Tensor:
        """Values `(B, H, S, D)` of an attention."""
        return self.tensors[1]

    def key_slots(self, length: int | Tensor) -> Tensor | None:
        """Returns `None`: the slots are those of the visibility."""
        return None

    def attend(
        self, attention: Attend, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, LayerCache]:
        (keys, values), cache = self.update(key, value)
        return (*attention(query, keys, values, bias), cache)


class _IndexedCache(_BatchCache):
    """Base of caches with slot `p` of the text at index `p % S`."""

    position: Tensor

    @property
    def begun(self) -> Tensor:  # type: ignore[override]
        """Whether the text has earlier tokens."""
        return self.position > 0

    def last(self, count: int) -> tuple[Tensor, ...]:
        """See `LayerCache.last`. What a buffer contains before the text is never read."""
        slots = self.position - count + ops.arange(count, dtype="int32")
        index, exists = ops.mod(slots, self.tensors[0].shape[2]), ops.reshape(slots >= 0, (1, 1, count, 1))
        entries = (ops.take(tensor, index, axis=2) for tensor in self.tensors)
        return tuple(ops.where(exists, entry, ops.zeros_like(entry)) for entry in entries)


@dataclass(frozen=True)
class StaticCache(_IndexedCache):
    """Cache with a fixed number of slots `S`, which are overwritten.

    Attributes:
        tensors: `(B, H, S, D)` each, such as keys and values.
        position: Slot of the next token in all rows, a scalar int32.
        visible_length: Number of first slots to attend to, all by default; a smaller number saves time while the text
            is short.
        scales: Scales of int8 tensors; see `LayerCache.scales`.
    """

    tensors: tuple[Tensor, ...]
    position: Tensor
    visible_length: int | None = None
    scales: CacheScales | None = None

    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor]:
        """See `LayerCache.slots`."""
        count = self.tensors[0].shape[2] if self.visible_length is None else self.visible_length
        return self.position + ops.arange(length, dtype="int32"), ops.arange(count, dtype="int32")

    def update(self, *entries: Tensor) -> tuple[tuple[Tensor, ...], StaticCache]:
        """Overwrites `T` slots; the caller must mask the slots after them, whose content is undefined."""
        zero = ops.zeros_like(self.position)
        start = ops.stack([zero, zero, self.position, zero])
        pairs = zip(self.tensors, entries, strict=True)
        tensors = tuple(ops.slice_update(tensor, start, ops.cast(entry, tensor.dtype)) for tensor, entry in pairs)
        new = replace(self, tensors=tensors, position=self.position + ops.shape(entries[0])[2])
        if self.visible_length is None:
            return tensors, new
        return tuple(tensor[:, :, : self.visible_length] for tensor in tensors), new


@dataclass(frozen=True)
class GrowingCache(_BatchCache):
    """Cache that contains exactly the earlier tokens and grows with each update.

    Attributes:
        tensors: `(B, H, S, D)` each, such as keys and values.
        causal: Whether the caller's mask is causal, with the last query at the slot of the last key, so that a lowering
            can use an operator with a built-in causal mask.
        scales: Scales of int8 tensors; see `LayerCache.scales`.
    """

    tensors: tuple[Tensor, ...]
    causal: bool = False
    scales: CacheScales | None = None

    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor]:
        """See `LayerCache.slots`."""
        keys = ops.arange(ops.shape(self.tensors[0])[2] + length, dtype="int32")
        return keys[-length:], keys

    def last(self, count: int) -> tuple[Tensor, ...]:
        """See `LayerCache.last`."""
        before = ((0, 0), (0, 0), (count, 0), (0, 0))
        return tuple(ops.pad(tensor, before)[:, :, -count:] for tensor in self.tensors)

    def update(self, *entries: Tensor) -> tuple[tuple[Tensor, ...], GrowingCache]:
        """Appends entries."""
        tensors = _joined(self.tensors, entries)
        return tensors, replace(self, tensors=tensors)


@dataclass(frozen=True)
class ShiftingCache(_BatchCache):
    """Cache of the last `S` entries in the order of the text, with 0 before its start; a layer reads them by `last`.

    Attributes:
        tensors: `(B, H, S, D)` each.
    """

    tensors: tuple[Tensor, ...]

    def slots(self, length: int | Tensor) -> tuple[Tensor, None]:
        """Raises an error: the number of earlier tokens is unknown."""
        raise InputError("A ShiftingCache requires a visibility with query_slots. Received: none")

    def last(self, count: int) -> tuple[Tensor, ...]:
        """See `LayerCache.last`."""
        return tuple(tensor[:, :, -count:] for tensor in self.tensors)

    def update(self, *entries: Tensor) -> tuple[tuple[Tensor, ...], ShiftingCache]:
        """Appends entries and drops as many of the oldest."""
        joined = _joined(self.tensors, entries)
        return joined, replace(self, tensors=tuple(x[:, :, -self.tensors[0].shape[2] :] for x in joined))


def _joined(tensors: tuple[Tensor, ...], entries: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Returns each tensor with the entries after it."""
    pairs = zip(tensors, entries, strict=True)
    return tuple(ops.concatenate([tensor, ops.cast(entry, tensor.dtype)], axis=2) for tensor, entry in pairs)


@dataclass(frozen=True)
class RollingCache(_IndexedCache):
    """Cache with `S` slots for a layer with a sliding window: slot `p` of the text is stored at index `p % S`.

    With `S = window + margin - 1`, up to `margin` tokens can be discarded by decreasing `position`, or can be padding
    after a prompt. Their keys remain, and are then taken for the older keys that they overwrote, which are outside the
    window. For example, a window of 3 tokens and a margin of 2 require 4 slots. After slots 0 to 5 of a text, the cache
    contains slots 4, 5, 2 and 3. If 4 and 5 are discarded, they are taken for 0 and 1, but slot 4 attends only to 2, 3
    and itself.

    Attributes:
        tensors: `(B, H, S, D)` each, such as keys and values.
        position: Slot of the next token in all rows, a scalar int32.
        scales: Scales of int8 tensors; see `LayerCache.scales`.
    """

    tensors: tuple[Tensor, ...]
    position: Tensor
    scales: CacheScales | None = None

    @staticmethod
    def num_slots(window: int, margin: int) -> int:
        """Returns the number of slots for a window if `margin` tokens can be discarded."""
        return window + margin - 1

    def key_slots(self, length: int | Tensor) -> Tensor:
        """Returns the slots of the keys that `update` returns; negative for keys that do not exist yet."""
        if length == 1:
            return self._stored(self.position)
        new = self.position + ops.arange(length, dtype="int32")
        return ops.concatenate([self._stored(self.position - 1), new], axis=0)

    def slots(self, length: int | Tensor) -> tuple[Tensor, None]:
        """See `LayerCache.slots`."""
        return self.position + ops.arange(length, dtype="int32"), None

    def _stored(self, last: Tensor) -> Tensor:
        """Returns the slots of the text in the cache, `(S,)`, if `last` is the newest."""
        size = self.tensors[0].shape[2]
        return last - ops.mod(last - ops.arange(size, dtype="int32"), size)

    def update(self, *entries: Tensor) -> tuple[tuple[Tensor, ...], RollingCache]:
        """Adds any number `T` of tokens.

        A single token is written in place. Several tokens may overwrite keys that the first of them attends to; the
        queries therefore attend to the concatenation of old and new keys, of which the last `S` are kept. Two writes,
        before and after the end of the buffer, would not be faster, since LiteRT would copy the cache for each.
        """
        size = self.tensors[0].shape[2]
        new = replace(self, position=self.position + ops.shape(entries[0])[2])
        if entries[0].shape[2] == 1:
            zero = ops.zeros_like(self.position)
            start = ops.stack([zero, zero, ops.mod(self.position, size), zero])
            pairs = zip(self.tensors, entries, strict=True)
            tensors = tuple(ops.slice_update(tensor, start, ops.cast(entry, tensor.dtype)) for tensor, entry in pairs)
            return tensors, replace(new, tensors=tensors)
        joined = _joined(self.tensors, entries)
        slots = self._stored(new.position - 1)
        index = ops.arange(size, dtype="int32")
        source = ops.where(slots >= self.position, slots - self.position + size, index)
        return joined, replace(new, tensors=tuple(ops.take(x, source, axis=2) for x in joined))


def cache_of_slots(
    tensors: tuple[Tensor, ...],
    position: Tensor,
    num_slots: int,
    visible_length: int | None = None,
    scales: CacheScales | None = None,
) -> StaticCache | RollingCache:
    """Returns the cache of a layer: a `RollingCache` if the tensors have fewer slots than the text may have.

    Args:
        tensors: `(B, H, S, D)` each.
        position: Slot of the next token, a scalar int32.
        num_slots: Number of slots of the longest text.
        visible_length: Number of first slots of the text to attend to, as in `StaticCache`.
        scales: Scales of int8 tensors; see `LayerCache.scales`.
    """
    longest = num_slots if visible_length is None else visible_length
    if tensors[0].shape[2] < min(num_slots, longest):
        return RollingCache(tensors, position, scales=scales)
    return StaticCache(tensors, position, visible_length=visible_length, scales=scales)


@dataclass(frozen=True)
class FixedCache(_BatchCache):
    """Complete cache of keys and values that were projected once."""

    tensors: tuple[Tensor, ...]
    complete = True

    def slots(self, length: int | Tensor) -> tuple[Tensor, None]:
        """Raises an error: no tokens are added."""
        raise InputError("Causal attention requires a cache to which tokens are added. Received: a FixedCache")

    def last(self, count: int) -> tuple[Tensor, ...]:
        """Returns the last entries."""
        return tuple(tensor[:, :, -count:] for tensor in self.tensors)

    def update(self, *entries: Tensor | None) -> tuple[tuple[Tensor, ...], FixedCache]:
        """Ignores the entries, since the cache is complete."""
        return self.tensors, self


@dataclass(frozen=True)
class RecurrentCache(LayerCache):
    """Cache of a layer that also has states without an axis of tokens, see `CacheSpec.states`.

    Attributes:
        entries: `LayerCache` of what has an axis of tokens.
        content: Content of the states, which is undefined before a text if the slots of `entries` are.
    """

    entries: Any
    content: tuple[Tensor, ...]

    @property
    def complete(self) -> bool:
        """See `LayerCache.complete`."""
        return bool(self.entries.complete)

    @property
    def scales(self) -> CacheScales | None:
        """See `LayerCache.scales`."""
        return self.entries.scales

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the order of `CacheSpec.names`."""
        return (*self.entries.tensors, *self.content)

    @property
    def states(self) -> tuple[Tensor, ...]:
        """See `LayerCache.states`."""
        begun = self.entries.begun
        return self.content if begun is None else tuple(ops.where(begun, x, ops.zeros_like(x)) for x in self.content)

    def with_states(self, *states: Tensor) -> RecurrentCache:
        """See `LayerCache.with_states`."""
        pairs = zip(self.content, states, strict=True)
        return replace(self, content=tuple(ops.cast(new, old.dtype) for old, new in pairs))

    def with_entries(self, entries: LayerCache) -> RecurrentCache:
        """Returns the cache with other `entries`, those after the tokens that were added."""
        return replace(self, entries=entries)

    def key_slots(self, length: int | Tensor) -> Tensor | None:
        """See `LayerCache.key_slots`."""
        return self.entries.key_slots(length)

    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor | None]:
        """See `LayerCache.slots`."""
        return self.entries.slots(length)

    def last(self, count: int) -> tuple[Tensor, ...]:
        """See `LayerCache.last`."""
        return self.entries.last(count)

    def update(self, *entries: Tensor) -> tuple[tuple[Tensor, ...], RecurrentCache]:
        """See `LayerCache.update`."""
        tensors, cache = self.entries.update(*entries)
        return tensors, replace(self, entries=cache, content=self.states)

    def attend(
        self, attention: Attend, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, RecurrentCache]:
        """See `LayerCache.attend`."""
        context, weights, cache = self.entries.attend(attention, query, key, value, bias)
        return context, weights, replace(self, entries=cache, content=self.states)


@dataclass(frozen=True)
class RowCaches:
    """A cache of batch size 1 for each row, so that the rows may have different positions.

    Only attention, which has no weights, is computed row by row; the projections are computed for the whole batch.
    """

    rows: tuple[Any, ...]

    @property
    def complete(self) -> bool:
        """Whether the caches of all rows are complete."""
        return all(row.complete for row in self.rows)

    @property
    def scales(self) -> CacheScales | None:
        """Scales of int8 tensors, which all rows share."""
        return self.rows[0].scales

    @property
    def states(self) -> tuple[Tensor, ...]:
        """See `LayerCache.states`."""
        states = zip(*(row.states for row in self.rows), strict=True)
        return tuple(ops.concatenate(of_rows, axis=0) for of_rows in states)

    def with_states(self, *states: Tensor) -> RowCaches:
        """See `LayerCache.with_states`."""
        rows = (row.with_states(*(row_of(x, index) for x in states)) for index, row in enumerate(self.rows))
        return RowCaches(tuple(rows))

    @property
    def entries(self) -> RowCaches:
        """Caches of what has an axis of tokens, if the rows are each a `RecurrentCache`."""
        return RowCaches(tuple(row.entries for row in self.rows))

    def with_entries(self, entries: RowCaches) -> RowCaches:
        """See `RecurrentCache.with_entries`."""
        pairs = zip(self.rows, entries.rows, strict=True)
        return RowCaches(tuple(row.with_entries(of_row) for row, of_row in pairs))

    def key_slots(self, length: int | Tensor) -> Tensor | None:
        """Returns the slots `(B, S)` of the keys of each row; `None` for those of the visibility."""
        slots = [row.key_slots(length) for row in self.rows]
        return None if slots[0] is None else ops.stack(slots)

    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor | None]:
        """See `LayerCache.slots`."""
        queries, keys = zip(*(row.slots(length) for row in self.rows), strict=True)
        return ops.stack(queries), keys[0]

    def last(self, count: int) -> tuple[Tensor, ...]:
        """See `LayerCache.last`."""
        entries = zip(*(row.last(count) for row in self.rows), strict=True)
        return tuple(ops.concatenate(of_rows, axis=0) for of_rows in entries)

    def update(self, *entries: Tensor) -> tuple[tuple[Tensor, ...], RowCaches]:
        """See `LayerCache.update`."""
        results = [cache.update(*(row_of(x, index) for x in entries)) for index, cache in enumerate(self.rows)]
        tensors, caches = zip(*results, strict=True)
        return tuple(ops.concatenate(of_rows, axis=0) for of_rows in zip(*tensors, strict=True)), RowCaches(caches)

    def attend(
        self, attention: Attend, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, RowCaches]:
        """See `LayerCache.attend`."""
        contexts, weights, caches = zip(
            *(
                cache.attend(attention, *(row_of(tensor, index) for tensor in (query, key, value, bias)))
                for index, cache in enumerate(self.rows)
            ),
            strict=True,
        )
        all_weights = None if weights[0] is None else ops.concatenate(weights, axis=0)
        return ops.concatenate(contexts, axis=0), all_weights, RowCaches(caches)


def row_of(tensor: Tensor | None, index: int) -> Tensor | None:
    """Selects a row `(1, …)`; a tensor shared by all rows is returned unchanged."""
    return tensor if tensor is None or tensor.shape[0] == 1 else tensor[index : index + 1]

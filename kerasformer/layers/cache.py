"""Caches of keys and values of earlier tokens: immutable objects with tensors `(B, H, S, D)`.

Attention passes its tensors to `attend` and does not depend on the kind of cache. `StaticCache` has a fixed number of
slots, which are overwritten from an index on (LiteRT and XLA reuse its buffer). `GrowingCache` appends new tokens
(portable ONNX). `FixedCache` is complete and accepts no tokens (cross attention to an encoded text). `RollingCache` is
for layers with a sliding window and is little longer than the window; `cache_of_slots` chooses between it and
`StaticCache`. `RowCaches` has one of these for each row of a batch. The tensors of a cache with `CacheScales` are int8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.tensor import Tensor

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]
"""Function from query, key, value and bias to `(context, weights)`, as `primitives.attention`."""


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
    """Cache of an attention layer."""

    @property
    def complete(self) -> bool:
        """Whether no tokens are added, so that attention need not project keys and values."""

    @property
    def scales(self) -> CacheScales | None:
        """Scales of int8 tensors; `None` if the tensors contain the keys and values themselves.

        With scales, the keys and values that are added are the int8 numbers, and attention multiplies by the scales.
        """

    def key_slots(self, length: int | Tensor) -> Tensor | None:
        """Returns the slots `(S,)` of the keys that new tokens attend to; `None` for those of the visibility."""

    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns the slots of new tokens and of all keys, for a visibility without slots.

        Args:
            length: Number `T` of new tokens.

        Returns:
            `(slots of the tokens (T,) or (B, T), slots of the keys (S,))`; `None` for keys whose slots are `key_slots`.
        """

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


class _BatchCache(ABC):
    """Base of caches with two tensors for the whole batch."""

    def key_slots(self, length: int | Tensor) -> Tensor | None:
        """Returns `None`: the slots are those of the visibility."""
        return None

    @abstractmethod
    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor | None]:
        """See `LayerCache.slots`."""

    @abstractmethod
    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, LayerCache]:
        """Adds keys and values `(B, H, T, D)`; returns those to attend to, and the updated cache."""

    def attend(
        self, attention: Attend, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, LayerCache]:
        """See `LayerCache.attend`."""
        keys, values, cache = self.update(key, value)
        return (*attention(query, keys, values, bias), cache)


@dataclass(frozen=True)
class StaticCache(_BatchCache):
    """Cache with a fixed number of slots `S`, which are overwritten.

    Attributes:
        key: Keys `(B, H, S, D)`.
        value: Values `(B, H, S, D)`.
        position: Slot of the next token in all rows, a scalar int32.
        complete: Always false.
        visible_length: Number of first slots to attend to, all by default; a smaller number saves time while the text
            is short.
        scales: Scales of int8 tensors; see `LayerCache.scales`.
    """

    key: Tensor
    value: Tensor
    position: Tensor
    complete: bool = False
    visible_length: int | None = None
    scales: CacheScales | None = None

    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor]:
        """See `LayerCache.slots`."""
        count = self.key.shape[2] if self.visible_length is None else self.visible_length
        return self.position + ops.arange(length, dtype="int32"), ops.arange(count, dtype="int32")

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, StaticCache]:
        """Overwrites `T` slots; the caller must mask the slots after them, whose content is undefined."""
        zero = ops.zeros_like(self.position)
        start = ops.stack([zero, zero, self.position, zero])
        new_key = ops.slice_update(self.key, start, ops.cast(key, self.key.dtype))
        new_value = ops.slice_update(self.value, start, ops.cast(value, self.value.dtype))
        new = replace(self, key=new_key, value=new_value, position=self.position + ops.shape(key)[2])
        if self.visible_length is None:
            return new_key, new_value, new
        return new_key[:, :, : self.visible_length], new_value[:, :, : self.visible_length], new


@dataclass(frozen=True)
class GrowingCache(_BatchCache):
    """Cache that contains exactly the earlier tokens and grows with each update.

    Attributes:
        key: Keys `(B, H, S, D)`.
        value: Values `(B, H, S, D)`.
        complete: Always false.
        causal: Whether the caller's mask is causal, with the last query at the slot of the last key, so that a lowering
            can use an operator with a built-in causal mask.
        scales: Scales of int8 tensors; see `LayerCache.scales`.
    """

    key: Tensor
    value: Tensor
    complete: bool = False
    causal: bool = False
    scales: CacheScales | None = None

    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor]:
        """See `LayerCache.slots`."""
        keys = ops.arange(ops.shape(self.key)[2] + length, dtype="int32")
        return keys[-length:], keys

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, GrowingCache]:
        """Appends keys and values."""
        new_key = ops.concatenate([self.key, key], axis=2)
        new_value = ops.concatenate([self.value, value], axis=2)
        return new_key, new_value, replace(self, key=new_key, value=new_value)


@dataclass(frozen=True)
class RollingCache(_BatchCache):
    """Cache with `S` slots for a layer with a sliding window: slot `p` of the text is stored at index `p % S`.

    With `S = window + margin - 1`, up to `margin` tokens can be discarded by decreasing `position`, or can be padding
    after a prompt. Their keys remain, and are then taken for the older keys that they overwrote, which are outside the
    window. For example, a window of 3 tokens and a margin of 2 require 4 slots. After slots 0 to 5 of a text, the cache
    contains slots 4, 5, 2 and 3. If 4 and 5 are discarded, they are taken for 0 and 1, but slot 4 attends only to 2, 3
    and itself.

    Attributes:
        key: Keys `(B, H, S, D)`.
        value: Values `(B, H, S, D)`.
        position: Slot of the next token in all rows, a scalar int32.
        complete: Always false.
        scales: Scales of int8 tensors; see `LayerCache.scales`.
    """

    key: Tensor
    value: Tensor
    position: Tensor
    complete: bool = False
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
        size = self.key.shape[2]
        return last - ops.mod(last - ops.arange(size, dtype="int32"), size)

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, RollingCache]:
        """Adds any number `T` of tokens.

        A single token is written in place. Several tokens may overwrite keys that the first of them attends to; the
        queries therefore attend to the concatenation of old and new keys, of which the last `S` are kept. Two writes,
        before and after the end of the buffer, would not be faster, since LiteRT would copy the cache for each.
        """
        size, length = self.key.shape[2], ops.shape(key)[2]
        key, value = ops.cast(key, self.key.dtype), ops.cast(value, self.value.dtype)
        new = replace(self, position=self.position + length)
        if key.shape[2] == 1:
            zero = ops.zeros_like(self.position)
            start = ops.stack([zero, zero, ops.mod(self.position, size), zero])
            keys, values = ops.slice_update(self.key, start, key), ops.slice_update(self.value, start, value)
            return keys, values, replace(new, key=keys, value=values)
        keys, values = ops.concatenate([self.key, key], axis=2), ops.concatenate([self.value, value], axis=2)
        slots = self._stored(new.position - 1)
        index = ops.arange(size, dtype="int32")
        source = ops.where(slots >= self.position, slots - self.position + size, index)
        return keys, values, replace(new, key=ops.take(keys, source, axis=2), value=ops.take(values, source, axis=2))


def cache_of_slots(
    key: Tensor,
    value: Tensor,
    position: Tensor,
    num_slots: int,
    visible_length: int | None = None,
    scales: CacheScales | None = None,
) -> StaticCache | RollingCache:
    """Returns the cache of a layer: a `RollingCache` if the tensors have fewer slots than the text may have.

    Args:
        key: Keys `(B, H, S, D)`.
        value: Values, likewise.
        position: Slot of the next token, a scalar int32.
        num_slots: Number of slots of the longest text.
        visible_length: Number of first slots of the text to attend to, as in `StaticCache`.
        scales: Scales of int8 tensors; see `LayerCache.scales`.
    """
    longest = num_slots if visible_length is None else visible_length
    if key.shape[2] < min(num_slots, longest):
        return RollingCache(key, value, position, scales=scales)
    return StaticCache(key, value, position, visible_length=visible_length, scales=scales)


@dataclass(frozen=True)
class FixedCache(_BatchCache):
    """Complete cache of keys and values that were projected once."""

    key: Tensor
    value: Tensor
    complete: bool = True
    scales: CacheScales | None = None

    def slots(self, length: int | Tensor) -> tuple[Tensor, None]:
        """Raises an error: no tokens are added."""
        raise InputError("Causal attention requires a cache to which tokens are added. Received: a FixedCache")

    def update(self, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor, FixedCache]:
        """Ignores the arguments, since the cache is complete."""
        return self.key, self.value, self


@dataclass(frozen=True)
class RowCaches:
    """A cache of batch size 1 for each row, so that the rows may have different positions.

    Only attention, which has no weights, is computed row by row; the projections are computed for the whole batch.
    """

    rows: tuple[LayerCache, ...]

    @property
    def complete(self) -> bool:
        """Whether the caches of all rows are complete."""
        return all(row.complete for row in self.rows)

    @property
    def scales(self) -> CacheScales | None:
        """Scales of int8 tensors, which all rows share."""
        return self.rows[0].scales

    def key_slots(self, length: int | Tensor) -> Tensor | None:
        """Returns the slots `(B, S)` of the keys of each row; `None` for those of the visibility."""
        slots = [row.key_slots(length) for row in self.rows]
        return None if slots[0] is None else ops.stack(slots)

    def slots(self, length: int | Tensor) -> tuple[Tensor, Tensor | None]:
        """See `LayerCache.slots`."""
        queries, keys = zip(*(row.slots(length) for row in self.rows), strict=True)
        return ops.stack(queries), keys[0]

    def attend(
        self, attention: Attend, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, RowCaches]:
        """See `LayerCache.attend`."""
        contexts, weights, caches = zip(
            *(
                cache.attend(attention, *(_row(tensor, index) for tensor in (query, key, value, bias)))
                for index, cache in enumerate(self.rows)
            ),
            strict=True,
        )
        all_weights = None if weights[0] is None else ops.concatenate(weights, axis=0)
        return ops.concatenate(contexts, axis=0), all_weights, RowCaches(caches)


def _row(tensor: Tensor | None, index: int) -> Tensor | None:
    """Selects a row `(1, …)`; a tensor shared by all rows is returned unchanged."""
    return tensor if tensor is None or tensor.shape[0] == 1 else tensor[index : index + 1]

"""Keys and values of earlier tokens, as explicit tensors `(B, H, S, D)`: pure functions, nothing is changed in place.

Attention hands its tensors to `attend` and never asks which form it holds. `StaticCache` has room for a fixed number
of positions and is overwritten from one index on (LiteRT and XLA reuse its buffer); `GrowingCache` is concatenated
(portable ONNX); `FixedCache` is complete and takes nothing more (cross attention to an encoded text); `RowCaches` has
one of those for every row of a batch. `RollingCache` is for layers with a sliding window and is little longer than the
window; `cache_of_slots` chooses between it and `StaticCache`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from keras import ops

from kerasformer.layers.tensor import Tensor

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]
"""Attention itself: query, key, value and bias to `(context, weights)`, as `primitives.attention`."""


class LayerCache(Protocol):
    """The cache of one attention layer."""

    @property
    def complete(self) -> bool:
        """Nothing is to be added: attention need not project keys and values."""

    def key_slots(self, length: Any) -> Tensor | None:
        """Slots `(S,)` of the keys that `length` new tokens attend to, if they are not those of the visibility."""

    def attend(
        self, attention: Attend, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, LayerCache]:
        """Adds the new keys and values, and lets each query look at all that is there.

        Args:
            attention: Does the looking.
            query: `(B, H, T, D)`.
            key: `(B, H, T, D)` of the new tokens; not looked at by a cache that is complete.
            value: Likewise.
            bias: Added to the scores, broadcastable to `(B, H, T, S)`.

        Returns:
            What `attention` gives, and the cache for the next call.
        """
        ...


class _BatchCache(ABC):
    """A cache of two tensors for the whole batch."""

    def key_slots(self, length: Any) -> Tensor | None:
        """`None`: the visibility knows the slots of the keys."""
        return None

    @abstractmethod
    def update(self, key: Any, value: Any) -> tuple[Tensor, Tensor, Any]:
        """Adds `(B, H, T, D)` keys and values; returns those to attend to, and the cache for the next call."""

    def attend(
        self, attention: Attend, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Any]:
        """See `LayerCache.attend`."""
        keys, values, cache = self.update(key, value)
        return (*attention(query, keys, values, bias), cache)


@dataclass(frozen=True)
class StaticCache(_BatchCache):
    """Room for `S` tokens; the next ones are written from slot `position` (a scalar int32) on, for all rows alike.

    Attributes:
        visible_length: Only this many first slots are attended to, all by default: while the text is short, the others
            only cost time.
    """

    key: Tensor
    value: Tensor
    position: Tensor
    complete: bool = False
    visible_length: int | None = None

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, StaticCache]:
        """Overwrites `T` slots. What lies behind them is old or zero and must be masked by the caller."""
        zero = ops.zeros_like(self.position)
        at = ops.stack([zero, zero, self.position, zero])
        new_key = ops.slice_update(self.key, at, ops.cast(key, self.key.dtype))
        new_value = ops.slice_update(self.value, at, ops.cast(value, self.value.dtype))
        new = replace(self, key=new_key, value=new_value, position=self.position + ops.shape(key)[2])
        if self.visible_length is None:
            return new_key, new_value, new
        return new_key[:, :, : self.visible_length], new_value[:, :, : self.visible_length], new


@dataclass(frozen=True)
class GrowingCache(_BatchCache):
    """The past alone; every update makes it longer.

    `causal` says that the caller's mask lets a token see none after its own, the last being level with the last key, so
    that a lowering may take an operator that is so by itself.
    """

    key: Tensor
    value: Tensor
    complete: bool = False
    causal: bool = False

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, GrowingCache]:
        """Appends along the sequence axis."""
        new_key = ops.concatenate([self.key, key], axis=2)
        new_value = ops.concatenate([self.value, value], axis=2)
        return new_key, new_value, replace(self, key=new_key, value=new_value)


@dataclass(frozen=True)
class RollingCache(_BatchCache):
    """Room for `S` tokens, for a layer with a sliding window: slot `p` of the text is stored at index `p % S`.

    With `S = window + margin - 1`, up to `margin` tokens can be discarded, by setting `position` back, or can be
    padding after a prompt. Nothing else has to be done: their keys remain, and are mistaken for the older keys that
    they overwrote, which lie outside the window. For example, a window of 3 tokens and a margin of 2 give 4 slots.
    After slots 0 to 5 of a text, these hold 4, 5, 2 and 3. If 4 and 5 are discarded, they are mistaken for 0 and 1, but
    slot 4 attends only to 2, 3 and itself.

    Attributes:
        key: `(B, H, S, D)`.
        value: Likewise.
        position: Slot of the next token, a scalar int32, the same for all rows.
    """

    key: Tensor
    value: Tensor
    position: Tensor
    complete: bool = False

    @staticmethod
    def num_slots(window: int, margin: int) -> int:
        """Returns the number of slots for a window if `margin` tokens can be discarded."""
        return window + margin - 1

    def key_slots(self, length: Any) -> Tensor:
        """Slots of what `update` returns; negative for a key that does not exist yet."""
        if length == 1:
            return self._kept(self.position)
        new = self.position + ops.arange(length, dtype="int32")
        return ops.concatenate([self._kept(self.position - 1), new], axis=0)

    def _kept(self, last: Tensor) -> Tensor:
        """Returns the slots of the text `(S,)` that the cache holds if `last` is the newest."""
        size = self.key.shape[2]
        return last - ops.mod(last - ops.arange(size, dtype="int32"), size)

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, RollingCache]:
        """Adds any number `T` of tokens.

        A single token is written in place. Several tokens may overwrite keys that the first of them attends to, so the
        queries attend to old and new keys side by side, of which the last `S` are then gathered. Two writes, before
        and after the end of the buffer, would not be cheaper: LiteRT would copy the cache for each.
        """
        size, length = self.key.shape[2], ops.shape(key)[2]
        key, value = ops.cast(key, self.key.dtype), ops.cast(value, self.value.dtype)
        new = replace(self, position=self.position + length)
        if key.shape[2] == 1:
            zero = ops.zeros_like(self.position)
            at = ops.stack([zero, zero, ops.mod(self.position, size), zero])
            keys, values = ops.slice_update(self.key, at, key), ops.slice_update(self.value, at, value)
            return keys, values, replace(new, key=keys, value=values)
        keys, values = ops.concatenate([self.key, key], axis=2), ops.concatenate([self.value, value], axis=2)
        slots = self._kept(new.position - 1)
        index = ops.arange(size, dtype="int32")
        source = ops.where(slots >= self.position, slots - self.position + size, index)
        return keys, values, replace(new, key=ops.take(keys, source, axis=2), value=ops.take(values, source, axis=2))


def cache_of_slots(
    key: Tensor, value: Tensor, position: Tensor, num_slots: int, visible_length: int | None = None
) -> StaticCache | RollingCache:
    """Returns the cache of a layer: a `RollingCache` if the tensors have fewer slots than the text may have.

    Args:
        key: Keys `(B, H, S, D)`.
        value: Values, likewise.
        position: Slot of the next token, a scalar int32.
        num_slots: Number of slots of the longest text.
        visible_length: Upper limit of the number of slots of the text with the next tokens, as in `StaticCache`.
    """
    longest = num_slots if visible_length is None else visible_length
    if key.shape[2] < min(num_slots, longest):
        return RollingCache(key, value, position)
    return StaticCache(key, value, position, visible_length=visible_length)


@dataclass(frozen=True)
class FixedCache(_BatchCache):
    """All there is to attend to, projected once."""

    key: Tensor
    value: Tensor
    complete: bool = True

    def update(self, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor, FixedCache]:
        """Takes nothing: the new keys and values are already part of it."""
        return self.key, self.value, self


@dataclass(frozen=True)
class RowCaches:
    """A cache of batch 1 for each row, so that every row stands at a position of its own.

    Only the attention, which reads no weight, is done row by row; the products around it see the whole batch.
    """

    rows: tuple[LayerCache, ...]

    @property
    def complete(self) -> bool:
        """Nothing is to be added to any row."""
        return all(row.complete for row in self.rows)

    def key_slots(self, length: Any) -> Tensor | None:
        """Slots `(B, S)` of the keys of each row, if the rows know them."""
        slots = [row.key_slots(length) for row in self.rows]
        return None if slots[0] is None else ops.stack(slots)

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
    """One row `(1, …)`; what all rows share is left as it is."""
    return tensor if tensor is None or tensor.shape[0] == 1 else tensor[index : index + 1]

"""Which keys each query may attend to, described once for all layers of a stack, and its rendering as masks.

Two numbers belong to a token. Its *position* is its index in its own text: learned, sinusoidal and rotary positions
read it. Its *slot* is its index in the padded array or in the cache: masks compare slots, since padding occupies slots
too. Shape letters: `B` batch, `T` query length, `S` key length, `H` heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from keras import backend, ops

from kerasformer.errors import InputError
from kerasformer.layers.attention_spec import Rotary
from kerasformer.layers.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class Visibility:
    """A description of who sees whom. Every field narrows what is seen, except `global_mask`, which widens a window.

    Attributes:
        causal: A query sees the keys up to its own slot; needs both slots.
        query_slots: Slots of the queries, int32 `(T,)` or `(B, T)`.
        key_slots: Slots of the keys, int32 `(S,)` or `(B, S)`; negative for a key that does not exist yet.
        positions: Positions of the queries in their own texts, int32 `(B, T)` or `(1, T)`; the slots by default.
        key_mask: 1 for real keys, 0 for padding, `(B, S)`.
        query_mask: 1 for real queries, `(B, T)`: padding sees no key, and averages all of them; optional.
        starts: First slot of each row's text where rows are padded on the left, int32 `(B,)`.
        global_mask: 1 for tokens that see all and are seen by all in spite of a sliding window, `(B, S)`.
        global_queries: The part of it that belongs to the queries, `(B, T)`; `global_mask` itself by default.
        max_global_tokens: Maximum number of global tokens of a text; as many as it has tokens by default. With a
            maximum, memory grows linearly with the length of the text.
        mask: Further restriction, boolean, broadcastable to `(B, H, T, S)`.
        position_bias: Float scores of pairs of positions, such as T5's or ALiBi's, broadcastable to `(B, H, T, S)`.
    """

    causal: bool = False
    query_slots: Tensor | None = None
    key_slots: Tensor | None = None
    positions: Tensor | None = None
    key_mask: Tensor | None = None
    query_mask: Tensor | None = None
    starts: Tensor | None = None
    global_mask: Tensor | None = None
    global_queries: Tensor | None = None
    max_global_tokens: int | None = None
    mask: Tensor | None = None
    position_bias: Tensor | None = None
    _rendered: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of_text(
        cls,
        length: Any,
        key_mask: Tensor | None = None,
        *,
        causal: bool = False,
        key_length: Any = None,
        positions: Tensor | None = None,
        global_mask: Tensor | None = None,
        max_global_tokens: int | None = None,
    ) -> Self:
        """The visibility of a text that attends to itself.

        Args:
            length: Number `T` of queries.
            key_mask: 1 for real tokens, `(B, S)`.
            causal: A token sees none after its own.
            key_length: Number `S` of keys, `T` by default; the last query has the slot of the last key.
            positions: Positions of the queries, as in `Visibility`.
            global_mask: As in `Visibility`.
            max_global_tokens: As in `Visibility`.
        """
        before = 0 if key_length is None else key_length - length
        query = ops.arange(length, dtype="int32") + before
        key = ops.arange(length if key_length is None else key_length, dtype="int32")
        return cls(
            causal=causal,
            query_slots=query,
            key_slots=key,
            key_mask=key_mask,
            positions=positions,
            global_mask=global_mask,
            max_global_tokens=max_global_tokens,
        )

    def with_bias(self, bias: Tensor | None) -> Visibility:
        """The same visibility with a further `position_bias`."""
        if bias is None:
            return self
        total = bias if self.position_bias is None else self.position_bias + ops.cast(bias, self.position_bias.dtype)
        return replace(self, position_bias=total)

    def narrowed(self, mask: Tensor | None) -> Visibility:
        """The same visibility, restricted by one more boolean mask, broadcastable to `(B, H, T, S)`."""
        if mask is None:
            return self
        return replace(self, mask=mask if self.mask is None else ops.logical_and(self.mask, mask))

    def query_positions(self, length: Any) -> Tensor:
        """Positions of the queries, int32 `(B, T)` or `(1, T)`; 0, 1, 2, … if neither positions nor slots are given."""
        positions = self.query_slots if self.positions is None else self.positions
        if positions is None:
            positions = ops.arange(length, dtype="int32")
        return positions if len(positions.shape) == 2 else ops.reshape(positions, (1, -1))

    def angles(self, rotary: Rotary, length: Any) -> tuple[Tensor, Tensor]:
        """Cosines and sines for the queries, see `Rotary.angles`; computed once for all layers with this rotary."""
        return self.rendered(("angles", rotary), lambda: rotary.angles(self.query_positions(length)))

    def boolean(self, window: int | None = None, key_slots: Tensor | None = None) -> Tensor | None:
        """The mask, boolean and broadcastable to `(B, H, T, S)`; `None` if every query sees every key.

        Args:
            window: Sliding window of the layer, as in `AttentionSpec`.
            key_slots: Slots of the keys, if the cache of the layer determines them; those of the visibility by default.
                Masks and `position_bias` must then have a column for each slot of the text.
        """
        keys = self.key_slots if key_slots is None else key_slots
        parts = []
        if self.causal or window is not None:
            if keys is None or self.query_slots is None:
                raise InputError(
                    "A causal mask or a sliding window compares slots. Expected: query_slots and key_slots. "
                    f"Received: query_slots={self.query_slots}, key_slots={keys}"
                )
            query, key = slot_rows(self.query_slots, -1), slot_rows(keys, -2)
            if self.causal:
                parts.append(key <= query)
            if window is not None:
                parts.append(self._within(query, key, window))
        if self.starts is not None:
            parts.append(slot_rows(keys, -2) >= ops.reshape(self.starts, (-1, 1, 1, 1)))
        elif key_slots is not None:
            parts.append(slot_rows(key_slots, -2) >= 0)
        if self.key_mask is not None:
            parts.append(_of_slots(padding_mask(self.key_mask), key_slots))
        if self.query_mask is not None:
            parts.append(ops.transpose(padding_mask(self.query_mask), (0, 1, 3, 2)))
        if self.mask is not None:
            parts.append(_of_slots(self.mask, key_slots))
        if not parts:
            return None
        seen = parts[0]
        for part in parts[1:]:
            seen = ops.logical_and(seen, part)
        return seen

    def bias(
        self, dtype: str, window: int | None = None, grouped: tuple[int, Any] | None = None, key_slots: Any = None
    ) -> Tensor | None:
        """The mask and the `position_bias` as one tensor to be added to the scores; computed once for all layers alike.

        Args:
            dtype: Of the scores.
            window: As in `boolean`.
            grouped: Number of query heads that share a key head, and `T`, for `grouped_bias`.
            key_slots: As in `boolean`.

        Returns:
            `None` if there is nothing to add.
        """

        def render() -> Tensor | None:
            if grouped is not None:
                return grouped_bias(self.bias(dtype, window, None, key_slots), *grouped)
            seen = self.boolean(window, key_slots)
            masked = None if seen is None else mask_to_bias(seen, dtype)
            if self.position_bias is None:
                return masked
            scores = _of_slots(ops.cast(self.position_bias, dtype), key_slots)
            return scores if masked is None else masked + scores

        own = None if key_slots is None else tuple(key_slots.shape)
        return self.rendered(("bias", dtype, window, grouped and grouped[0], own), render)

    def _within(self, query: Tensor, key: Tensor, window: int) -> Tensor:
        """Whether the key lies in the window of the query."""
        if self.causal:
            return key > query - window
        near = ops.logical_and(key >= query - window, key <= query + window)
        if self.global_mask is None:
            return near
        queries = self.global_mask if self.global_queries is None else self.global_queries
        columns = ops.expand_dims(ops.expand_dims(ops.cast(self.global_mask, "int32") > 0, 1), 1)
        rows = ops.expand_dims(ops.expand_dims(ops.cast(queries, "int32") > 0, 1), -1)
        return ops.logical_or(near, ops.logical_or(columns, rows))

    def rendered(self, key: Any, render: Callable[[], Any]) -> Any:
        """The result of `render`, computed once for all layers that ask for it under this key."""
        if key not in self._rendered:
            self._rendered[key] = render()
        return self._rendered[key]


def visibility_of(
    visibility: Visibility | None, attention_mask: Tensor | None, bias: Tensor | None, query: Tensor, keys: Any
) -> Visibility:
    """One description from what a layer was called with.

    Args:
        visibility: A description, optional.
        attention_mask: A mask in one of the forms of `head_mask`, optional.
        bias: Float scores to be added, optional.
        query: `(B, T, E)`.
        keys: `S`, if it is known.
    """
    found = Visibility() if visibility is None else visibility
    mask = None if attention_mask is None else ops.cast(head_mask(attention_mask, query.shape[0], keys), "bool")
    return found.narrowed(mask).with_bias(bias)


def causal_mask(query_length: Any, key_length: Any = None) -> Tensor:
    """Boolean `(1, 1, T, S)`: a query sees the keys up to its own slot; the last query has the slot of the last key.

    With `T = 2`, `S = 3` (one token is in the cache already) the rows are `1 1 0` and `1 1 1`.
    """
    mask = Visibility.of_text(query_length, causal=True, key_length=key_length).boolean()
    return mask


def padding_mask(attention_mask: Tensor) -> Tensor:
    """`(B, S)` with 1 for real tokens to boolean `(B, 1, 1, S)`."""
    shape = ops.shape(attention_mask)
    return ops.reshape(ops.cast(attention_mask, "int32"), (shape[0], 1, 1, shape[1])) > 0


def head_mask(mask: Tensor, batch: int | None = None, keys: int | None = None) -> Tensor:
    """A mask with an axis for the heads, from one of the three forms that layers accept.

    Args:
        mask: `(B, S)`, 1 for real tokens, as tokenizers return it; `(B, T, S)`; or `(B, H, T, S)`. Axes may be 1.
        batch: `B`, if it is known.
        keys: `S`, if it is known.

    Returns:
        A tensor broadcastable to `(B, H, T, S)`.

    Raises:
        InputError: another number of axes, or two axes that are not `(B, S)`.
    """
    shape = tuple(mask.shape)
    if len(shape) not in (2, 3, 4):
        raise InputError(
            "attention_mask must be (B, S) for padding, (B, T, S), or (B, H, T, S), where an axis may be 1. "
            f"Received: shape {shape}"
        )
    if len(shape) == 4:
        return mask
    if len(shape) == 3:
        return ops.expand_dims(mask, 1)
    if any(
        axis not in (None, 1, known) and known is not None for axis, known in zip(shape, (batch, keys), strict=True)
    ):
        raise InputError(
            "An attention_mask of two axes is (B, S), with 1 for real tokens; a mask of queries and keys is (1, T, S). "
            f"Expected: ({batch}, {keys}). Received: shape {shape}"
        )
    return padding_mask(mask)


def mask_to_bias(mask: Tensor, dtype: str | None = None) -> Tensor:
    """What a boolean mask (`True` attends) adds to the scores: 0 or a large negative number.

    The number stays finite so that a row that sees no key gives equal weights rather than NaN.
    """
    dtype = dtype or backend.floatx()
    return (1.0 - ops.cast(mask, dtype)) * (-3e4 if dtype == "float16" else -1e9)


def grouped_bias(bias: Tensor | None, group_size: int, length: Any) -> Tensor | None:
    """A bias `(B, H or 1, T or 1, S)` for queries that are laid out `(B, H / group_size, group_size * T, D)`.

    Args:
        bias: Scores to be added.
        group_size: Number of query heads that share a key head.
        length: `T`.
    """
    if bias is None or (bias.shape[1] == 1 and bias.shape[2] == 1):
        return bias
    batch, heads, _, keys = ops.shape(bias)
    one_head = bias.shape[1] == 1
    bias = ops.broadcast_to(bias, (batch, group_size if one_head else heads, length, keys))
    return ops.reshape(bias, (batch, 1 if one_head else heads // group_size, group_size * length, keys))


def _of_slots(x: Tensor, slots: Tensor | None) -> Tensor:
    """Selects the columns `slots`, `(S',)` or `(B, S')`, of `(B or 1, H, T, S)`; the first one for negative slots."""
    if slots is None or x.shape[-1] == 1:
        return x
    index = ops.maximum(slots, 0)
    if len(slots.shape) == 1:
        return ops.take(x, index, axis=-1)
    rows = ((x if x.shape[0] == 1 else x[row : row + 1], index[row]) for row in range(slots.shape[0]))
    return ops.concatenate([ops.take(of_row, chosen, axis=-1) for of_row, chosen in rows], axis=0)


def slot_rows(slots: Tensor, axis: int) -> Tensor:
    """Slots `(N,)` or `(B, N)` as `(B or 1, 1, N, 1)`, or `(B or 1, 1, 1, N)`, with a new axis at `axis`."""
    batch, length = (1, -1) if len(slots.shape) == 1 else (ops.shape(slots)[0], ops.shape(slots)[1])
    return ops.reshape(slots, (batch, 1, length, 1) if axis == -1 else (batch, 1, 1, length))

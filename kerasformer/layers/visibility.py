"""Description of the keys that each query attends to, shared by all layers of a stack, and its conversion to masks.

The *position* of a token is its index in its text, which learned, sinusoidal and rotary positions use. The *slot* of a
token is its index in the padded array or in the cache, which masks compare, since padding occupies slots, too.

Shape letters: `B` batch, `T` query length, `S` key length, `H` heads.

Called by backbones and `blocks`, which describe, and by `attention` and `primitives`, which need a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.attention_spec import Rotary
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.layer_types import LayerArguments, LayerConfig
from kerasformer.layers.masks import (
    grouped_bias,
    head_mask,
    mask_to_bias,
    of_slots,
    of_tokens,
    padding_mask,
    real_queries,
    slot_rows,
    within_window,
)
from kerasformer.layers.tensor import Tensor, Tokens, check_mask, is_concrete

_Rendered = TypeVar("_Rendered")


@keras.saving.register_keras_serializable("kerasformer")
@dataclass(frozen=True, kw_only=True)
class Visibility:
    """Description of the keys that each query attends to. Every field restricts them, except `global_mask`.

    Attributes:
        causal: Whether a query attends only to keys up to its slot. `None` leaves it to the layer: decoders are causal,
            unless `mask` has a row for each query, and other layers are not.
        query_slots: Slots of the queries, int32 `(T,)` or `(B, T)`; layers that are causal number the tokens by
            default, after those in the cache.
        key_slots: Slots of the keys, int32 `(S,)` or `(B, S)`; negative for a key that does not exist yet.
        positions: Positions of the queries in their texts, int32 `(B, T)` or `(1, T)`; the slots by default.
        key_mask: 1 for real keys, 0 for padding, `(B, S)`.
        query_mask: 1 for real queries, `(B, T)`; padding then attends to no key, which averages all values.
        starts: First slot of the text in each row, for rows with padding on the left, int32 `(B,)`.
        global_mask: 1 for tokens that attend to all tokens and are seen by all regardless of a window, `(B, S)`.
        global_queries: The global tokens among the queries, `(B, T)`; `global_mask` by default.
        max_global_tokens: Maximum number of global tokens in a text, unlimited by default. With a maximum, memory grows
            linearly with the length of the text.
        mask: Further restriction, boolean, broadcastable to `(B, H, T, S)`.
        position_bias: Added to the scores, such as the biases of T5 or ALiBi, float, broadcastable to `(B, H, T, S)`.

    Raises:
        InputError: a symbolic tensor of a functional model, which Keras finds only among the arguments of a layer.
    """

    causal: bool | None = None
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
    _rendered: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuses symbolic tensors."""
        if symbolic := [name for name, value in self._values().items() if isinstance(value, keras.KerasTensor)]:
            raise InputError(
                "A Visibility cannot contain symbolic tensors of a functional model. Expected: attention_mask= and "
                f"bias= of the layer. Received: symbolic {', '.join(symbolic)}"
            )

    def _values(self) -> LayerArguments:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor, for files of functional models."""
        return {name: value for name, value in self._values().items() if value is not None}

    @classmethod
    def from_config(cls, config: LayerConfig) -> Self:
        """Creates a visibility from the result of `get_config`."""
        return cls(**{name: keras.saving.deserialize_keras_object(value) for name, value in config.items()})

    @classmethod
    def of_text(
        cls,
        length: int | Tensor,
        key_mask: Tensor | None = None,
        *,
        causal: bool | None = None,
        key_length: int | Tensor | None = None,
        positions: Tensor | None = None,
        global_mask: Tensor | None = None,
        max_global_tokens: int | None = None,
    ) -> Self:
        """Creates the visibility of self attention in a text.

        Args:
            length: Number `T` of queries.
            key_mask: 1 for real tokens, `(B, S)`.
            causal: Whether tokens attend only to themselves and earlier tokens, as in `Visibility`.
            key_length: Number `S` of keys, `T` by default; the last query has the slot of the last key.
            positions: Positions of the queries, as in `Visibility`.
            global_mask: As in `Visibility`.
            max_global_tokens: As in `Visibility`.
        """
        start = 0 if key_length is None else key_length - length
        query = ops.arange(length, dtype="int32") + start
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

    def causal_unless_specified(self, length: int | Tensor, caches: Sequence[LayerCache | None] = ()) -> Visibility:
        """Returns the visibility of a decoder: causal, unless it specifies otherwise.

        Args:
            length: Number `T` of queries.
            caches: The caches of the layers.
        """
        if self.causal is not None:
            return self.with_slots(length, caches) if self.causal else self
        # A mask without a row for each query is that of padding.
        if self.mask is None or (self.mask.shape[-2] == 1 and not (isinstance(length, int) and length == 1)):
            return replace(self, causal=True).with_slots(length, caches)
        return self

    def with_slots(self, length: int | Tensor, caches: Sequence[LayerCache | None] = ()) -> Visibility:
        """Returns the visibility of self attention with the slots of queries and keys, unless it has slots.

        Args:
            length: Number `T` of queries, which follow the tokens in the caches.
            caches: The caches of the layers.
        """
        if self.query_slots is not None:
            return self
        placed = [cache.slots(length) for cache in caches if cache is not None]
        if not placed:
            slots = ops.arange(length, dtype="int32")
            placed = [(slots, slots)]
        # A rolling cache determines the slots of the keys itself, other caches agree on them.
        keys = next((keys for _, keys in placed if keys is not None), None)
        return replace(self, query_slots=placed[0][0], key_slots=keys if self.key_slots is None else self.key_slots)

    def with_prefix(self, prefix_mask: Tensor) -> Visibility:
        """Returns the visibility of a prefix language model: queries see the prefix, and keys up to their slot.

        Args:
            prefix_mask: 1 for tokens of the prefix, `(B, S)`.

        Reference: Raffel et al. 2020, arXiv:1910.10683, section 3.2.1.
        """
        earlier = slot_rows(self.key_slots, -2) <= slot_rows(self.query_slots, -1)
        return replace(self, causal=False).narrowed(ops.logical_or(earlier, padding_mask(prefix_mask)))

    def with_bias(self, bias: Tensor | None) -> Visibility:
        """Returns the visibility with `bias` added to `position_bias`."""
        if bias is None:
            return self
        total = bias if self.position_bias is None else self.position_bias + ops.cast(bias, self.position_bias.dtype)
        return replace(self, position_bias=total)

    def narrowed(self, mask: Tensor | None) -> Visibility:
        """Returns the visibility with a further boolean mask, broadcastable to `(B, H, T, S)`."""
        if mask is None:
            return self
        return replace(self, mask=mask if self.mask is None else ops.logical_and(self.mask, mask))

    def of_tokens(self, tokens: Tokens) -> Visibility:
        """Returns the visibility of some of the queries."""
        if tokens.all:
            return self
        columns = ("query_slots", "positions", "query_mask", "global_queries")
        columns_by_name = {name: getattr(self, name) for name in (*columns, "mask", "position_bias")}
        changes = {
            name: of_tokens(value, tokens, -1 if name in columns else -2)
            for name, value in columns_by_name.items()
            if value is not None and value.shape[-1 if name in columns else -2] != 1
        }
        return replace(self, **changes) if changes else self

    def query_positions(self, length: int | Tensor) -> Tensor:
        """Returns the positions of the queries, int32 `(B, T)` or `(1, T)`; 0, 1, 2, … without positions and slots."""
        positions = self.query_slots if self.positions is None else self.positions
        if positions is None:
            positions = ops.arange(length, dtype="int32")
        return positions if len(positions.shape) == 2 else ops.reshape(positions, (1, -1))

    def real_queries(self, length: Any) -> Tensor | None:
        """Returns which queries are tokens and not padding, boolean `(B or 1, T)`; `None` if all are.

        Layers without keys use it, such as convolutions.

        Args:
            length: Number `T` of queries.

        Raises:
            InputError: a mask with a row for each query or head, which only attention can follow.
        """

        def render() -> Tensor | None:
            slots = ops.arange(length, dtype="int32") if self.query_slots is None else self.query_slots
            return real_queries(slots, self.starts, self.query_mask, self.key_mask, self.mask)

        return self.rendered(("real queries",), render)

    def angles(self, rotary: Rotary, length: Any) -> tuple[Tensor, Tensor]:
        """Returns `Rotary.angles` of the queries, computed once for all layers with equal `rotary`."""
        return self.rendered(("angles", rotary), lambda: rotary.angles(self.query_positions(length)))

    def boolean(self, window: int | None = None, key_slots: Tensor | None = None) -> Tensor | None:
        """Returns the boolean mask, broadcastable to `(B, H, T, S)`; `None` if all queries attend to all keys.

        Args:
            window: Size of the sliding window of the layer, as in `AttentionSpec`.
            key_slots: Slots of the keys, if the cache of the layer determines them; those of the visibility by default.
                Masks and `position_bias` must then have a column for each slot of the text.

        Raises:
            InputError: a causal mask or a window without slots.
        """
        keys = self.key_slots if key_slots is None else key_slots
        parts = []
        if self.causal or window is not None:
            if keys is None or self.query_slots is None:
                raise InputError(
                    "A causal mask or a sliding window requires slots. Expected: query_slots and key_slots. "
                    f"Received: query_slots={self.query_slots}, key_slots={keys}"
                )
            query, key = slot_rows(self.query_slots, -1), slot_rows(keys, -2)
            if self.causal:
                parts.append(key <= query)
            if window is not None:
                queries = self.global_mask if self.global_queries is None else self.global_queries
                parts.append(within_window(query, key, window, bool(self.causal), self.global_mask, queries))
        if self.starts is not None:
            parts.append(slot_rows(keys, -2) >= ops.reshape(self.starts, (-1, 1, 1, 1)))
        elif key_slots is not None:
            parts.append(slot_rows(key_slots, -2) >= 0)
        if self.key_mask is not None:
            parts.append(of_slots(padding_mask(self.key_mask), key_slots))
        if self.query_mask is not None:
            parts.append(ops.transpose(padding_mask(self.query_mask), (0, 1, 3, 2)))
        if self.mask is not None:
            parts.append(of_slots(self.mask, key_slots))
        if not parts:
            return None
        mask = parts[0]
        for part in parts[1:]:
            mask = ops.logical_and(mask, part)
        return mask

    def bias(
        self,
        dtype: str,
        window: int | None = None,
        grouped: tuple[int, int | Tensor] | None = None,
        key_slots: Tensor | None = None,
    ) -> Tensor | None:
        """Returns the sum of mask and `position_bias`, to be added to the scores; computed once for equal layers.

        Args:
            dtype: Data type of the scores.
            window: As in `boolean`.
            grouped: Number of query heads that share a key head, and `T`, see `grouped_bias`; optional.
            key_slots: As in `boolean`.

        Returns:
            The bias, broadcastable to the scores; `None` if there is nothing to add.
        """

        def render() -> Tensor | None:
            if grouped is not None:
                return grouped_bias(self.bias(dtype, window, None, key_slots), *grouped)
            mask = self.boolean(window, key_slots)
            masked = None if mask is None else mask_to_bias(mask, dtype)
            if self.position_bias is None:
                return masked
            scores = of_slots(ops.cast(self.position_bias, dtype), key_slots)
            return scores if masked is None else masked + scores

        shape = None if key_slots is None else tuple(key_slots.shape)
        return self.rendered(("bias", dtype, window, grouped and grouped[0], shape), render)

    def rendered(self, key: Hashable, render: Callable[[], _Rendered]) -> _Rendered:
        """Returns the result of `render`, computed once for all layers with this key."""
        if key not in self._rendered:
            self._rendered[key] = render()
        return self._rendered[key]


def visibility_of(
    visibility: Visibility | None, attention_mask: Tensor | None, bias: Tensor | None, query: Tensor, keys: Tensor
) -> Visibility:
    """Combines the arguments of a layer's call to a `Visibility`.

    Args:
        visibility: A visibility, optional.
        attention_mask: A mask with a shape that `head_mask` supports, optional.
        bias: Added to the scores, optional.
        query: `(B, T, E)`.
        keys: Number of keys `S`; `None` if it is unknown.

    Raises:
        InputError: the mask is a tensor of numbers for each query, such as a value in the place of the mask.
    """
    if is_concrete(attention_mask):
        check_mask(attention_mask)
    visibility = Visibility() if visibility is None else visibility
    mask = None if attention_mask is None else ops.cast(head_mask(attention_mask, query.shape[0], keys), "bool")
    return visibility.narrowed(mask).with_bias(bias)

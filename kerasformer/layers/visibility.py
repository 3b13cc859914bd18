"""Description of the keys that each query attends to, shared by all layers of a stack, and its conversion to masks.

The *position* of a token is its index in its text, which learned, sinusoidal and rotary positions use. The *slot* of a
token is its index in the padded array or in the cache, which masks compare, since padding occupies slots, too.

Shape letters: `B` batch, `T` query length, `S` key length, `H` heads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import keras
from keras import backend, ops

from kerasformer.errors import InputError
from kerasformer.layers.attention_spec import Rotary
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.layer_types import LayerArguments, LayerConfig
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
            name: _of_tokens(value, tokens, -1 if name in columns else -2)
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
        return self.rendered(("real queries",), lambda: self._real_queries(length))

    def _real_queries(self, length: Any) -> Tensor | None:
        slots = ops.arange(length, dtype="int32") if self.query_slots is None else self.query_slots
        masks = [] if self.query_mask is None else [ops.cast(self.query_mask, "int32") > 0]
        if self.starts is not None:
            queries = slots if len(slots.shape) == 2 else ops.reshape(slots, (1, -1))
            masks.append(queries >= ops.reshape(self.starts, (-1, 1)))
        columns = [] if self.key_mask is None else [ops.cast(self.key_mask, "int32") > 0]
        if self.mask is not None:
            if self.mask.shape[1] != 1 or self.mask.shape[2] != 1:
                raise InputError(
                    "A layer without keys supports a mask of padding alone. Expected: (B, S) or (B, 1, 1, S), True for "
                    f"real tokens. Received: shape {tuple(self.mask.shape)}"
                )
            columns.append(self.mask[:, 0, 0])
        by_row = len(slots.shape) == 2
        masks += [ops.take_along_axis(x, slots, axis=1) if by_row else ops.take(x, slots, axis=1) for x in columns]
        total = masks[0] if masks else None
        for mask in masks[1:]:
            total = ops.logical_and(total, mask)
        return total

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
            scores = _of_slots(ops.cast(self.position_bias, dtype), key_slots)
            return scores if masked is None else masked + scores

        shape = None if key_slots is None else tuple(key_slots.shape)
        return self.rendered(("bias", dtype, window, grouped and grouped[0], shape), render)

    def _within(self, query: Tensor, key: Tensor, window: int) -> Tensor:
        """Returns whether each key is in the window of each query."""
        if self.causal:
            return key > query - window
        near = ops.logical_and(key >= query - window, key <= query + window)
        if self.global_mask is None:
            return near
        queries = self.global_mask if self.global_queries is None else self.global_queries
        columns = ops.expand_dims(ops.expand_dims(ops.cast(self.global_mask, "int32") > 0, 1), 1)
        rows = ops.expand_dims(ops.expand_dims(ops.cast(queries, "int32") > 0, 1), -1)
        return ops.logical_or(near, ops.logical_or(columns, rows))

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


if backend.backend() == "jax":
    import jax

    class _Same:
        """Compares a visibility by identity, since arrays have no hash."""

        def __init__(self, visibility: Visibility) -> None:
            self.visibility = visibility

    # Functional models pass all arguments of a layer to JAX, which must not take a visibility for an array.
    jax.tree_util.register_pytree_node(
        Visibility, lambda visibility: ((), _Same(visibility)), lambda same, _: same.visibility
    )


@keras.saving.register_keras_serializable("kerasformer")
class CausalMask(keras.Operation):
    """The operation of `causal_mask` in functional models, whose lengths are known when they run."""

    def call(self, query: Tensor, key: Tensor | None = None) -> Tensor:
        """Computes the mask for tensors `(B, T, …)` and `(B, S, …)`."""
        return causal_mask(query, key)

    def compute_output_spec(self, query: Tensor, key: Tensor | None = None) -> keras.KerasTensor:
        """Returns the shape of the mask."""
        return keras.KerasTensor((1, 1, query.shape[1], (query if key is None else key).shape[1]), "bool")


def causal_mask(query_length: int | Tensor, key_length: int | Tensor | None = None) -> Tensor:
    """Returns the causal mask, boolean `(1, 1, T, S)`; the last query has the slot of the last key.

    For `T = 2` and `S = 3` (one token is in the cache) the rows are `1 1 0` and `1 1 1`.

    Args:
        query_length: Length `T`, a number or a scalar tensor; or a tensor `(B, T, …)` that has it, which may be
            symbolic in a functional model.
        key_length: Length `S`, likewise; `T` by default.

    Raises:
        InputError: `None`, the length of a symbolic tensor, or a tensor with one axis.
    """
    if any(isinstance(length, keras.KerasTensor) for length in (query_length, key_length)):
        return CausalMask()(query_length, *(() if key_length is None else (key_length,)))
    keys = None if key_length is None else _length(key_length)
    mask = Visibility.of_text(_length(query_length), causal=True, key_length=keys).boolean()
    return mask


def _length(of: Tensor) -> int | Tensor:
    """Returns the length of axis 1 of a tensor, or the length itself."""
    axes = len(getattr(of, "shape", ()))
    if of is None or axes == 1:
        raise InputError(
            "A causal mask requires a length. Expected: a number, or a tensor (B, T, …) whose second axis has the "
            f"length, such as a keras.Input. Received: {'None' if of is None else f'shape {tuple(of.shape)}'}"
        )
    return ops.shape(of)[1] if axes else of


def padding_mask(attention_mask: Tensor) -> Tensor:
    """Converts a mask `(B, S)`, 1 for real tokens, to boolean `(B, 1, 1, S)`."""
    return ops.expand_dims(ops.cast(attention_mask, "int32"), (1, 2)) > 0


def head_mask(mask: Tensor, batch: int | None = None, keys: int | None = None) -> Tensor:
    """Adds an axis for heads to a mask of any shape that layers support.

    Args:
        mask: `(B, S)`, 1 for real tokens, as tokenizers return it; `(B, T, S)`; or `(B, H, T, S)`. Axes may have
            size 1.
        batch: Batch size `B`; `None` if it is unknown.
        keys: Number of keys `S`; `None` if it is unknown.

    Returns:
        A tensor broadcastable to `(B, H, T, S)`.

    Raises:
        InputError: an unsupported shape.
    """
    shape = tuple(mask.shape)
    if len(shape) not in (2, 3, 4):
        raise InputError(
            "attention_mask must be (B, S) for padding, (B, T, S), or (B, H, T, S), where axes may have size 1. "
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
            "An attention_mask with two axes must be (B, S), 1 for real tokens; for queries and keys use (1, T, S). "
            f"Expected: ({batch}, {keys}). Received: shape {shape}"
        )
    return padding_mask(mask)


def mask_to_bias(mask: Tensor, dtype: str | None = None) -> Tensor:
    """Converts a boolean mask (`True` attends) to a bias of the scores: 0 or a large negative number.

    The number is finite, so that a query without visible keys has equal weights rather than NaN.
    """
    dtype = dtype or backend.floatx()
    return (1.0 - ops.cast(mask, dtype)) * (-3e4 if dtype == "float16" else -1e9)


def grouped_bias(bias: Tensor | None, group_size: int, length: int | Tensor) -> Tensor | None:
    """Converts a bias for queries of the shape `(B, H / group_size, group_size * T, D)`.

    Args:
        bias: `(B, H or 1, T or 1, S)`, optional.
        group_size: Number of query heads that share a key head.
        length: Number of queries `T`.
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


def _of_tokens(x: Tensor, tokens: Tokens, axis: int) -> Tensor:
    """Selects tokens along an axis of `(T,)` or `(B or 1, T)` (`axis=-1`) or of `(B or 1, H, T, S)` (`axis=-2`)."""
    if tokens.slots is None:
        return x[..., : tokens.count] if axis == -1 else x[..., : tokens.count, :]
    if axis == -1 and len(x.shape) == 1:
        return ops.reshape(ops.take(x, tokens.slots), (-1, 1))
    if x.shape[0] == 1:  # the same for all texts: the tokens of each become a row
        rows = ops.take(x[0], tokens.slots, axis=axis)  # (B,) or (H, B, S)
        return ops.reshape(rows, (-1, 1)) if axis == -1 else ops.expand_dims(ops.transpose(rows, (1, 0, 2)), 2)
    return ops.take_along_axis(x, ops.reshape(tokens.slots, (-1, 1) if axis == -1 else (-1, 1, 1, 1)), axis=axis)


def slot_rows(slots: Tensor, axis: int) -> Tensor:
    """Reshapes slots `(N,)` or `(B, N)` to `(B or 1, 1, N, 1)` (`axis=-1`) or `(B or 1, 1, 1, N)` (`axis=-2`)."""
    batch, length = (1, -1) if len(slots.shape) == 1 else (ops.shape(slots)[0], ops.shape(slots)[1])
    return ops.reshape(slots, (batch, 1, length, 1) if axis == -1 else (batch, 1, 1, length))

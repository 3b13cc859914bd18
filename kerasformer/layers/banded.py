"""Attention within a sliding window, with global tokens, in memory that grows linearly with the length of the text.

Queries are cut into blocks of `w` tokens, the size of the window on one side. A block attends to three blocks of keys,
the same block and its neighbours, which contain all keys in its windows, and to the global tokens. Blocks become rows
of a batch of ordinary attention, so that the attention operator of a runtime can compute them.

Shape letters: `B` batch, `T` query length, `S` key length, `H` query heads, `D` head size, `E` hidden, `w` window, `b`
length of a block, `N` number of blocks, `G` maximum number of global tokens.

Reference: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", arXiv:2004.05150.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from keras import backend, ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.attention_call import AttentionCall
from kerasformer.layers.attention_spec import AttentionSpec
from kerasformer.layers.masks import mask_to_bias
from kerasformer.layers.tensor import Tensor, merge_heads, split_heads
from kerasformer.layers.text_blocks import Blocks, is_plain, padded, with_key_mask
from kerasformer.layers.visibility import Visibility

States = tuple[Tensor, Tensor, Tensor]
"""Queries `(B, G, H * D)` of the global tokens, keys and values `(B, S, H * D)` of all tokens."""


@dataclass(frozen=True)
class GlobalTokens:
    """Indices of the global tokens of each text, as one-hot rows.

    Products with 0 and 1 select tokens exactly, have static shapes, and run on every runtime.

    Attributes:
        selection: 1 where a token is the g-th global one, float `(B, G, S)`; rows beyond the number of global tokens
            are 0.
        placement: Transpose of `selection`, `(B, S, G)`.
        is_global: 1 for global tokens, float `(B, S)`.
        real: 1 for rows of `selection` that select a token, float `(B, G)`.
    """

    selection: Tensor
    placement: Tensor
    is_global: Tensor
    real: Tensor

    @classmethod
    def of(cls, visibility: Visibility, dtype: str) -> GlobalTokens | None:
        """Returns the global tokens of a visibility, `None` without a `global_mask`; padding is never global."""
        if visibility.global_mask is None:
            return None
        marked = ops.cast(ops.cast(visibility.global_mask, "int32") > 0, "int32")
        if visibility.key_mask is not None:
            marked = marked * ops.cast(ops.cast(visibility.key_mask, "int32") > 0, "int32")
        length = ops.shape(marked)[1]
        count = length if visibility.max_global_tokens is None else visibility.max_global_tokens
        if isinstance(length, int) and isinstance(count, int):
            count = min(count, length)
        ordinals = ops.expand_dims(ops.cumsum(marked, axis=1) * marked, 1)
        selected = ops.reshape(ops.arange(count, dtype="int32") + 1, (1, -1, 1))
        selection = ops.cast(ops.equal(ordinals, selected), dtype)
        return cls(
            selection, ops.transpose(selection, (0, 2, 1)), ops.sum(selection, axis=1), ops.sum(selection, axis=2)
        )

    def select(self, x: Tensor) -> Tensor:
        """Selects the vectors of the global tokens: `(B, S, E)` to `(B, G, E)`."""
        return ops.matmul(self.selection, x)

    def of_first(self, length: int | Tensor) -> GlobalTokens:
        """Restricts the global tokens to those among the first `length` tokens."""
        sliced = {
            "selection": self.selection[:, :, :length],
            "placement": self.placement[:, :length],
            "is_global": self.is_global[:, :length],
        }
        return replace(self, **sliced)


def attends_within_window(spec: AttentionSpec, visibility: Visibility) -> bool:
    """Whether attention has a window on both sides, which this module computes."""
    return spec.window is not None and not visibility.causal


def multi_head_attention(
    call: AttentionCall,
    global_states: Callable[[GlobalTokens], States] | None = None,
    first_tokens: bool = False,
    zero_padding: bool = False,
    return_attention: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Computes self attention within a window of `spec.window` tokens on each side, with global tokens.

    A token attends to the keys of its window and to all global tokens; a global token attends to all keys. Texts of up
    to `3 * w` tokens, and texts with a further `mask` or `position_bias`, are computed in the dense form, with equal
    results; only the output of padding that sees no real token, an average of arbitrary values, may differ.

    Args:
        call: The call, without a cache. Its `spec` has a window, its `visibility` masks of padding and global tokens.
        global_states: Function that projects queries, keys and values for the attention of global tokens; `None` if all
            tokens share the same projections.
        first_tokens: Whether the queries are those of the first `T` tokens alone; otherwise `T` is `S`.
        zero_padding: Whether the output of padding is 0, as in Longformer.
        return_attention: Whether to return the weights, for which the dense form is computed.

    Returns:
        `(context (B, T, H * D), weights (B, H, T, S) or None)`.

    Raises:
        InputError: `spec` has no window, or the mask is causal.
    """
    query, key, value, spec, dropout = call.query, call.key, call.value, call.spec, call.dropout
    visibility = call.visibility
    if not attends_within_window(spec, visibility) or spec.window is None:
        raise InputError(
            "Banded attention requires a window on both sides. Expected: a window and no causal mask. "
            f"Received: window={spec.window}, causal={bool(visibility.causal)}"
        )
    dtype = backend.standardize_dtype(query.dtype)
    visibility = visibility.rendered("keys", lambda: with_key_mask(visibility))
    tokens = visibility.rendered(("global tokens", dtype), lambda: GlobalTokens.of(visibility, dtype))
    length = ops.shape(query)[1] if first_tokens else None
    queried = tokens if tokens is None or length is None else tokens.of_first(length)
    dense = return_attention or first_tokens or not is_plain(visibility) or _is_short(query.shape[1], spec.window)
    weights = None
    if dense:
        visible = _of_queries(visibility, tokens, queried, key, length)
        context, weights, _ = primitives.multi_head_attention(query, key, value, spec, visible, None, dropout)
    else:
        query, key, spec = _rotated(query, key, spec, visibility)
        context = _in_blocks(query, key, value, spec, visibility, tokens, dropout)
    separate = None
    if queried is not None and (global_states is not None or not dense):
        states = (queried.select(query), key, value) if global_states is None else global_states(queried)
        all_keys = Visibility(key_mask=visibility.key_mask)
        dense_spec = replace(spec, window=None, rotary=None)
        separate = primitives.multi_head_attention(*states, dense_spec, all_keys, None, dropout)[:2]
    real = None
    if zero_padding and visibility.key_mask is not None:
        real = ops.cast(visibility.key_mask[:, :length], dtype)
    return _joined(context, weights, queried, separate, real)


def _is_short(length: int | None, window: int) -> bool:
    """Whether the text is so short that the dense form is smaller."""
    return length is not None and length <= 3 * window


def _of_queries(
    visibility: Visibility, tokens: GlobalTokens | None, queried: GlobalTokens | None, key: Tensor, length: int | Tensor
) -> Visibility:
    """Restricts a visibility to the first `length` queries, if given; slots are 0, 1, 2, … by default."""

    def restricted() -> Visibility:
        keys = ops.arange(ops.shape(key)[1], dtype="int32") if visibility.key_slots is None else visibility.key_slots
        slots = keys if visibility.query_slots is None else visibility.query_slots
        return replace(
            visibility,
            query_slots=slots[:length] if len(slots.shape) == 1 else slots[:, :length],
            key_slots=keys,
            global_mask=None if tokens is None else tokens.is_global,
            global_queries=None if queried is None else queried.is_global,
        )

    return visibility.rendered("all queries", restricted) if length is None else restricted()


def _rotated(
    query: Tensor, key: Tensor, spec: AttentionSpec, visibility: Visibility
) -> tuple[Tensor, Tensor, AttentionSpec]:
    """Applies the rotary embedding before queries and keys are cut into blocks; the returned spec has none."""
    if spec.rotary is None:
        return query, key, spec
    rotary, angles = spec.rotary, visibility.angles(spec.rotary, ops.shape(query)[1])
    query, key = (merge_heads(primitives.rotary(split_heads(x, spec.head_dim), *angles, rotary)) for x in (query, key))
    return query, key, replace(spec, rotary=None)


def _in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spec: AttentionSpec,
    visibility: Visibility,
    tokens: GlobalTokens | None,
    dropout: Callable[[Tensor], Tensor] | None,
) -> Tensor:
    """Computes attention of all tokens to their windows and to the global tokens, `(B, T, H * D)`."""
    blocks = visibility.rendered(
        ("blocks", spec.window, query.shape[1]), lambda: Windows(ops.shape(query)[1], int(spec.window or 0))
    )
    dtype = backend.standardize_dtype(query.dtype)
    visible = visibility.rendered(
        ("block visibility", spec.window, query.shape[1], dtype),
        lambda: Visibility(position_bias=blocks.bias(key, visibility.key_mask, tokens, dtype)),
    )
    keys, values = (blocks.keys(x, None if tokens is None else tokens.select(x)) for x in (key, value))
    dense_spec = replace(spec, window=None)
    context = primitives.multi_head_attention(blocks.rows(query), keys, values, dense_spec, visible, None, dropout)
    return blocks.merged(context[0], query)


class Windows(Blocks):
    """Blocks of the size of the window, each with its neighbors and the global tokens as keys.

    Args:
        length: Length `T` of the text, a number or a scalar tensor.
        window: Size `w` of the window; a shorter text is one block.
    """

    def __init__(self, length: int | Tensor, window: int) -> None:
        super().__init__(length, min(length, window) if isinstance(length, int) else ops.minimum(length, window))
        self.window = window

    def keys(self, x: Tensor, first: Tensor | None) -> Tensor:
        """Returns each block of `(B, T, E)` with its neighbours, after the global tokens: `(B * N, G + 3 * b, E)`.

        Args:
            x: `(B, T, E)`; the missing neighbours of the first and the last block are zeros.
            first: Global tokens `(B, G, E)`, optional.
        """
        batch, size = ops.shape(x)[0], x.shape[-1]
        x = ops.reshape(padded(x, self.size, self.size + self.missing), (batch, self.count + 2, self.size, size))
        parts = [x[:, :-2], x[:, 1:-1], x[:, 2:]]
        width = 3 * self.size
        if first is not None:
            number = ops.shape(first)[1]
            shape = (batch, self.count, number, size)
            parts.insert(0, ops.broadcast_to(ops.expand_dims(first, 1), shape))
            width = width + number
        return ops.reshape(ops.concatenate(parts, axis=2), (-1, width, size))

    def bias(self, key: Tensor, key_mask: Tensor | None, tokens: GlobalTokens | None, dtype: str) -> Tensor:
        """Returns the bias that hides keys from the queries of a block, `(B * N, 1, b, G + 3 * b)`.

        Global tokens are hidden in the window, since they precede it.
        """
        seen = ops.ones_like(key[..., :1])
        if key_mask is not None:
            seen = seen * ops.expand_dims(ops.cast(key_mask, dtype), -1)
        near = ops.arange(3 * self.size, dtype="int32") - self.size
        distance = ops.abs(ops.expand_dims(near, 0) - ops.expand_dims(ops.arange(self.size, dtype="int32"), 1))
        within = mask_to_bias(distance <= self.window, dtype)
        first = None
        if tokens is not None:
            seen = seen * ops.expand_dims(1.0 - tokens.is_global, -1)
            first = ops.expand_dims(tokens.real, -1)
            within = ops.concatenate([ops.zeros((self.size, ops.shape(first)[1]), dtype), within], axis=1)
        hidden = ops.transpose(mask_to_bias(self.keys(seen, first), dtype), (0, 2, 1))
        return ops.expand_dims(hidden + within, 1)


def _joined(
    context: Tensor,
    weights: Tensor | None,
    tokens: GlobalTokens | None,
    separate: tuple[Tensor, Tensor | None] | None,
    real: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Joins the attention of windows with that of global tokens.

    Args:
        context: Attention of the windows, `(B, T, H * D)`.
        weights: Its weights `(B, H, T, S)`, optional.
        tokens: The global tokens among the queries, optional.
        separate: Context and weights of the global tokens, if they were computed separately.
        real: 1 for queries whose output is not set to 0, `(B, T)`; all by default.
    """
    mask, local = real, None if tokens is None or separate is None else 1.0 - tokens.is_global
    if local is not None:
        mask = local if mask is None else mask * local
    if mask is not None:
        mask = ops.expand_dims(mask, -1)
        context = context * mask
        weights = None if weights is None else weights * ops.expand_dims(mask, 1)
    if tokens is not None and separate is not None:
        context = context + ops.matmul(tokens.placement, separate[0])
        if weights is not None:
            added = None if separate[1] is None else ops.matmul(ops.expand_dims(tokens.placement, 1), separate[1])
            weights = None if added is None else weights + added
    return context, weights

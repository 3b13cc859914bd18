"""Masks and biases of attention in the shapes that layers use.

Shape letters: `B` batch, `T` query length, `S` key length, `H` heads.
"""

from __future__ import annotations

from keras import backend, ops

from kerasformer.errors import InputError
from kerasformer.layers.tensor import Tensor, Tokens


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


def of_slots(x: Tensor, slots: Tensor | None) -> Tensor:
    """Selects the columns `slots`, `(S',)` or `(B, S')`, of `(B or 1, H, T, S)`; the first one for negative slots."""
    if slots is None or x.shape[-1] == 1:
        return x
    index = ops.maximum(slots, 0)
    if len(slots.shape) == 1:
        return ops.take(x, index, axis=-1)
    rows = ((x if x.shape[0] == 1 else x[row : row + 1], index[row]) for row in range(slots.shape[0]))
    return ops.concatenate([ops.take(of_row, chosen, axis=-1) for of_row, chosen in rows], axis=0)


def of_tokens(x: Tensor, tokens: Tokens, axis: int) -> Tensor:
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


def within_window(
    query: Tensor,
    key: Tensor,
    window: int,
    causal: bool,
    global_mask: Tensor | None = None,
    global_queries: Tensor | None = None,
) -> Tensor:
    """Returns whether each key is in the sliding window of each query, boolean `(B or 1, 1, T, S)`.

    Args:
        query: Slots of the queries, `(B or 1, 1, T, 1)`.
        key: Slots of the keys, `(B or 1, 1, 1, S)`.
        window: Size of the window, as in `AttentionSpec`.
        causal: Whether the window ends at the query.
        global_mask: As in `Visibility`; without effect if the window is causal.
        global_queries: As in `Visibility`, with `global_mask`.
    """
    if causal:
        return key > query - window
    near = ops.logical_and(key >= query - window, key <= query + window)
    if global_mask is None:
        return near
    columns = ops.expand_dims(ops.expand_dims(ops.cast(global_mask, "int32") > 0, 1), 1)
    rows = ops.expand_dims(ops.expand_dims(ops.cast(global_queries, "int32") > 0, 1), -1)
    return ops.logical_or(near, ops.logical_or(columns, rows))


def real_queries(
    slots: Tensor,
    starts: Tensor | None,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    mask: Tensor | None,
) -> Tensor | None:
    """Returns which queries are tokens and not padding, boolean `(B or 1, T)`; see `Visibility.real_queries`.

    Args:
        slots: Slots of the queries, `(T,)` or `(B, T)`.
        starts: As in `Visibility`.
        query_mask: As in `Visibility`.
        key_mask: As in `Visibility`.
        mask: As in `Visibility`.

    Raises:
        InputError: `mask` has a row for each query or head.
    """
    masks = [] if query_mask is None else [ops.cast(query_mask, "int32") > 0]
    if starts is not None:
        queries = slots if len(slots.shape) == 2 else ops.reshape(slots, (1, -1))
        masks.append(queries >= ops.reshape(starts, (-1, 1)))
    columns = [] if key_mask is None else [ops.cast(key_mask, "int32") > 0]
    if mask is not None:
        if mask.shape[1] != 1 or mask.shape[2] != 1:
            raise InputError(
                "A layer without keys supports a mask of padding alone. Expected: (B, S) or (B, 1, 1, S), True for "
                f"real tokens. Received: shape {tuple(mask.shape)}"
            )
        columns.append(mask[:, 0, 0])
    by_row = len(slots.shape) == 2
    masks += [ops.take_along_axis(x, slots, axis=1) if by_row else ops.take(x, slots, axis=1) for x in columns]
    total = masks[0] if masks else None
    for each in masks[1:]:
        total = ops.logical_and(total, each)
    return total

"""Block-sparse attention, in memory that grows linearly with the length of the text.

A block of queries attends to the first and the last block of keys, to the block itself with its two neighbors, and to
random blocks. The first and the last block attend to all keys. Short texts have full attention.

In evaluation, the first block takes the place of all random blocks, as in the reference, so that each of its keys
counts `R + 1` times. Their scores are increased by `log(R + 1)` instead, which has the same effect, and random blocks
take neither time nor memory.

Shape letters: `B` batch, `T` query length, `S` key length, `H` query heads, `D` head size, `E` hidden, `b` length of a
block, `N` number of blocks, `R` number of random blocks.

Reference: Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", arXiv:2007.14062;
`transformers.models.big_bird`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from keras import backend, ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.attention_call import AttentionCall
from kerasformer.layers.attention_spec import AttentionSpec
from kerasformer.layers.masks import mask_to_bias
from kerasformer.layers.random_blocks import SparseBlocks
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.text_blocks import Blocks, is_plain, padded, with_key_mask
from kerasformer.layers.visibility import Visibility

_SLOTS = 5
"""Number of blocks of keys: the first, the one before, the block itself, the one after, and the last."""


def multi_head_attention(
    call: AttentionCall, training: bool = False, dense: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Computes block-sparse self attention.

    Texts of up to `spec.blocks.full_length` tokens have full attention. As in the reference, the longest text of a
    batch decides for all, and its last block is the last block of all texts. Here padding at the end of all texts does
    not count, so that an answer does not depend on the length to which a text is padded. In training it counts.

    Args:
        call: The call, without a cache. Its `spec` has blocks; with any other mask than that of padding, the dense form
            is computed. Block-sparse attention has no dropout, as in the reference, and full attention has.
        training: Whether to attend to random blocks, which requires a known length.
        dense: Whether to compute the dense form, which returns the weights, and whose queries may be those of the first
            `T` tokens alone; otherwise `T` is `S`.

    Returns:
        `(context (B, T, H * D), weights (B, H, T, S) or None)`. The context of padding is 0 in block-sparse attention.

    Raises:
        InputError: `spec` has no blocks, the mask is causal, or the length is unknown in training.
    """
    key: Tensor  # without a cache, there are keys and values
    value: Tensor
    query, key, value, spec, visibility = call.query, call.key, call.value, call.spec, call.visibility
    if spec.blocks is None or visibility.causal:
        raise InputError(
            "Block-sparse attention requires blocks and no causal mask. "
            f"Received: blocks={spec.blocks}, causal={bool(visibility.causal)}"
        )
    blocks, length, dense_spec = spec.blocks, key.shape[1], replace(spec, blocks=None)
    visibility = visibility.rendered("keys", lambda: with_key_mask(visibility))
    if length is not None and length <= blocks.full_length:
        return primitives.multi_head_attention(query, key, value, dense_spec, visibility, None, call.dropout)[:2]
    if training and length is None:
        raise InputError(
            "The random blocks of block-sparse attention depend on the length of the texts, which must be known in "
            "training. Expected: batches of one length, such as max_length with padding. Received: an unknown length"
        )
    layout = visibility.rendered(
        ("sparse blocks", replace(blocks, seed=0), length, training),
        lambda: Layout(blocks, key, visibility.key_mask, training),
    )
    drawn = blocks.random_blocks(spec.num_heads, layout.count) if training else None
    if dense or not is_plain(visibility):
        bias = layout.dense_bias(ops.shape(query)[1], drawn, backend.standardize_dtype(query.dtype))
        visible = visibility.with_bias(bias)
        context, weights, _ = primitives.multi_head_attention(query, key, value, dense_spec, visible)
        return layout.without_padding(context), weights
    context = layout.without_padding(_in_blocks(query, key, value, dense_spec, layout, drawn))
    if isinstance(layout.is_full, bool):
        return context, None
    # The length is known only when the graph runs: the first tokens are also computed with full attention.
    first_query, first_key, first_value = (x[:, : blocks.full_length] for x in (query, key, value))
    full, _, _ = primitives.multi_head_attention(
        first_query, first_key, first_value, dense_spec, layout.visible_beginning
    )
    full = ops.reshape(padded(full, 0, ops.shape(query)[1] - ops.shape(full)[1]), ops.shape(context))
    return ops.where(layout.is_full, full, context), None


class Layout(Blocks):
    """Blocks of texts, and which of them see each other. All layers of a stack share it.

    Args:
        blocks: Description of the blocks.
        key: Keys `(B, S, E)`.
        key_mask: 1 for real keys, `(B, S)`; optional.
        training: Whether padding at the end of all texts counts.

    Attributes:
        last: Index of the last block, a number or a scalar tensor.
        is_full: Whether the texts are so short that they have full attention, likewise.
        visible: Visibility of all real keys.
        visible_beginning: Visibility of the real keys of the longest text with full attention.
    """

    def __init__(self, blocks: SparseBlocks, key: Tensor, key_mask: Tensor | None, training: bool) -> None:
        super().__init__(ops.shape(key)[1], blocks.size)
        self.num_random, used = blocks.num_random, self.length
        dtype = backend.standardize_dtype(key.dtype)
        self.real = ops.ones_like(key[..., :1])
        if key_mask is not None:
            self.real = ops.expand_dims(ops.cast(ops.cast(key_mask, "int32") > 0, dtype), -1)
            if not training:
                ends = ops.cast(self.real[..., 0], "int32") * (ops.arange(self.length, dtype="int32") + 1)
                used = ops.maximum(ops.max(ends), 1)
        self.last = (used + self.size - 1) // self.size - 1
        self.is_full = used <= blocks.full_length
        self.visible = Visibility(key_mask=key_mask)
        beginning = None if key_mask is None else key_mask[:, : blocks.full_length]
        self.visible_beginning = Visibility(key_mask=beginning)
        rows = ops.arange(self.count, dtype="int32")
        last = ops.zeros_like(rows) + self.last
        slots = [ops.zeros_like(rows), ops.maximum(rows - 1, 0), rows, ops.minimum(rows + 1, last), last]
        self.slots = ops.reshape(ops.stack(slots, axis=1), (-1,))
        # A neighbor that is the first or the last block is seen only once.
        seen = ops.stack([rows >= 0, rows > 1, rows >= 0, rows + 1 < last, rows >= 0], axis=1)
        extra = np.array([0.0 if training else self.log_weight, 0.0, 0.0, 0.0, 0.0], dtype)
        weights = ops.reshape(mask_to_bias(seen, dtype) + extra, (1, self.count, _SLOTS, 1))
        hidden = mask_to_bias(self.seen_keys(self.real), dtype)
        hidden = ops.reshape(hidden, (ops.shape(key)[0], self.count, _SLOTS, self.size))
        self.bias = ops.reshape(hidden + weights, (-1, 1, 1, _SLOTS * self.size))

    @property
    def log_weight(self) -> float:
        """Logarithm of the number of times that a key of the first block counts in evaluation."""
        return math.log(1.0 + self.num_random)

    def cut(self, x: Tensor) -> Tensor:
        """Cuts `(B, S, E)` into blocks `(B, N, b * E)`."""
        return ops.reshape(padded(x, 0, self.missing), (ops.shape(x)[0], self.count, self.size * x.shape[-1]))

    def seen_keys(self, x: Tensor) -> Tensor:
        """Returns the keys that each block sees, without random blocks: `(B, S, E)` to `(B * N, 5 * b, E)`."""
        chosen = ops.take(self.cut(x), self.slots, axis=1)
        return ops.reshape(chosen, (-1, _SLOTS * self.size, x.shape[-1]))

    def ends(self, x: Tensor) -> Tensor:
        """Returns the first and the last block: `(B, S, E)` to `(B, 2 * b, E)`."""
        indices = (
            ops.stack([ops.zeros_like(self.last), self.last]) if not isinstance(self.last, int) else [0, self.last]
        )
        return ops.reshape(ops.take(self.cut(x), indices, axis=1), (-1, 2 * self.size, x.shape[-1]))

    def with_ends(self, x: Tensor, ends: Tensor) -> Tensor:
        """Replaces the first and the last of blocks `(B * N, b, E)`, and returns them as `(B, N * b, E)`."""
        batch, size = ops.shape(ends)[0], x.shape[-1]
        first, last = (ops.expand_dims(part, 1) for part in (ends[:, : self.size], ends[:, self.size :]))
        rows = ops.reshape(ops.arange(self.count, dtype="int32"), (1, -1, 1, 1))
        x = ops.reshape(x, (batch, self.count, self.size, size))
        return ops.where(rows == 0, first, ops.where(ops.equal(rows, self.last), last, x))

    def random_keys(self, x: Tensor, drawn: np.ndarray) -> Tensor:
        """Returns the keys of the random blocks of each head.

        Args:
            x: `(B, S, H * D)`.
            drawn: Indices of the random blocks, `(H, N - 2, R)`.

        Returns:
            `(B * N, R * b, H * D)`.
        """
        heads, _, count = drawn.shape
        by_head = ops.reshape(padded(x, 0, self.missing), (-1, self.count, self.size, heads, x.shape[-1] // heads))
        by_head = ops.reshape(
            ops.transpose(by_head, (0, 1, 3, 2, 4)), (-1, self.count * heads, self.size * by_head.shape[-1])
        )
        indices = np.pad(drawn, ((0, 0), (1, 1), (0, 0))).transpose(1, 2, 0) * heads + np.arange(heads)
        chosen = ops.take(by_head, indices.reshape(-1).astype("int32"), axis=1)
        chosen = ops.reshape(chosen, (-1, count, heads, self.size, x.shape[-1] // heads))
        return ops.reshape(ops.transpose(chosen, (0, 1, 3, 2, 4)), (-1, count * self.size, x.shape[-1]))

    def random_bias(self, drawn: np.ndarray, dtype: str) -> Tensor:
        """Returns `bias` with that of the random blocks, `(B * N, H, 1, (5 + R) * b)`."""
        heads, _, count = drawn.shape
        seen = self.random_keys(ops.broadcast_to(self.real, (*ops.shape(self.real)[:2], heads)), drawn)
        hidden = ops.expand_dims(ops.transpose(mask_to_bias(seen, dtype), (0, 2, 1)), 2)
        near = ops.broadcast_to(self.bias, (ops.shape(hidden)[0], heads, 1, _SLOTS * self.size))
        return ops.concatenate([near, hidden], axis=-1)

    def dense_bias(self, queries: Tensor, drawn: np.ndarray | None, dtype: str) -> Tensor | None:
        """Returns the bias of the dense form, `(1, 1 or H, T, S)`.

        Args:
            queries: Number of queries `T`, those of the first tokens.
            drawn: Indices of the random blocks, `(H, N - 2, R)`; `None` in evaluation.
            dtype: Data type of the scores.
        """
        if isinstance(queries, int) and queries <= self.size:
            return None  # the first block attends to all keys
        rows, columns = (ops.arange(count, dtype="int32") // self.size for count in (queries, self.length))
        rows, columns = ops.expand_dims(rows, 1), ops.expand_dims(columns, 0)
        ends = ops.logical_or(rows == 0, ops.equal(rows, self.last))
        seen = ops.logical_or(ops.abs(rows - columns) <= 1, columns == 0)
        seen = ops.logical_or(ops.logical_or(ends, seen), ops.equal(columns, self.last))
        counts = ops.expand_dims(ops.cast(seen, dtype), 0)
        further = ops.expand_dims(ops.cast(ops.logical_and(columns == 0, ops.logical_not(ends)), dtype), 0)
        if drawn is None:
            counts = counts + self.num_random * further
        else:
            numbers = np.zeros((len(drawn), self.count, self.count), dtype)
            heads, block, _ = np.indices(drawn.shape)
            np.add.at(numbers, (heads, block + 1, drawn), 1.0)
            by_token = numbers.repeat(self.size, axis=1).repeat(self.size, axis=2)
            counts = counts + by_token[:, :queries, : self.length]
        bias = mask_to_bias(counts > 0, dtype) + ops.log(ops.maximum(counts, 1.0))
        return ops.expand_dims(ops.where(self.is_full, ops.zeros_like(bias), bias), 0)

    def without_padding(self, context: Tensor) -> Tensor:
        """Sets the context `(B, T, E)` of padding to 0, unless the texts have full attention."""
        real = ops.cast(self.real[:, : ops.shape(context)[1]], context.dtype)
        return context * ops.where(self.is_full, ops.ones_like(real), real)


def _in_blocks(
    query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec, layout: Layout, drawn: np.ndarray | None
) -> Tensor:
    """Computes block-sparse attention of all tokens, `(B, T, H * D)`."""
    keys, values, bias = layout.seen_keys(key), layout.seen_keys(value), layout.bias
    if drawn is not None:
        keys = ops.concatenate([keys, layout.random_keys(key, drawn)], axis=1)
        values = ops.concatenate([values, layout.random_keys(value, drawn)], axis=1)
        bias = layout.random_bias(drawn, backend.standardize_dtype(key.dtype))
    visible = Visibility(position_bias=bias)
    context, _, _ = primitives.multi_head_attention(layout.rows(query), keys, values, spec, visible)
    ends, _, _ = primitives.multi_head_attention(layout.ends(query), key, value, spec, layout.visible)
    return layout.merged(layout.with_ends(context, ends), query)

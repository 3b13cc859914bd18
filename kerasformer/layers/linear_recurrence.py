"""Linear recurrences over tokens, whose state is a matrix for each head: the gated delta rule, and that of Mamba-2.

Token `t` changes the state `S` `(K, V)` of a head to `S = g S + k (r (v - k (g S)))` by the gated delta rule, where `g`
is its decay, `k` and `v` are its key and value, and `r` is the rate of the replacement: the value of a key is replaced.
Without a rate, as in Mamba-2, values are added: `S = g S + k v`. Its output is `q S`, with its query `q`.

Shape letters: `B` batch, `T` tokens, `H` heads, `K` and `V` sizes of a key and of a value, `N` chunks of `C` tokens.

Called by `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from keras import ops

from kerasformer.layers.tensor import Tensor

_CHUNK = 64
"""Number of tokens that are computed at once, by products of matrices."""


def linear_recurrence(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, rate: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Applies a recurrence to the tokens of a text, one after the other; computed by chunks, in float32.

    Args:
        query: `(B, H, T, K)`.
        key: `(B, H, T, K)`; of length 1 at most with a rate.
        value: `(B, H, T, V)`.
        decay: Logarithm of the factor of the state, at most 0, `(B, H, T)`.
        rate: Rate of the gated delta rule, from 0 to 1, `(B, H, T)`; `None` if values are added.
        state: State before the tokens, `(B, H, K, V)`.

    Returns:
        `(outputs (B, H, T, V), state after the tokens (B, H, K, V))`. A token changes nothing, such as padding, if its
        decay is 0, and its rate, or its key or value without a rate.

    References: Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule", arXiv:2412.06464, section 3;
    Dao and Gu 2024, "Transformers are SSMs", arXiv:2405.21060, section 6.
    """
    inputs = [query, key, value, ops.expand_dims(decay, -1)]
    inputs += [] if rate is None else [ops.expand_dims(rate, -1)]
    length = ops.shape(query)[2]
    if isinstance(length, int):
        return _chunked(inputs, state, length, min(length, _CHUNK))
    # A single token is by far the most frequent case of a graph that takes any number.
    return ops.cond(
        ops.equal(length, 1),
        lambda: _chunked(inputs, state, 1, 1),
        lambda: _chunked(inputs, state, length, _CHUNK),
    )


def _chunked(inputs: Sequence[Tensor], state: Tensor, length: int | Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Computes the outputs for chunks of `size` tokens; the last one is filled with tokens that change nothing."""
    count = -(-length // size)
    batch, heads = ops.shape(inputs[0])[:2]
    padded = (ops.pad(x, ((0, 0), (0, 0), (0, count * size - length), (0, 0))) for x in inputs)
    # Four axes at most, which is all that a phone's GPU has: (B * H, N, C, D).
    chunks = (ops.reshape(x, (batch * heads, count, size, x.shape[-1])) for x in padded)
    query, key, value, decay, *rate = chunks
    lower = np.tril(np.ones((size, size), "float32"))
    total = ops.matmul(lower, decay)
    keys, between = ops.transpose(key, (0, 1, 3, 2)), lower
    # Of each token: what it writes to its key, and by the delta rule, what it reads of the state to replace it.
    written, read = (rate[0] * value, [rate[0] * ops.exp(total) * key]) if rate else (value, [])
    if size > 1:
        # Decay from each token to each later one; the other pairs are 0, and must not overflow.
        between = ops.exp(ops.minimum(total - ops.transpose(total, (0, 1, 3, 2)), 0.0)) * lower
        if rate:
            # What a token replaces depends on what the earlier ones of its chunk wrote: a triangular system.
            solved = _inverse(rate[0] * ops.matmul(key, keys) * between * np.tril(lower, -1), size)
            written, read = ops.matmul(solved, written), [ops.matmul(solved, read[0])]
        keys = keys * ops.transpose(ops.exp(total[:, :, -1:] - total), (0, 1, 3, 2))
    kept = ops.exp(total[:, :, -1:])

    def added(state: Tensor, written: Tensor, read: Sequence[Tensor]) -> Tensor:
        return written - ops.matmul(read[0], state) if read else written

    def after(state: Tensor, chunk: Sequence[Tensor]) -> Tensor:
        kept, keys, written, *read = chunk
        return kept * state + ops.matmul(keys, added(state, written, read))

    parts = kept, keys, written, *read
    merged = ops.reshape(state, (batch * heads, *state.shape[2:]))
    if isinstance(count, int):
        states = [merged]
        for index in range(count):
            states.append(after(states[-1], [part[:, index] for part in parts]))
        merged, before = states[-1], ops.stack(states[:-1], axis=1)
    else:
        # With several tensors of unknown length, Keras fails on TensorFlow: the loop is over the indices of chunks.
        def step(state: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
            return after(state, [ops.take(part, index, axis=1) for part in parts]), state

        merged, before = ops.scan(step, merged, ops.arange(count))
        before = ops.transpose(before, (1, 0, 2, 3))
    output = ops.matmul(query * ops.exp(total), before)
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) * between
    output = output + ops.matmul(scores, added(before, written, read))
    output = ops.reshape(output, (batch, heads, count * size, output.shape[-1]))
    return output[:, :, :length], ops.reshape(merged, ops.shape(state))


def _inverse(x: Tensor, size: int) -> Tensor:
    """Returns the inverse of the identity plus a strictly lower triangular matrix, `(…, C, C)`.

    The inverse of `[[A, 0], [B, C]]` is `[[A', 0], [-C' B A', C']]`, with the inverses `A'` and `C'`: from blocks of
    one row to blocks of all, each step doubles the size. A series of powers would lose all digits for equal keys.
    """
    index = np.arange(size)
    inverse, width = ops.convert_to_tensor(np.eye(size, dtype="float32")), 1
    while width < size:
        block = index // width
        corner = (block[:, None] == block[None] + 1) & (block[None] % 2 == 0)
        part = x * corner.astype("float32")
        inverse = inverse - (part if width == 1 else ops.matmul(ops.matmul(inverse, part), inverse))
        width *= 2
    return inverse

"""Division of texts into blocks, for attention whose memory grows linearly with the length of the text.

Blocks become rows of a batch of ordinary attention, so that the attention operator of a runtime can compute them.

Shape letters: `B` batch, `T` length of the text, `S` key length, `E` hidden, `b` length of a block, `N` number of
blocks.
"""

from __future__ import annotations

from dataclasses import replace

from keras import ops

from kerasformer.layers.tensor import Tensor
from kerasformer.layers.visibility import Visibility


class Blocks:
    """Division of a text into blocks.

    Args:
        length: Length `T` of the text, a number or a scalar tensor.
        size: Length `b` of a block, likewise.

    Attributes:
        count: Number of blocks `N`; the last one is padded.
        missing: Number of tokens that the last block lacks.
    """

    def __init__(self, length: int | Tensor, size: int | Tensor) -> None:
        self.length, self.size = length, size
        self.count = (length + size - 1) // size
        self.missing = self.count * size - length

    def rows(self, x: Tensor) -> Tensor:
        """Cuts `(B, T, E)` into blocks `(B * N, b, E)`."""
        return ops.reshape(padded(x, 0, self.missing), (-1, self.size, x.shape[-1]))

    def merged(self, x: Tensor, like: Tensor) -> Tensor:
        """Joins blocks `(B * N, b, E)` to `(B, T, E)`, the shape of `like`."""
        x = ops.reshape(x, (ops.shape(like)[0], self.count * self.size, like.shape[-1]))
        if isinstance(self.missing, int) and self.missing == 0:
            return x
        return ops.reshape(x[:, : self.length], ops.shape(like))


def padded(x: Tensor, before: int | Tensor, after: int | Tensor) -> Tensor:
    """Pads `(B, T, E)` with zeros before and after the tokens."""
    if isinstance(before, int) and isinstance(after, int) and before == after == 0:
        return x
    return ops.pad(x, ((0, 0), (before, after), (0, 0)))


def is_plain(visibility: Visibility) -> bool:
    """Whether a visibility hides no keys but padding and those outside the window, and changes no scores."""
    return visibility.mask is None and visibility.position_bias is None and visibility.starts is None


def with_key_mask(visibility: Visibility) -> Visibility:
    """Moves a mask that depends on keys alone from `mask` to `key_mask`."""
    mask = visibility.mask
    if mask is None or tuple(mask.shape[1:3]) != (1, 1):
        return visibility
    keys = ops.cast(mask[:, 0, 0], "int32")
    if visibility.key_mask is not None:
        keys = keys * ops.cast(visibility.key_mask, "int32")
    return replace(visibility, mask=None, key_mask=keys)

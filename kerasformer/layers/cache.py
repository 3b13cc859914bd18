"""Keys and values of earlier tokens, as explicit tensors `(B, H, S, D)`: pure functions, nothing is changed in place.

Attention calls `update` and never asks which form it holds. `StaticCache` has room for a fixed number of positions
and is overwritten from one index on (LiteRT and XLA reuse its buffer); `GrowingCache` is concatenated (portable
ONNX); `FixedCache` is complete and takes nothing more (cross attention to an encoded text).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from keras import ops

from kerasformer.layers.primitives import Tensor


class LayerCache(Protocol):
    """The cache of one attention layer."""

    @property
    def key(self) -> Tensor:
        """`(B, H, S, D)`."""

    @property
    def value(self) -> Tensor:
        """`(B, H, S, D)`."""

    @property
    def complete(self) -> bool:
        """Nothing is to be added: attention need not project keys and values."""

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, LayerCache]:
        """Adds `(B, H, T, D)` keys and values; returns those to attend to, and the cache for the next call."""
        ...


@dataclass(frozen=True)
class StaticCache:
    """Room for `S` positions; the next tokens are written from `position` (a scalar int32) on, for all rows alike.

    With a `window`, only so many first positions are attended to: while the text is short, the rest costs time alone.
    """

    key: Tensor
    value: Tensor
    position: Tensor
    complete: bool = False
    window: int | None = None

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, LayerCache]:
        """Overwrites `T` positions. What lies behind them is old or zero and must be masked by the caller."""
        zero = ops.zeros_like(self.position)
        at = ops.stack([zero, zero, self.position, zero])
        new_key = ops.slice_update(self.key, at, ops.cast(key, self.key.dtype))
        new_value = ops.slice_update(self.value, at, ops.cast(value, self.value.dtype))
        new = replace(self, key=new_key, value=new_value, position=self.position + ops.shape(key)[2])
        if self.window is None:
            return new_key, new_value, new
        return new_key[:, :, : self.window], new_value[:, :, : self.window], new


@dataclass(frozen=True)
class GrowingCache:
    """The past alone; every update makes it longer."""

    key: Tensor
    value: Tensor
    complete: bool = False

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, LayerCache]:
        """Appends along the sequence axis."""
        new_key = ops.concatenate([self.key, key], axis=2)
        new_value = ops.concatenate([self.value, value], axis=2)
        return new_key, new_value, GrowingCache(new_key, new_value)


@dataclass(frozen=True)
class FixedCache:
    """All there is to attend to, projected once."""

    key: Tensor
    value: Tensor
    complete: bool = True

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, LayerCache]:
        """Takes nothing: the new keys and values are already part of it."""
        return self.key, self.value, self

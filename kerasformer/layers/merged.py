"""Decoder layers whose self attention and cross attention are one: a softmax over the tokens of both texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import keras
from keras import backend, ops

from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.blocks import EncoderLayer, check_memory, decoder_visibility, split_output
from kerasformer.layers.cache import Attend, CacheScales, LayerCache, RowCaches, row_of
from kerasformer.layers.core import PACKAGE, packed
from kerasformer.layers.layer_types import Outputs
from kerasformer.layers.tensor import Tensor, split_heads
from kerasformer.layers.visibility import Visibility, visibility_of


@dataclass(frozen=True, eq=False)
class JoinedCache:
    """The keys and values of a decoder's own tokens, followed by those of the encoded text.

    Attributes:
        own: Cache of the own tokens; `None` if there are no earlier ones.
        memory: Cache of the encoded text with all of it, optional.
        tensors: Keys and values of the encoded text, `(B, G, M, D)`.
        bias: Bias of the encoded text, such as one that hides its padding, broadcastable to the scores; optional.
    """

    own: LayerCache | None
    memory: LayerCache | None
    tensors: tuple[Tensor, ...]
    bias: Tensor | None
    complete = False

    @classmethod
    def of(cls, own: Any, memory: Any, entries: tuple[Tensor | None, ...], bias: Tensor | None) -> Any:
        """Joins both caches, row by row if the rows have caches of their own.

        Args:
            own: As in the attributes.
            memory: Cache of the encoded text, which may be complete; optional.
            entries: Keys and values that are added to `memory`; `None` for a complete one.
            bias: As in the attributes.

        Returns:
            A `JoinedCache`, or `RowCaches` of them, which have what attention calls of a `LayerCache`.
        """
        if isinstance(own, RowCaches):
            rows = (
                cls.of(row, memory.rows[index], tuple(row_of(x, index) for x in entries), row_of(bias, index))
                for index, row in enumerate(own.rows)
            )
            return RowCaches(tuple(rows))
        tensors, memory = (entries, None) if memory is None else memory.update(*entries)
        return cls(own, memory, tensors, bias)

    @property
    def scales(self) -> CacheScales | None:
        """See `LayerCache.scales`."""
        return None if self.own is None else self.own.scales

    def key_slots(self, length: int | Tensor) -> Tensor | None:
        """Returns the slots of the own keys, see `LayerCache.key_slots`."""
        return None if self.own is None else self.own.key_slots(length)

    def attend(
        self, attention: Attend, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, JoinedCache]:
        """See `LayerCache.attend`; `bias` is that of the own keys."""

        def joined(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
            pairs = zip((key, value), self.tensors, strict=True)
            keys, values = (ops.concatenate([own, ops.cast(other, own.dtype)], axis=2) for own, other in pairs)
            parts = zip((bias, self.bias), (key, self.tensors[0]), strict=True)
            own, other = (_no_bias(of_part) if part is None else part for part, of_part in parts)
            other = ops.cast(other, own.dtype)
            # Sums with a column of zeros, so that both have the rows of each other.
            beside = [own + ops.zeros_like(other[..., :1]), other + ops.zeros_like(own[..., :1])]
            return attention(query, keys, values, ops.concatenate(beside, axis=-1))

        if self.own is None:
            return *joined(query, key, value, bias), self
        context, weights, own = self.own.attend(joined, query, key, value, bias)
        return context, weights, replace(self, own=own)


def _no_bias(keys: Tensor) -> Tensor:
    """Returns a bias `(1, 1, 1, S)` of 0 for keys `(B, G, S, D)`."""
    return ops.reshape(ops.zeros_like(keys[:1, :1, :, :1]), (1, 1, 1, -1))


def _separated(cache: Any) -> tuple[LayerCache | None, LayerCache | None]:
    """Returns both caches of a joined one."""
    if not isinstance(cache, RowCaches):
        return cache.own, cache.memory
    own, memory = zip(*map(_separated, cache.rows), strict=True)
    return RowCaches(own), RowCaches(memory)


@keras.saving.register_keras_serializable(PACKAGE)
class MergedAttention(MultiHeadAttention):
    """Attention of a decoder to its own tokens and to an encoded text, with the same projections and one softmax.

    Keys of the encoded text have no rotary positions and are not limited by the window.

    Args:
        num_heads: Number of attention heads.
        hidden_dim: Size `E` of the output, and of the encoded text.
        kwargs: Arguments of `MultiHeadAttention`.

    Call arguments:
        query: `(B, T, E)`.
        memory: `(B, M, E)`, or the part of it that `cross_cache` does not have; `None` if that is complete.
        visibility: `Visibility` of the own tokens, causal by default.
        memory_visibility: `Visibility` of the encoded text, optional.
        cache: `LayerCache` of the own tokens, optional.
        cross_cache: `LayerCache` of the encoded text, optional.
        return_attention: Returns a dictionary of `output`, `attention` `(B, H, T, S)` and `cross_attention`
            `(B, H, T, M)`, whose sum for a query is 1.
        return_cache: Returns a dictionary of `output`, `cache` and `cross_cache`, the updated caches.

    Returns:
        `(B, T, E)`, or the dictionary.

    Reference: Zhang et al. 2025, "T5Gemma 2: Seeing, Reading, and Understanding Longer", arXiv:2512.14856;
    `transformers.models.t5gemma2`.
    """

    def call(  # type: ignore[override]  # the memory is its second input, as in a decoder layer
        self,
        query: Tensor,
        memory: Tensor | None = None,
        visibility: Visibility | None = None,
        memory_visibility: Visibility | None = None,
        cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Tensor | Outputs:
        """Applies the layer."""
        check_memory(self.name, True, memory, cross_cache)
        complete = cross_cache is not None and cross_cache.complete
        entries = (None, None) if complete else self.project(memory)
        hidden = None
        if memory_visibility is not None:
            size = self.spec.group_size
            grouped = None if size == 1 else (size, ops.shape(query)[1])
            hidden = memory_visibility.bias(backend.standardize_dtype(query.dtype), grouped=grouped)
        joined = JoinedCache.of(cache, cross_cache, entries, hidden)
        visibility = decoder_visibility(visibility, None, None, query, [cache])
        output, states = split_output(
            super().call(
                query,
                visibility=visibility,
                cache=joined,
                training=training,
                return_attention=return_attention,
                return_cache=True,
            )
        )
        cache, cross_cache = _separated(states["cache"])
        named: Outputs = {"cache": cache, "cross_cache": cross_cache} if return_cache else {}
        if return_attention:
            count = ops.shape(states["attention"])[-1] - _length_of_memory(joined)
            named |= {
                "attention": states["attention"][..., :count],
                "cross_attention": states["attention"][..., count:],
            }
        return packed(output, return_attention or return_cache, **named)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Projects `(B, M, E)` to keys and values `(B, G, M, D)`, the content of a cross-attention cache."""
        keys = self._normalized(self.key(x), self.key_norm)
        return split_heads(keys, self.spec.head_dim), split_heads(self.value(x), self.spec.head_dim)


def _length_of_memory(cache: Any) -> int | Tensor:
    """Returns the number `M` of tokens of the encoded text."""
    rows: Any = cache.rows if isinstance(cache, RowCaches) else (cache,)
    return ops.shape(rows[0].tensors[0])[2]


@keras.saving.register_keras_serializable(PACKAGE)
class MergedDecoderLayer(EncoderLayer):
    """Transformer decoder layer with a `MergedAttention` instead of self attention and cross attention.

    Args:
        attention: The attention to both texts.
        feed_forward: The feed-forward network.
        kwargs: Arguments of `EncoderLayer`.

    Call arguments:
        x: `(B, T, E)`.
        memory: As in `MergedAttention`, and likewise `cache`, `cross_cache`, `return_attention` and `return_cache`.
        memory_mask: `True` or 1 attends: `(B, M)` for padding; optional.
        visibility: `Visibility` of the own tokens, causal unless it has `causal=False`; optional.
        memory_visibility: `Visibility` of the encoded text, optional.
        attention_inputs: Further keyword arguments of the attention's call, optional.

    Returns:
        `(B, T, E)`, or the dictionary.
    """

    @property
    def cross_attention(self) -> keras.layers.Layer:
        """The layer that attends to the encoded text."""
        return self.attention

    def call(  # type: ignore[override]  # the memory is its second input, as in a decoder layer
        self,
        x: Tensor,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        visibility: Visibility | None = None,
        memory_visibility: Visibility | None = None,
        cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
        attention_inputs: Mapping[str, Tensor] | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Tensor | Outputs:
        """Applies the layer."""
        query = self._normed(x, self.attention_norm)
        y, states = split_output(
            self.attention(
                query,
                memory=memory,
                visibility=visibility,
                memory_visibility=visibility_of(memory_visibility, memory_mask, None, x, None),
                cache=cache,
                cross_cache=cross_cache,
                training=training,
                return_attention=return_attention,
                return_cache=return_cache,
                **(attention_inputs or {}),
            )
        )
        return packed(self._output(x, query, y, training), return_attention or return_cache, **states)

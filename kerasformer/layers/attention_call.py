"""What a call of attention reads, as values: one before and one after the heads are split.

Shape letters: `B` batch, `T` query length, `S` key length, `H` query heads, `G` key and value heads, `D` head size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kerasformer.layers.attention_spec import AttentionSpec
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.visibility import Visibility


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """A call of attention with several heads.

    Attributes:
        query: `(B, T, H * D)`.
        key: `(B, T', G * D)`; each head is shared by `H / G` query heads. `None` if the cache is complete.
        value: `(B, T', G * D)`, likewise.
        spec: Description of the attention.
        visibility: The keys that each query attends to, and the positions of the queries.
        cache: Earlier keys and values `(B, G, S', D)`, to which `key` and `value` are added; optional.
        dropout: Function applied to the weights in training; `None` otherwise.
    """

    query: Tensor
    key: Tensor | None
    value: Tensor | None
    spec: AttentionSpec
    visibility: Visibility
    cache: LayerCache | None = None
    dropout: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True, eq=False)
class HeadAttentionCall:
    """A call of scaled dot-product attention.

    Attributes:
        query: `(B, H, T, D)`.
        key: `(B, H, S, D)`.
        value: `(B, H, S, D)`.
        bias: Added to the scores, broadcastable to `(B, H, T, S)`; a large negative number hides a key.
        scale: Factor of the scores, usually `1 / sqrt(D)`.
        softcap: Soft limit of the scores, see `AttentionSpec`; optional.
        dropout: Function applied to the weights in training; `None` otherwise.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    scale: float
    softcap: float | None = None
    dropout: Callable[[Tensor], Tensor] | None = None

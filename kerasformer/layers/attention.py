"""The attention layer of all architectures: multiple heads, with an optional cache.

Called by `blocks`; it calls the operations of `primitives`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import banded, block_sparse, primitives
from kerasformer.layers.attention_call import AttentionCall
from kerasformer.layers.attention_spec import AttentionSpec, Rotary, rotary_from_config
from kerasformer.layers.banded import GlobalTokens, States
from kerasformer.layers.cache import CacheSpec, LayerCache
from kerasformer.layers.core import PACKAGE, Composite, Configured, Dense, Dropout, build_once, packed
from kerasformer.layers.layer_types import Initializer, LayerOptions, Outputs
from kerasformer.layers.norms import normalization
from kerasformer.layers.tensor import Shape, Tensor, split_heads
from kerasformer.layers.visibility import Visibility, visibility_of


@keras.saving.register_keras_serializable(PACKAGE)
class MultiHeadAttention(Configured, Composite):
    """Scaled dot-product attention over several heads, with an optional cache.

    Args:
        num_heads: Number of attention heads; must divide `hidden_dim` unless `head_dim` is given.
        hidden_dim: Size `E` of the output.
        head_dim: Size `D` of one head; `hidden_dim / num_heads` by default.
        num_key_value_heads: Number of key and value heads, each shared by a group of query heads (1 for multi-query
            attention); `num_heads` by default.
        use_bias: Whether the query, key and value projections have a bias.
        output_bias: Whether the output projection has a bias; `use_bias` by default.
        scale: Factor of the scores; `1 / sqrt(head_dim)` by default.
        softcap: Soft limit of the scores, see `AttentionSpec`; optional.
        rotary: Rotary position embedding of queries and keys, optional.
        query_key_norm: Epsilon of a norm of each head's queries and keys; `None` for no norm.
        query_key_norm_kind: Kind of this norm, see `normalization`.
        window: Size of a sliding window, see `AttentionSpec`; optional.
        dropout: Dropout rate of the attention weights.
        kernel_initializer: A Keras initializer.
        query_initializer: A Keras initializer of the query projection; `kernel_initializer` by default.
        output_dropout: Dropout rate of the output.
        key_bias: Whether the key projection has a bias; `use_bias` by default (DeBERTa v1 has none).
        float32_scores: Whether the scores are computed in float32, see `AttentionSpec`.
        kwargs: `keras.layers.Layer` arguments.

    Attributes:
        zero_padding: Whether the output of padding is 0 if the attention has a window on both sides (Longformer).

    Call arguments:
        query: `(B, T, E)`.
        key_value: `(B, S, E')` to attend to (cross attention); `query` itself by default.
        attention_mask: `True` or 1 attends: `(B, S)` for padding, `(B, T, S)` or `(B, H, T, S)`, where axes may have
            size 1.
        bias: Added to the scores, float, broadcastable to `(B, H, T, S)`; optional.
        visibility: `Visibility` shared by all layers of a stack, optional. It also provides the positions that `rotary`
            and `window` use, which are 0, 1, 2, … by default.
        cache: `LayerCache` of `(B, G, S, D)` keys and values, optional.
        return_attention: Returns a dictionary of `output` and `attention`, the weights `(B, H, T, S)`.
        return_cache: Returns a dictionary of `output` and `cache`, the updated cache.
        value: `(B, S, E'')` from which the values are projected (MobileBERT); the same tensor as the keys by default.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: `num_heads` does not divide `hidden_dim`, `num_key_value_heads` does not divide `num_heads`,
            `rotary` rotates more entries than a head has, or a mask has an unsupported shape.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.2; grouped heads: Ainslie et al. 2023, arXiv:2305.13245.
    """

    zero_padding: ClassVar[bool] = False

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        use_bias: bool = True,
        output_bias: bool | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        rotary: Rotary | None = None,
        query_key_norm: float | None = None,
        window: int | None = None,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        query_initializer: Initializer | None = None,
        output_dropout: float = 0.0,
        key_bias: bool | None = None,
        query_key_norm_kind: str = "rms_norm",
        float32_scores: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if num_heads < 1 or (head_dim is None and hidden_dim % num_heads):
            raise InputError(
                "num_heads must be positive and divide hidden_dim. "
                f"Received: num_heads={num_heads}, hidden_dim={hidden_dim}"
            )
        groups = num_heads if num_key_value_heads is None else num_key_value_heads
        if groups < 1 or num_heads % groups:
            raise InputError(
                "num_key_value_heads must divide num_heads. "
                f"Received: num_key_value_heads={num_key_value_heads}, num_heads={num_heads}"
            )
        head_dim = hidden_dim // num_heads if head_dim is None else head_dim
        rotary = rotary_from_config(rotary)
        if rotary is not None and rotary.dim > head_dim:
            raise InputError(f"rotary.dim must be at most head_dim. Received: {rotary.dim}, head_dim={head_dim}")
        if window is not None and window < 1:
            raise InputError(f"window must be a positive number of tokens. Received: window={window}")
        self.num_heads, self.num_key_value_heads = num_heads, groups
        self.hidden_dim, self.head_dim = hidden_dim, head_dim
        self.scale = 1.0 / math.sqrt(head_dim) if scale is None else scale
        self.softcap, self.rotary, self.window, self.float32_scores = softcap, rotary, window, float32_scores
        self.spec = AttentionSpec(
            num_heads=num_heads,
            num_key_value_heads=groups,
            head_dim=head_dim,
            scale=self.scale,
            softcap=softcap,
            rotary=rotary,
            query_key_norm=query_key_norm is not None,
            window=window,
            float32_scores=float32_scores,
        )
        self.use_bias = use_bias
        self.key_bias = use_bias if key_bias is None else key_bias
        self.output_bias = use_bias if output_bias is None else output_bias
        self.query_key_norm, self.query_key_norm_kind = query_key_norm, query_key_norm_kind
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query_initializer = keras.initializers.get(query_initializer)
        self.query = self._dense(num_heads * head_dim, use_bias, "query", self.query_initializer)
        self.key = self._dense(groups * head_dim, self.key_bias, "key")
        self.value = self._dense(groups * head_dim, use_bias, "value")
        self.query_norm = self.key_norm = None
        if query_key_norm is not None:
            kind, dtype = query_key_norm_kind, self.dtype_policy
            self.query_norm = normalization(kind, query_key_norm, name="query_norm", dtype=dtype)
            self.key_norm = normalization(kind, query_key_norm, name="key_norm", dtype=dtype)
        self.output_dense = self._dense(hidden_dim, self.output_bias, "output")
        self.weights_dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.output_dropout = output_dropout
        self.last_dropout = None
        if output_dropout:
            self.last_dropout = Dropout(output_dropout, name="output_dropout", dtype=self.dtype_policy)

    @property
    def cache_spec(self) -> CacheSpec:
        """The keys and values of earlier tokens."""
        return CacheSpec(self.spec.num_key_value_heads, self.spec.head_dim, self.spec.window)

    def _dense(self, units: int, use_bias: bool, name: str, initializer: Any = None) -> Dense:
        initializer = keras.initializers.get(keras.initializers.serialize(initializer or self.kernel_initializer))
        return Dense(units, use_bias, kernel_initializer=initializer, name=name, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, key_value_shape: Shape | None = None, value_shape: Shape | None = None) -> None:
        """Creates the weights for `(B, T, E)` queries, `(B, S, E')` keys, and `(B, S, E'')` values."""
        build_once(self.query, query_shape)
        build_once(self.key, key_value_shape or query_shape)
        build_once(self.value, value_shape or key_value_shape or query_shape)
        counts = self.spec.num_heads, self.spec.num_key_value_heads
        for norm, heads in zip((self.query_norm, self.key_norm), counts, strict=True):
            if norm is not None:
                build_once(norm, (None, None, heads, self.spec.head_dim))
        build_once(self.output_dense, (None, None, self.spec.num_heads * self.spec.head_dim))

    def call(
        self,
        query: Tensor,
        key_value: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        visibility: Visibility | None = None,
        cache: LayerCache | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
        value: Tensor | None = None,
    ) -> Tensor | Outputs:
        """Applies the layer."""
        memory = query if key_value is None else key_value
        value = memory if value is None else value
        keys = None if cache is not None else memory.shape[1]
        if visibility is None and self.spec.window is not None:
            visibility = Visibility.of_text(ops.shape(query)[1])
        visibility = visibility_of(visibility, attention_mask, bias, query, keys)
        if visibility.causal:
            visibility = visibility.with_slots(ops.shape(query)[1], [cache])
        visibility = visibility.with_bias(self.position_bias(visibility))
        projected: tuple[Tensor | None, Tensor | None] = (None, None)
        if cache is None or not cache.complete:
            projected = self._normalized(self.key(memory), self.key_norm), self.value(value)
        states = self._normalized(self.query(query), self.query_norm), *projected
        call = AttentionCall(*states, self.spec, visibility, cache, self._drop if training and self.dropout else None)
        if cache is None and banded.attends_within_window(self.spec, visibility):
            context, weights = banded.multi_head_attention(
                call,
                self.global_states(query, memory, value),
                first_tokens=key_value is not None,
                zero_padding=self.zero_padding,
                return_attention=return_attention,
            )
        elif self.spec.blocks is not None:
            dense = return_attention or key_value is not None
            context, weights = block_sparse.multi_head_attention(call, training, dense)
        else:
            context, weights, cache = primitives.multi_head_attention(
                *states, self.spec, visibility, cache, call.dropout
            )
        return packed(
            self.project_output(context, query, training),
            return_attention or return_cache,
            attention=weights if return_attention else None,
            cache=cache if return_cache else None,
        )

    def project_output(self, context: Tensor, query: Tensor, training: bool) -> Tensor:
        """Projects the joined heads `(B, T, H * D)` to the output `(B, T, E)`; `query` is the input of the layer."""
        output = self.output_dense(context)
        return output if self.last_dropout is None else self.last_dropout(output, training=training)

    def position_bias(self, visibility: Visibility) -> Tensor | None:
        """Returns a bias of the scores that only this layer has, `(1, H, T, S)`, or `None`."""
        return None

    def global_states(self, query: Tensor, memory: Tensor, value: Tensor) -> Callable[[GlobalTokens], States] | None:
        """Returns a function that projects global tokens, or `None` if all tokens share the same projections."""
        return None

    def check_features(self, *unsupported: str) -> None:
        """Refuses features of attention, by the names of `AttentionSpec.features`, that a subclass does not support."""
        if refused := sorted(set(unsupported) & set(self.spec.features)):
            raise InputError(f"{type(self).__name__} does not support: {', '.join(refused)}")

    def _normalized(self, x: Tensor, norm: keras.layers.Layer | None) -> Tensor:
        """Normalizes each head of `(B, T, H * D)`."""
        if norm is None:
            return x
        heads = ops.reshape(x, (*ops.shape(x)[:2], x.shape[-1] // self.spec.head_dim, self.spec.head_dim))
        return ops.reshape(norm(heads), ops.shape(x))

    def compute_output_shape(  # type: ignore[override]
        self, query_shape: Shape, key_value_shape: Shape | None = None, value_shape: Shape | None = None
    ) -> Tensor | Outputs:
        """Maps `(B, T, E')` to `(B, T, E)`."""
        return (*query_shape[:-1], self.hidden_dim)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Projects `(B, S, E')` to keys and values `(B, G, S, D)`, the content of a cross-attention cache."""
        return split_heads(self.key(x), self.spec.head_dim), split_heads(self.value(x), self.spec.head_dim)

    def _drop(self, weights: Tensor) -> Tensor:
        return self.weights_dropout(weights, training=True)

"""Backbone of decoder-only models such as GPT-2: embeddings, causal layers and a final norm.

The file of an architecture defines its configuration, layers, tensor names and heads.

Called by the class of the model (`pretrained`), whose backbone it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import (
    CacheSpec,
    Decoder,
    DecoderLayer,
    Dense,
    Dropout,
    Embedding,
    FeedForward,
    LayerCache,
    MultiHeadAttention,
    Visibility,
    normalization,
)
from kerasformer.layers.blocks import Order
from kerasformer.layers.core import as_ids
from kerasformer.layers.layer_types import LayerArguments, LayerOptions, Outputs
from kerasformer.layers.tensor import Shape, Tensor, scaled
from kerasformer.models.backbone import Backbone
from kerasformer.models.creation import normal
from kerasformer.models.text_inputs import PREFIX_MASK, TextInput


class CausalDecoder(Backbone):
    """Base of decoder-only backbones.

    A subclass defines `rows`, and overrides the attributes, properties and methods below where it differs. The layers
    are those of GPT-2 by default.

    Args:
        config: A configuration with `vocab_size`, `hidden_dim`, `num_layers`, `num_heads`, `intermediate_dim`,
            `hidden_act`, `attention_dropout`, `epsilon` and `initializer_range`, and with `max_length` if the model has
            learned positions. If its `output_dim` is not `hidden_dim`, the token embeddings have that size and are
            projected to the first layer, and the output of the last layer is projected back. It may have
            the dropout rates of the embeddings, `embedding_dropout`, and of the outputs of attention and feed-forward
            network, `hidden_dropout` or `residual_dropout`.
        kwargs: `keras.layers.Layer` arguments.

    Attributes:
        norm: Kind of all norms, see `normalization`.
        has_positions: Whether a learned vector is added for each of `config.max_length` positions.
        position_offset: Row of the position table that belongs to position 0.
        positions_from_mask: Whether the positions of a text count its real tokens if the caller passes an attention
            mask and no positions; otherwise they count padding on the left, too.
        has_embedding_norm: Whether the embeddings are normalized.
        order: What layers normalize, see `EncoderLayer`.
        has_final_norm: Whether the output of the last layer is normalized.

    Call arguments:
        ids: `(B, T)` int32.
        attention_mask: 1 for real tokens, `(B, T)`; optional.
        positions: Positions of the tokens in their texts, `(B, T)`; optional.
        prefix_mask: 1 for the tokens of the prefix, such as a prompt, `(B, T)`, if `config.prefix_lm`.
        visibility: Slots and positions of the tokens, instead of these masks and `positions`; by default each
            token attends to itself and earlier tokens, or to all tokens if the backbone is not `causal`.
        caches: One `LayerCache` for each layer, optional.
        flags: `return_hidden_states`, `return_attention` and `return_cache` of `Decoder`.

    Returns:
        `(B, T, E)` of size `config.output_dim`, or the dictionary of `Decoder`.

    Raises:
        InputError: a prefix language model without `prefix_mask` or `visibility`.
    """

    norm: ClassVar[str] = "layer_norm"
    has_positions: ClassVar[bool] = False
    position_offset: ClassVar[int] = 0
    positions_from_mask: ClassVar[bool] = False
    has_embedding_norm: ClassVar[bool] = False
    order: ClassVar[Order] = "pre_norm"
    has_final_norm: ClassVar[bool] = True

    def __init__(self, config: Any, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        self.tokens = Embedding(config.vocab_size, config.output_dim, self.initializer, name="tokens")
        self.embedding_norm = None
        self.input_projection: Any = None
        self.output_projection: Any = None
        if config.output_dim != config.hidden_dim:
            self.input_projection = self._projection(config.hidden_dim, "input_projection")
            self.output_projection = self._projection(config.output_dim, "output_projection")
        self.positions = self.make_positions()
        if self.has_embedding_norm:
            self.embedding_norm = self.make_norm("embedding_norm")
        self.dropout = Dropout(self.embedding_dropout, name="dropout")
        self.decoder = Decoder(
            [self.make_layer(index) for index in range(config.num_layers)],
            final_norm=self.make_norm("final_norm") if self.has_final_norm else None,
            name="decoder",
        )

    def _projection(self, units: int, name: str) -> Dense:
        return Dense(units, use_bias=False, kernel_initializer=self.initializer, name=name)

    @property
    def text_inputs(self) -> tuple[TextInput, ...]:
        """See `Backbone.text_inputs`; a prefix language model also has `prefix_mask`."""
        return (*super().text_inputs, *((PREFIX_MASK,) if self.config.prefix_lm else ()))

    def make_positions(self) -> keras.layers.Layer | None:
        """Creates a layer that maps positions to vectors, such as `SinusoidalPositions`; optional."""
        if not self.has_positions:
            return None
        count = self.config.max_length + self.position_offset
        return Embedding(count, self.config.hidden_dim, self.initializer, name="positions")

    def make_layer(self, index: int) -> DecoderLayer:
        """Creates the layer of this index, named `layer_{index}`; layers may differ."""
        feed_forward = FeedForward(
            self.config.hidden_dim,
            self.feed_forward_dim,
            self.config.hidden_act,
            kernel_initializer=self.initializer,
            name="feed_forward",
            **self.feed_forward_options(index),
        )
        options = {"norm": self.norm, "epsilon": self.config.epsilon, "order": self.order}
        options |= {"dropout": self.hidden_dropout, **self.layer_options(index)}
        return DecoderLayer(self.make_attention(index), feed_forward, name=f"layer_{index}", **options)

    def make_attention(self, index: int) -> keras.layers.Layer:
        """Creates the attention of the layer of this index, or a layer in its place, such as `ShortConvolution`."""
        return MultiHeadAttention(
            self.config.num_heads,
            self.config.hidden_dim,
            dropout=self.config.attention_dropout,
            kernel_initializer=self.initializer,
            name="attention",
            **self.attention_options(index),
        )

    @property
    def feed_forward_dim(self) -> int:
        """Size `F` of the feed-forward networks."""
        size: int = self.config.intermediate_dim
        return size

    def layer_options(self, index: int) -> dict[str, Any]:
        """Returns further arguments of the layer of this index, such as `norm_bias`, or another `order`."""
        return {}

    def attention_options(self, index: int) -> LayerArguments:
        """Returns further arguments of the attention of the layer of this index."""
        return {}

    def feed_forward_options(self, index: int) -> LayerArguments:
        """Returns further arguments of the feed-forward network of the layer of this index."""
        return {}

    @property
    def causal(self) -> bool:
        """Whether tokens attend only to themselves and earlier tokens, without which a model has no cache."""
        return True

    @property
    def initializer(self) -> dict[str, Any]:
        """Initializer of all kernels and tables; serialized, so that each draws different random numbers."""
        return normal(self.config.initializer_range)

    @property
    def embedding_dropout(self) -> float:
        """Dropout rate of the embeddings."""
        rate: float = getattr(self.config, "embedding_dropout", 0.0)
        return rate

    @property
    def hidden_dropout(self) -> float:
        """Dropout rate of the outputs of attention and feed-forward network."""
        rate: float = getattr(self.config, "hidden_dropout", getattr(self.config, "residual_dropout", 0.0))
        return rate

    @property
    def embedding_scale(self) -> float:
        """Factor of the token embeddings at the input."""
        factor: float = getattr(self.config, "embedding_factor", 1.0)
        return factor

    def make_norm(self, name: str) -> keras.layers.Layer:
        """Creates a norm."""
        return normalization(self.norm, self.config.epsilon, name=name)

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates all variables."""
        shape = (None, None, self.config.hidden_dim)
        self.tokens.build((None, None))
        if self.input_projection is not None:
            self.input_projection.build((None, None, self.config.output_dim))
            self.output_projection.build(shape)
        if self.positions is not None:
            self.positions.build((None, None))
        if self.embedding_norm is not None:
            self.embedding_norm.build(shape)
        self.decoder.build(shape)

    def embed(self, ids: Tensor, visibility: Visibility, training: bool = False) -> Tensor:
        """Returns the input of the first layer, `(B, T, E)`."""
        x = scaled(self.tokens(ids), self.embedding_scale)
        if self.input_projection is not None:
            x = self.input_projection(x)
        if self.positions is not None:
            positions = visibility.query_positions(ops.shape(ids)[1])
            x = x + self.positions(positions + self.position_offset if self.position_offset else positions)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return self.dropout(x, training=training)

    def position_bias(self, visibility: Visibility) -> Tensor | None:
        """Returns a bias that all layers add to the scores, broadcastable to `(B, H, T, S)`, or `None`."""
        return None

    def call(
        self,
        ids: Tensor,
        visibility: Visibility | None = None,
        caches: Sequence[LayerCache] | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        prefix_mask: Tensor | None = None,
        training: bool = False,
        **flags: bool,
    ) -> Tensor | Outputs:
        """Applies the backbone."""
        ids = as_ids(ids)
        if visibility is None:
            if positions is None and attention_mask is not None and self.positions_from_mask:
                positions = ops.maximum(ops.cumsum(ops.cast(attention_mask, "int32"), axis=1) - 1, 0)
            visibility = Visibility.of_text(ops.shape(ids)[1], attention_mask, causal=self.causal, positions=positions)
            if self.config.prefix_lm:
                if prefix_mask is None:
                    raise InputError(
                        "A prefix language model (prefix_lm) reads its prefix in both directions. Expected: "
                        "prefix_mask, 1 for the tokens of the prefix, such as a prompt, (B, T). Received: none"
                    )
                visibility = visibility.with_prefix(prefix_mask)
        x = self.embed(ids, visibility, training)
        visibility = visibility.with_bias(self.position_bias(visibility))
        states = self.decoder(x, visibility=visibility, caches=caches, training=training, **flags)
        return states if self.output_projection is None else self._projected(states)

    def _projected(self, states: Tensor | Outputs) -> Tensor | Outputs:
        """Projects the output, which is also the last of the hidden states, to the size of the embeddings."""
        if not isinstance(states, dict):
            return self.output_projection(states)
        states = {**states, "output": self.output_projection(states["output"])}
        if "hidden_states" in states:
            states["hidden_states"] = (*states["hidden_states"][:-1], states["output"])
        return states

    def cache_specs(self) -> list[CacheSpec]:
        """Returns what each layer keeps of earlier tokens."""
        return self.decoder.cache_specs()

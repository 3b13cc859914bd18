"""The bidirectional encoder of BERT and its relatives: embeddings, a stack, and a pooler for those who have one.

A relative's file says what is its own: configuration, tensor names, heads.
"""

from __future__ import annotations

from typing import Any

import keras

from kerasformer.errors import InputError
from kerasformer.layers import (
    Dense,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    TransformerEmbeddings,
    Visibility,
)
from kerasformer.layers.core import unpacked
from kerasformer.layers.tensor import Tensor
from kerasformer.models.pretrained import Backbone


class BidirectionalEncoder(Backbone):
    """Embeddings and layers that normalize their sums.

    Args:
        config: Has `vocab_size`, `max_length`, `hidden_dim`, `num_heads`, `intermediate_dim`, `hidden_act`, `epsilon`,
            `hidden_dropout`, `attention_dropout`, `num_segments`, `initializer_range`, and what the attributes below
            read from it.
        pooler: Adds a dense layer with tanh over the first token.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        ids: `(B, T)` int32.
        attention_mask: 1 for real tokens, `(B, T)`.
        segments: `(B, T)` int32.
        positions: `(B, T)` int32; 0, 1, 2 … by default.
        count: Only this many first tokens are wanted.
        return_pooled: Gives a dictionary of `output` and `pooled` `(B, E)`, from the first token.
        return_hidden_states: Likewise with `hidden_states`: the embeddings and what each layer gave, `(B, T, E)` each.
        return_attention: Likewise with `attentions`, `(B, H, T, T)` a layer.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: a pooled vector of an encoder without pooler.
    """

    def __init__(self, config: Any, pooler: bool = False, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.embeddings = TransformerEmbeddings(
            config.vocab_size,
            config.max_length,
            config.hidden_dim,
            embedding_dim=self.embedding_dim,
            num_segments=config.num_segments,
            epsilon=config.epsilon,
            dropout=config.hidden_dropout,
            initializer=self.initializer,
            name="embeddings",
        )
        layers = [self.make_layer(f"layer_{index}") for index in range(max(self.schedule) + 1)]
        self.encoder = Encoder(layers, schedule=self.schedule, name="encoder")
        self.pooler = None
        if pooler:
            self.pooler = Dense(
                config.hidden_dim, activation="tanh", kernel_initializer=self.initializer, name="pooler"
            )

    @property
    def initializer(self) -> dict[str, Any]:
        """Of all kernels and tables; serialized, so that each gets random numbers of its own."""
        normal = keras.initializers.RandomNormal(stddev=self.config.initializer_range)
        return keras.initializers.serialize(normal)

    @property
    def embedding_dim(self) -> int | None:
        """Size of the embedding vectors, if it is their own."""
        return None

    @property
    def schedule(self) -> list[int]:
        """Which layer stands at which place."""
        return list(range(self.config.num_layers))

    def make_layer(self, name: str) -> EncoderLayer:
        """One layer."""
        config = self.config
        attention = MultiHeadAttention(
            config.num_heads,
            config.hidden_dim,
            dropout=config.attention_dropout,
            kernel_initializer=self.initializer,
            name="attention",
        )
        feed_forward = FeedForward(
            config.hidden_dim,
            config.intermediate_dim,
            config.hidden_act,
            kernel_initializer=self.initializer,
            name="feed_forward",
        )
        return EncoderLayer(attention, feed_forward, epsilon=config.epsilon, dropout=config.hidden_dropout, name=name)

    def build(self, input_shape: Any = None) -> None:
        """Creates every variable."""
        shape = (None, None, self.config.hidden_dim)
        self.embeddings.build((None, None))
        self.encoder.build(shape)
        if self.pooler is not None:
            self.pooler.build(shape)

    def call(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        count: int | None = None,
        training: bool = False,
        return_pooled: bool = False,
        return_hidden_states: bool = False,
        return_attention: bool = False,
    ) -> Any:
        """Reads a text."""
        x = self.embeddings(ids, segments=segments, positions=positions, training=training)
        flags = {"return_hidden_states": return_hidden_states, "return_attention": return_attention}
        visibility = Visibility(key_mask=attention_mask)
        states = self.encoder(x, visibility=visibility, count=count, training=training, **flags)
        if not return_pooled:
            return states
        if self.pooler is None:
            raise InputError(f"{type(self).__name__} was made without a pooler. Expected: pooler=True")
        states = unpacked(states)
        return {**states, "pooled": self.pooler(states["output"][:, 0])}

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "pooler": self.pooler is not None}

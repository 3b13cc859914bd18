"""The bidirectional encoder of BERT and its relatives: embeddings, a stack, and a pooler for those who have one.

A relative's file says what is its own: configuration, tensor names, heads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras

from kerasformer.layers import Dense, Encoder, EncoderLayer, FeedForward, MultiHeadAttention, TransformerEmbeddings
from kerasformer.layers.primitives import Tensor
from kerasformer.zoo._pretrained import Backbone


class Encoded(NamedTuple):
    """What an encoder gives."""

    output: Tensor
    """`(B, T, E)`."""
    pooled: Tensor | None
    """`(B, E)`, from the first token."""
    hidden_states: tuple[Tensor, ...]
    """The embeddings and what each layer gave, `(B, T, E)` each."""
    attentions: tuple[Tensor | None, ...]
    """Per layer `(B, H, T, T)`."""


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
        attention_mask: Boolean `(B, 1, 1, T)`.
        segments: `(B, T)` int32.
        positions: `(B, T)` int32; 0, 1, 2 … by default.
        count: Only this many first tokens are wanted.

    Returns:
        `Encoded`.
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
        self.embeddings.build()
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
    ) -> Encoded:
        """Reads a text."""
        x = self.embeddings(ids, segments=segments, positions=positions, training=training)
        states = self.encoder(x, attention_mask=attention_mask, count=count, training=training)
        pooled = None if self.pooler is None else self.pooler(states.output[:, 0])
        return Encoded(states.output, pooled, states.hidden_states, states.attentions)

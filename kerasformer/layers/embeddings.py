"""Token, position and segment embeddings: what a text becomes before the first layer."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from kerasformer.layers.core import (
    PACKAGE,
    Composite,
    Dense,
    Dropout,
    Embedding,
    as_ids,
    build_once,
)
from kerasformer.layers.norms import LayerNormalization
from kerasformer.layers.tensor import Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class TransformerEmbeddings(Composite):
    """The sum of token, position and segment vectors, normalized; projected if they have a size of their own.

    Args:
        vocab_size: Tokens `V`.
        max_length: Learned positions; `None` for a model that has others.
        hidden_dim: Size `E` of the result.
        embedding_dim: Size of the vectors, which are then projected (ALBERT factorizes); by default `hidden_dim`, and
            nothing is projected.
        num_segments: Segment types; 0 for none.
        epsilon: Of the norm; `None` for no norm.
        dropout: Rate, in training.
        initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        ids: Integers `(B, T)`.
        segments: Integers `(B, T)`, 0 by default.
        positions: Integers `(B, T)` or `(1, T)`; 0, 1, 2 … by default.

    Returns:
        `(B, T, E)`.

    Reference: Devlin et al. 2019, arXiv:1810.04805, section 3; Lan et al. 2020, arXiv:1909.11942, section 3.1.
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int | None,
        hidden_dim: int,
        embedding_dim: int | None = None,
        num_segments: int = 0,
        epsilon: float | None = 1e-12,
        dropout: float = 0.0,
        initializer: Any = "random_normal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size, self.max_length, self.hidden_dim = vocab_size, max_length, hidden_dim
        self.embedding_dim = hidden_dim if embedding_dim is None else embedding_dim
        self.num_segments, self.epsilon, self.dropout = num_segments, epsilon, dropout
        self.initializer = keras.initializers.serialize(keras.initializers.get(initializer))
        policy, size = self.dtype_policy, self.embedding_dim
        self.tokens = Embedding(vocab_size, size, self.initializer, name="tokens", dtype=policy)
        self.positions = self.segments = self.norm = self.projection = None
        if max_length is not None:
            self.positions = Embedding(max_length, size, self.initializer, name="positions", dtype=policy)
        if num_segments:
            self.segments = Embedding(num_segments, size, self.initializer, name="segments", dtype=policy)
        if epsilon is not None:
            self.norm = LayerNormalization(epsilon, name="norm", dtype=policy)
        if embedding_dim is not None:
            self.projection = Dense(hidden_dim, kernel_initializer=self.initializer, name="projection", dtype=policy)
        self.autocast = False  # as in `Embedding`
        self.output_dropout = Dropout(dropout, name="dropout", dtype=policy)

    def build(self, input_shape: Any = None) -> None:
        """Creates all tables."""
        for table in (self.tokens, self.positions, self.segments):
            if table is not None:
                build_once(table, (None, None))
        for layer in (self.norm, self.projection):
            if layer is not None:
                build_once(layer, (None, None, self.embedding_dim))

    def call(
        self, ids: Tensor, segments: Tensor | None = None, positions: Tensor | None = None, training: bool = False
    ) -> Tensor:
        """Looks all vectors up and adds them."""
        ids = as_ids(ids)
        x = self.tokens(ids)
        if self.segments is not None:
            x = x + self.segments(ops.zeros_like(ids) if segments is None else segments)
        if self.positions is not None:
            if positions is None:
                positions = ops.expand_dims(ops.arange(ops.shape(ids)[1], dtype="int32"), 0)
            x = x + self.positions(positions)
        if self.norm is not None:
            x = self.norm(x)
        x = self.output_dropout(x, training=training)
        return x if self.projection is None else self.projection(x)

    def compute_output_shape(self, input_shape: tuple[int | None, ...] | None) -> tuple[int | None, ...]:
        """`(B, T)` to `(B, T, E)`."""
        return (*(input_shape or (None, None)), self.hidden_dim)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        names = ("vocab_size", "max_length", "hidden_dim", "num_segments", "epsilon", "dropout", "initializer")
        own = {name: getattr(self, name) for name in names}
        own["embedding_dim"] = None if self.projection is None else self.embedding_dim
        return {**super().get_config(), **own}

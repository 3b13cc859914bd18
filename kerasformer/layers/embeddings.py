"""Embeddings of tokens, positions and segments: the input of the first layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import keras
from keras import ops

from kerasformer.layers.core import PACKAGE, Composite, Dense, Dropout, Embedding, arguments_of, as_ids, build_once
from kerasformer.layers.layer_types import Initializer, LayerConfig, LayerOptions
from kerasformer.layers.norms import normalization
from kerasformer.layers.tensor import Shape, Tensor, scaled, shifted, zero_padding


@keras.saving.register_keras_serializable(PACKAGE)
class TransformerEmbeddings(Composite):
    """Sum of token, position, segment and further embeddings, with optional norm and projection.

    Args:
        vocab_size: Number of tokens `V`.
        max_length: Number of learned positions; `None` for a model without position embeddings.
        hidden_dim: Size `E` of the output.
        embedding_dim: Size of the embeddings, which are then projected to `hidden_dim` (ALBERT); `None` for
            `hidden_dim` without a projection.
        token_dim: Size of the token embeddings alone, which are projected to the size of the others before the sum
            (MobileBERT); `None` for the same size without such a projection.
        neighbors: Number of tokens on each side of a token whose embeddings are part of its own, which are then
            projected together: 1 for the trigrams of MobileBERT.
        num_segments: Number of segment types; 0 for none.
        tables: Number of rows of each further embedding table, by name, such as `{"languages": 15}`; optional.
        epsilon: Epsilon of the norm; `None` for no norm.
        norm: Kind of the norm, see `normalization`.
        token_scale: Factor of the token embeddings.
        projection_first: Whether the projection precedes the norm (DeBERTa) or follows it (ALBERT).
        projection_bias: Whether the projection has a bias.
        padding_id: Id of the padding token; its position is `padding_id`, and the positions of other tokens start at
            `padding_id + 1` (RoBERTa). `None` for positions that start at 0.
        dropout: Dropout rate of the sum, after the norm.
        initializer: A Keras initializer.
        norm_bias: Whether the norm has a bias.
        optional_tables: Whether nothing is added for an omitted array of `tables` (XLM), instead of row 0, nor for an
            entry of -1.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        ids: Integers `(B, T)`.
        segments: Integers `(B, T)`, 0 by default.
        positions: Integers `(B, T)` or `(1, T)`; by default those described at `padding_id`.
        attention_mask: 1 for real tokens, `(B, T)`; padding does not affect its neighbors. Optional.
        others: Rows of each of `tables`, by its name: integers `(B, T)`; by default as described at `optional_tables`.

    Returns:
        `(B, T, E)`.

    Reference: Devlin et al. 2019, arXiv:1810.04805, section 3; Lan et al. 2020, arXiv:1909.11942, section 3.1;
    neighbors: Sun et al. 2020, arXiv:2004.02984, section 3.4.
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int | None,
        hidden_dim: int,
        embedding_dim: int | None = None,
        num_segments: int = 0,
        tables: Mapping[str, int] | None = None,
        epsilon: float | None = 1e-12,
        projection_first: bool = False,
        projection_bias: bool = True,
        padding_id: int | None = None,
        dropout: float = 0.0,
        initializer: Initializer = "random_normal",
        norm_bias: bool = True,
        token_dim: int | None = None,
        neighbors: int = 0,
        norm: str = "layer_norm",
        optional_tables: bool = False,
        token_scale: float = 1.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size, self.max_length, self.hidden_dim = vocab_size, max_length, hidden_dim
        self.embedding_dim = hidden_dim if embedding_dim is None else embedding_dim
        self.token_dim = self.embedding_dim if token_dim is None else token_dim
        self.neighbors, self.norm_kind, self.token_scale = neighbors, norm, token_scale
        self.num_segments, self.tables = num_segments, dict(tables or {})
        self.projection_first, self.projection_bias = projection_first, projection_bias
        self.padding_id, self.optional_tables = padding_id, optional_tables
        self.epsilon, self.norm_bias, self.dropout = epsilon, norm_bias, dropout
        self.initializer = keras.initializers.serialize(keras.initializers.get(initializer))
        policy = self.dtype_policy
        self.tokens = Embedding(vocab_size, self.token_dim, self.initializer, name="tokens", dtype=policy)
        self.positions = None if max_length is None else self._table(max_length, "positions")
        self.segments = self._table(num_segments, "segments") if num_segments else None
        self.others = {name: self._table(rows, name) for name, rows in self.tables.items()}
        self.norm = None
        self.token_projection: Any = None
        self.projection: Any = None
        if epsilon is not None:
            self.norm = normalization(norm, epsilon, norm_bias, name="norm", dtype=policy)
        if token_dim is not None or neighbors:
            self.token_projection = self._dense(self.embedding_dim, True, "token_projection")
        if embedding_dim is not None:
            self.projection = self._dense(hidden_dim, projection_bias, "projection")
        self.autocast = False  # as in `Embedding`
        self.output_dropout = Dropout(dropout, name="dropout", dtype=policy)

    def _table(self, rows: int, name: str) -> Embedding:
        return Embedding(rows, self.embedding_dim, self.initializer, name=name, dtype=self.dtype_policy)

    def _dense(self, units: int, use_bias: bool, name: str) -> Dense:
        return Dense(units, use_bias, kernel_initializer=self.initializer, name=name, dtype=self.dtype_policy)

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates all tables."""
        for table in (self.tokens, self.positions, self.segments, *self.others.values()):
            if table is not None:
                build_once(table, (None, None))
        projected = self.hidden_dim if self.projection_first else self.embedding_dim
        sizes = (
            (self.token_projection, self.token_dim * (2 * self.neighbors + 1)),
            (self.norm, projected),
            (self.projection, self.embedding_dim),
        )
        for layer, size in sizes:
            if layer is not None:
                build_once(layer, (None, None, size))

    def call(
        self,
        ids: Tensor,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool = False,
        attention_mask: Tensor | None = None,
        **others: Tensor | None,
    ) -> Tensor:
        """Looks up all embeddings and adds them."""
        ids = as_ids(ids)
        x = scaled(self.tokens(ids), self.token_scale)
        if self.token_projection is not None:
            x = self.token_projection(self._with_neighbors(x, attention_mask))
        if self.segments is not None:
            x = x + self.segments(ops.zeros(ops.shape(ids), "int32") if segments is None else segments)
        for name, table in self.others.items():
            rows = others.get(name)
            if not self.optional_tables:
                x = x + table(ops.zeros(ops.shape(ids), "int32") if rows is None else rows)
            elif rows is not None:
                present = ops.cast(ops.expand_dims(rows, -1) >= 0, x.dtype)
                x = x + present * table(ops.maximum(rows, 0))
        if self.positions is not None:
            x = x + self.positions(self._positions(ids) if positions is None else positions)
        if self.projection is not None and self.projection_first:
            x = self.projection(x)
        if self.norm is not None:
            x = self.norm(x)
        x = self.output_dropout(x, training=training)
        return x if self.projection is None or self.projection_first else self.projection(x)

    def _with_neighbors(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Appends the embeddings of the neighbors, those of later tokens first, as in the reference."""
        if not self.neighbors:
            return x
        if attention_mask is not None:  # as beyond the ends of a text, so that an answer does not depend on padding
            x = zero_padding(x, attention_mask)
        return ops.concatenate(shifted(x, self.neighbors)[::-1], axis=-1)

    def _positions(self, ids: Tensor) -> Tensor:
        if self.padding_id is None:
            return ops.expand_dims(ops.arange(ops.shape(ids)[1], dtype="int32"), 0)
        real = ops.cast(ops.not_equal(ids, self.padding_id), "int32")
        return ops.cumsum(real, axis=1) * real + self.padding_id

    def compute_output_shape(self, input_shape: tuple[int | None, ...] | None) -> tuple[int | None, ...]:
        """Maps `(B, T)` to `(B, T, E)`."""
        return (*(input_shape or (None, None)), self.hidden_dim)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        sizes = ("vocab_size", "max_length", "hidden_dim", "num_segments", "tables")
        names = ("projection_first", "projection_bias", "padding_id", "epsilon", "dropout", "initializer", "norm_bias")
        arguments = arguments_of(self, *sizes, *names, "neighbors", "optional_tables", "token_scale")
        arguments["embedding_dim"] = None if self.projection is None else self.embedding_dim
        arguments["token_dim"] = None if self.token_projection is None else self.token_dim
        arguments["norm"] = self.norm_kind
        return {**super().get_config(), **arguments}

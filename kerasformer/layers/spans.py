"""Scores of the spans of a text for labels that are part of the same text.

Reference: Zaratiana et al. 2023, "GLiNER: Generalist Model for Named Entity Recognition using Bidirectional
Transformer", arXiv:2311.08526, section 2; `SpanMarkerV0` of the package `gliner`.
"""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from kerasformer.layers.core import PACKAGE, Composite, Configured, Dense, Dropout, build_once
from kerasformer.layers.layer_types import LayerOptions
from kerasformer.layers.recurrent import BidirectionalLSTM
from kerasformer.layers.tensor import Tensor

_EXPANSION = 4
"""Size of the inner layer of each network of two layers, in sizes of its output."""


@keras.saving.register_keras_serializable(PACKAGE)
class SpanHead(Configured, Composite):
    """Head that scores each span of up to `max_width` words for each label.

    A span is represented by its first and its last word, and a label by one token. The score is the product of both
    representations. That of a span is the output layer of a network whose inner layer is linear in both words, so that
    words are projected before they are paired, and labels are projected by the output layer instead of all spans.

    Args:
        hidden_dim: Size `D` of the states of words, spans and labels.
        max_width: Number `K` of words of the longest span.
        recurrent: Whether an LSTM in both directions reads the words.
        label_offset: Distance of the token that represents a label from the one that marks it.
        dropout: Dropout rate in the networks.
        projects: Whether the states of the encoder have another size, so that they are projected.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: Hidden states of the tokens `(B, T, E)`.
        word_slots: Slot of the first token of each word, int32 `(B, W)`; -1 for padding, at the end of rows.
        label_slots: Slot of the token that marks each label, int32 `(B, C)`; -1 for padding.

    Returns:
        `(B, W, K, C)`: the score of the span of `k + 1` words from each word for each label; arbitrary numbers where a
        word or a label is padding, or the span exceeds the text.
    """

    def __init__(
        self,
        hidden_dim: int,
        max_width: int,
        recurrent: bool = True,
        label_offset: int = 0,
        dropout: float = 0.0,
        projects: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim, self.max_width, self.recurrent = hidden_dim, max_width, recurrent
        self.label_offset, self.dropout, self.projects = label_offset, dropout, projects
        policy = self.dtype_policy
        self.projection = Dense(hidden_dim, name="projection", dtype=policy) if projects else None
        self.lstm = BidirectionalLSTM(hidden_dim // 2, name="words", dtype=policy) if recurrent else None
        self.start, self.end, self.label = (
            TwoLayers(hidden_dim, dropout, name=name, dtype=policy) for name in ("start", "end", "label")
        )
        inner = _EXPANSION * hidden_dim
        self.span_start = Dense(inner, name="span_start", dtype=policy)
        self.span_end = Dense(inner, use_bias=False, name="span_end", dtype=policy)
        self.span_output = Dense(inner, use_bias=False, name="span_output", dtype=policy)
        self.span_dropout = Dropout(dropout, name="dropout", dtype=policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        if self.projection is not None:
            build_once(self.projection, input_shape)
        shape = (None, None, self.hidden_dim)
        for layer in (self.lstm, self.start, self.end, self.label, self.span_start, self.span_end, self.span_output):
            if layer is not None:
                build_once(layer, shape)
        self.offset = self.add_weight(shape=(self.hidden_dim,), initializer="zeros", name="offset")

    def call(self, x: Tensor, word_slots: Tensor, label_slots: Tensor, training: bool = False) -> Tensor:
        """Applies the head."""
        labels = _at(x, ops.where(label_slots < 0, label_slots, label_slots + self.label_offset))
        words = _at(x, word_slots)
        if self.projection is not None:
            labels, words = self.projection(labels), self.projection(words)
        if self.lstm is not None:
            words = self.lstm(words, ops.sum(ops.cast(word_slots >= 0, "int32"), axis=1))
        start = self.span_start(ops.relu(self.start(words, training=training)))
        end = self.span_end(ops.relu(self.end(words, training=training)))
        count = ops.shape(words)[1]
        end = ops.pad(end, ((0, 0), (0, self.max_width - 1), (0, 0)))
        ends = ops.stack([end[:, width : width + count] for width in range(self.max_width)], axis=2)
        spans = self.span_dropout(ops.relu(ops.expand_dims(start, 2) + ends), training=training)
        labels = self.label(labels, training=training)
        projected = ops.transpose(self.span_output(labels), (0, 2, 1))
        constant = ops.sum(labels * ops.cast(self.offset, labels.dtype), axis=-1)
        batch, inner, types = ops.shape(projected)
        scores = ops.matmul(ops.reshape(spans, (batch, -1, inner)), projected)
        scores = ops.reshape(scores, (batch, -1, self.max_width, types))
        return scores + ops.expand_dims(ops.expand_dims(constant, 1), 1)

    def compute_output_shape(
        self, input_shape: tuple[int | None, ...], word_slots_shape: tuple[int | None, ...] | None = None
    ) -> tuple[int | None, ...]:
        """Returns `(B, W, K, C)`, whose sizes of words and labels are unknown."""
        return input_shape[0], None, self.max_width, None


@keras.saving.register_keras_serializable(PACKAGE)
class TwoLayers(Configured, Composite):
    """Network of two layers with ReLU and dropout between them.

    Args:
        units: Size of the output.
        dropout: Dropout rate.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`; the result is `(..., units)`.
    """

    def __init__(self, units: int, dropout: float = 0.0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.units, self.dropout = units, dropout
        self.inner = Dense(_EXPANSION * units, activation="relu", name="inner", dtype=self.dtype_policy)
        self.inner_dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.outer = Dense(units, name="outer", dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs whose last axis is `E`."""
        build_once(self.inner, input_shape)
        build_once(self.outer, (*input_shape[:-1], _EXPANSION * self.units))

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Applies the network."""
        return self.outer(self.inner_dropout(self.inner(x), training=training))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(..., E)` to `(..., units)`."""
        return (*input_shape[:-1], self.units)


def _at(x: Tensor, slots: Tensor) -> Tensor:
    """Selects slots `(B, N)` from states `(B, T, E)`: `(B, N, E)`, 0 where a slot is negative."""
    states = ops.take_along_axis(x, ops.expand_dims(ops.maximum(slots, 0), -1), axis=1)
    return states * ops.expand_dims(ops.cast(slots >= 0, x.dtype), -1)

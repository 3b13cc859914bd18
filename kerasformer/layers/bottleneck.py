"""Encoder layers with bottlenecks: attention and feed-forward networks in a smaller size than the hidden states.

Shape letters: `B` batch, `T` tokens, `E` hidden size, `D` size within the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import keras

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.blocks import EncoderLayer
from kerasformer.layers.core import PACKAGE, Composite, Dense, Dropout, arguments_of, build_once
from kerasformer.layers.feed_forward import FeedForward
from kerasformer.layers.layer_types import Initializer, LayerConfig, LayerOptions
from kerasformer.layers.norms import normalization
from kerasformer.layers.tensor import Tensor, Tokens
from kerasformer.layers.visibility import Visibility


@keras.saving.register_keras_serializable(PACKAGE)
class NormalizedDense(Composite):
    """Dense layer and norm with an optional residual connection between them: `norm(residual + dense(x))`.

    Args:
        units: Size of the last axis of the output.
        norm: Kind of the norm, see `normalization`.
        epsilon: Epsilon of the norm.
        dropout: Dropout rate of the output of the dense layer.
        kernel_initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., in)`.
        residual: `(..., units)`; optional.

    Returns:
        `(..., units)`.
    """

    def __init__(
        self,
        units: int,
        norm: str = "layer_norm",
        epsilon: float = 1e-5,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units, self.norm_kind, self.epsilon, self.dropout = units, norm, epsilon, dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        initializer = keras.initializers.serialize(self.kernel_initializer)
        self.dense = Dense(units, kernel_initializer=initializer, name="dense", dtype=self.dtype_policy)
        self.norm = normalization(norm, epsilon, name="norm", dtype=self.dtype_policy)
        self.dense_dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(..., in)`."""
        build_once(self.dense, input_shape)
        build_once(self.norm, (*input_shape[:-1], self.units))

    def call(self, x: Tensor, residual: Tensor | None = None, training: bool = False) -> Tensor:
        """Applies the layer."""
        y = self.dense_dropout(self.dense(x), training=training)
        return self.norm(y if residual is None else primitives.residual(residual, y))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(..., in)` to `(..., units)`."""
        return (*input_shape[:-1], self.units)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        arguments = arguments_of(self, "units", "epsilon", "dropout", "kernel_initializer")
        return {**super().get_config(), **arguments, "norm": self.norm_kind}


ATTENTION_INPUTS = ("bottleneck", "shared", "hidden")
"""Values of `BottleneckEncoderLayer.attention_input`."""


@keras.saving.register_keras_serializable(PACKAGE)
class BottleneckEncoderLayer(EncoderLayer):
    """An `EncoderLayer` with several feed-forward networks, and optionally with a bottleneck.

    With a bottleneck, a dense layer reduces the hidden states `(B, T, E)` to the size `D` of the feed-forward networks,
    and another one restores the size `E` and adds the input of the layer. Norms follow all residual sums.

    Args:
        attention: The self attention, with an output of size `D`.
        feed_forward: The last feed-forward network, with an output of size `D`.
        inner: Feed-forward networks between the attention and the last one, each with a residual connection and a norm.
        hidden_dim: Size `E` of input and output; `None` for no bottleneck, so that `E` is `D`.
        attention_input: What the attention projects in a layer with a bottleneck: the reduced states (`"bottleneck"`);
            a second reduction for queries and keys, and the hidden states for values (`"shared"`); or the hidden states
            (`"hidden"`).
        output_dropout: Dropout rate of the restored states; `dropout` is that of attention and last feed-forward.
        kwargs: Arguments of `EncoderLayer`, except `order`.

    Call arguments:
        x: `(B, T, E)`.
        others: As in `EncoderLayer`, without a cache.

    Returns:
        `(B, T, E)`, or the dictionary of `EncoderLayer`.

    Raises:
        InputError: an unknown `attention_input`, or another `order`.

    Reference: Sun et al. 2020, arXiv:2004.02984, sections 3.1 and 3.2; `transformers.models.mobilebert`.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        inner: Sequence[FeedForward] = (),
        hidden_dim: int | None = None,
        attention_input: str = "shared",
        output_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(attention, feed_forward, **kwargs)
        if self.order != "post_norm":
            raise InputError(f"{type(self).__name__} normalizes residual sums. Expected: order='post_norm'")
        if attention_input not in ATTENTION_INPUTS:
            expected = ", ".join(ATTENTION_INPUTS)
            raise InputError(f"Unknown attention_input. Expected one of {expected}. Received: {attention_input!r}")
        self.hidden_dim, self.attention_input, self.output_dropout = hidden_dim, attention_input, output_dropout
        self.inner = list(inner)
        self.inner_norms = [self._norm(f"inner_norm_{index}") for index in range(len(self.inner))]
        self.reduction: Any = None
        self.shared_reduction: Any = None
        self.restoration: Any = None
        if hidden_dim is not None:
            size = feed_forward.hidden_dim
            self.reduction = self._dense(size, "reduction")
            self.shared_reduction = self._dense(size, "shared_reduction") if attention_input == "shared" else None
            self.restoration = self._dense(hidden_dim, "restoration", output_dropout)

    def _dense(self, units: int, name: str, dropout: float = 0.0) -> NormalizedDense:
        initializer = keras.initializers.serialize(self.feed_forward.kernel_initializer)
        options = {"kernel_initializer": initializer, "name": name, "dtype": self.dtype_policy}
        return NormalizedDense(units, self.norm, self.epsilon, dropout, **options)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        inside = (*input_shape[:-1], self.feed_forward.hidden_dim)
        if not self.attention.built:
            query = input_shape if self.attention_input == "hidden" else inside
            self.attention.build(query, value_shape=inside if self.attention_input == "bottleneck" else input_shape)
        for layer in (self.reduction, self.shared_reduction):
            if layer is not None:
                build_once(layer, input_shape)
        for layer in (*self.inner, *self.inner_norms, self.restoration):
            if layer is not None:
                build_once(layer, inside)
        super().build(inside)

    def attended(self, x: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Returns the reduced states of the first tokens, their queries, and the tensors of keys and values."""
        if self.reduction is None:
            return super().attended(x, tokens)
        if self.attention_input == "bottleneck":
            return super().attended(self.reduction(x), tokens)
        source = x if self.shared_reduction is None else self.shared_reduction(x)
        _, query, others = super().attended(source, tokens)
        values = {} if source is x else {"value": x}
        return self.reduction(tokens.of(x)), query, {**others, **values}

    def finish(
        self, output: Tensor, inputs: Tensor, tokens: Tokens, visibility: Visibility | None, training: bool
    ) -> Tensor:
        """Restores the size of the hidden states and adds the input of the layer."""
        if self.restoration is None:
            return output
        return self.restoration(output, tokens.of(inputs), training=training)

    def _feed(self, x: Tensor, training: bool) -> Tensor:
        for feed_forward, norm in zip(self.inner, self.inner_norms, strict=True):
            x = norm(primitives.residual(x, feed_forward(x, training=training)))
        return super()._feed(x, training)

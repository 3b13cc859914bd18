"""SpanBERT's boundary objective: the tokens of a masked span from the two tokens beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import (
    PACKAGE,
    Composite,
    Dense,
    Embedding,
    LayerConfig,
    LayerNormalization,
    LayerOptions,
    Shape,
    Tensor,
    unpacked,
)
from kerasformer.models import FillMask, PretrainedModel, Pretraining
from kerasformer.tools.training.objectives.wrapped import WrappedModel

_INPUTS = ("span_left", "span_right", "span_index")


@keras.saving.register_keras_serializable(PACKAGE)
class BoundaryHead(Composite):
    """Predicts a token of a span from the states beside the span and the index of the token in the span.

    Two dense layers with GELU and a norm each, then the tied token embeddings.

    Args:
        hidden_dim: Size of the dense layers, that of the token embeddings.
        max_span: Maximum number of tokens of a span.
        position_dim: Size of the embedding of the index.
        epsilon: Epsilon of the norms.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        states: Hidden states `(B, T, E)`.
        left: Slot of the token before the span of each token, `(B, T)`.
        right: Slot of the token after it, `(B, T)`.
        index: Index of the token in its span, `(B, T)`.
        embedding: The token `Embedding`.

    Returns:
        `(B, T, V)`.

    Reference: Joshi et al. 2020, arXiv:1907.10529, section 3.2.
    """

    def __init__(
        self,
        hidden_dim: int,
        max_span: int,
        position_dim: int = 200,
        epsilon: float = 1e-12,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim, self.max_span, self.position_dim, self.epsilon = hidden_dim, max_span, position_dim, epsilon
        self.positions = Embedding(max_span, position_dim, name="positions")
        self.dense = [Dense(hidden_dim, activation="gelu", name=f"dense_{index}") for index in range(2)]
        self.norms = [LayerNormalization(epsilon, name=f"norm_{index}") for index in range(2)]

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for states `(B, T, E)`."""
        self.positions.build((None, None))
        sizes = (2 * int(input_shape[-1] or 0) + self.position_dim, self.hidden_dim)
        for size, dense, norm in zip(sizes, self.dense, self.norms, strict=True):
            dense.build((None, None, size))
            norm.build((None, None, self.hidden_dim))

    def call(self, states: Tensor, left: Tensor, right: Tensor, index: Tensor, embedding: Embedding) -> Tensor:
        """Applies the head."""
        # Tokens after the last index share its embedding: a span of 10 words may have more tokens.
        index = ops.minimum(ops.cast(index, "int32"), self.max_span - 1)
        beside = [ops.take_along_axis(states, ops.expand_dims(slots, -1), axis=1) for slots in (left, right)]
        x = ops.concatenate([*beside, ops.cast(self.positions(index), states.dtype)], axis=-1)
        for dense, norm in zip(self.dense, self.norms, strict=True):
            x = norm(dense(x))
        return embedding.project(x)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        sizes = {"hidden_dim": self.hidden_dim, "max_span": self.max_span, "position_dim": self.position_dim}
        return {**super().get_config(), **sizes, "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(PACKAGE)
class SpanBoundary(WrappedModel):
    """A masked language model with SpanBERT's boundary objective, whose loss is the sum of those of both outputs.

    Args:
        model: Masked language model.
        max_span: Maximum number of tokens of a span that have an embedding of their own.
        position_dim: Size of these embeddings.
        kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: The arrays of `kerasformer.tools.training.span_boundary`: those of the model, `span_left`, `span_right`
            and `span_index`, `(B, T)`.

    Returns:
        Dictionary of `prediction_logits` and `boundary_logits`, `(B, T, V)`; the latter are meaningful for the tokens
        of spans alone. A loss for each is passed to `compile` in a dictionary with the same names.

    Raises:
        InputError: not a masked language model.

    Reference: Joshi et al. 2020, arXiv:1907.10529, section 3.2.
    """

    def __init__(self, model: PretrainedModel, max_span: int = 20, position_dim: int = 200, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(model, FillMask) or isinstance(model, Pretraining):
            raise InputError(
                f"The boundary objective needs a masked language model. Expected: task='fill-mask'. "
                f"Received: {type(model).__name__} for {model.task}"
            )
        self.model = model
        self.boundary = BoundaryHead(
            model.backbone.embeddings.tokens.output_dim, max_span, position_dim, model.config.epsilon, name="boundary"
        )
        self.boundary.build((None, None, model.config.output_dim))

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        """Applies the model and both heads."""
        spans = [ops.cast(inputs[name], "int32") for name in _INPUTS]
        arrays = self.model.checked({name: array for name, array in inputs.items() if name not in _INPUTS})
        arguments = self.model.backbone_arguments(arrays, every_token=True)
        states = unpacked(self.model.backbone(arrays["input_ids"], training=training, **arguments))
        boundary = self.boundary(states["output"], *spans, embedding=self.model.backbone.embeddings.tokens)
        return {"prediction_logits": self.model.answer(states, arrays, training), "boundary_logits": boundary}

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        sizes = {"max_span": self.boundary.max_span, "position_dim": self.boundary.position_dim}
        return {**super().get_config(), **sizes}

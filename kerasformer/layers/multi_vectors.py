"""Vectors of the tokens of a text for retrieval: projections, norms and weights of tokens.

Reference: Khattab and Zaharia 2020, "ColBERT", arXiv:2004.12832; Chen et al. 2024, "BGE M3-Embedding",
arXiv:2402.03216, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Unpack

import keras
from keras import ops

from kerasformer.layers.core import PACKAGE, Composite, Dense, arguments_of, build_once
from kerasformer.layers.layer_types import LayerConfig, LayerOptions
from kerasformer.layers.sentence import Projection, SentencePooling, unit
from kerasformer.layers.tensor import Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class MultiVectorHead(Composite):
    """Head that computes a vector of each token, and optionally a weight of each token and one vector of the text.

    Args:
        projections: Dense layers over the states, or dictionaries of their attributes, in order.
        normalize: Whether to scale each vector to length 1.
        unified: Whether there are also weights, and a vector of the text: the state of its first token, scaled to
            length 1 (BGE-M3).
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: Hidden states `(B, T, E)`.
        attention_mask: 1 for real tokens, `(B, T)`; by default all tokens are real.

    Returns:
        `(vectors (B, T, D),)`; with `unified` also weights `(B, T)`, at least 0, and the vectors of the texts `(B, E)`.
    """

    def __init__(
        self,
        projections: Sequence[Projection | LayerConfig],
        normalize: bool = True,
        unified: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.steps = tuple(Projection(**each) if isinstance(each, Mapping) else each for each in projections)
        self.normalize, self.unified = normalize, unified
        policy = self.dtype_policy
        self.projections = [
            Dense(step.dim, step.use_bias, activation=step.activation, name=f"projection_{index}", dtype=policy)
            for index, step in enumerate(self.steps)
        ]
        self.weight = Dense(1, activation="relu", name="weight", dtype=policy) if unified else None
        self.pooling = SentencePooling(("cls",), name="pooling", dtype=policy) if unified else None

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        if self.weight is not None:
            build_once(self.weight, input_shape)
        shape = input_shape
        for layer, step in zip(self.projections, self.steps, strict=True):
            build_once(layer, shape)
            shape = (*shape[:-1], step.dim)

    def call(self, x: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, ...]:
        """Applies the head."""
        vectors = x
        for layer in self.projections:
            vectors = layer(vectors)
        vectors = unit(vectors) if self.normalize else vectors
        if self.weight is None or self.pooling is None:
            return (vectors,)
        weights = ops.squeeze(self.weight(x), axis=-1)
        return vectors, weights, unit(self.pooling(x, attention_mask=attention_mask))

    def compute_output_shape(
        self, input_shape: tuple[int | None, ...], attention_mask_shape: tuple[int | None, ...] | None = None
    ) -> tuple[tuple[int | None, ...], ...]:
        """Returns the shapes of the results."""
        batch, length, size = input_shape
        vectors = (batch, length, self.steps[-1].dim if self.steps else size)
        return (vectors, (batch, length), (batch, size)) if self.unified else (vectors,)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        steps = [asdict(step) for step in self.steps]
        return {**super().get_config(), "projections": steps, **arguments_of(self, "normalize", "unified")}

"""Embeddings of texts from the hidden states of their tokens: pooling, projections and norms.

Reference: Reimers and Gurevych 2019, arXiv:1908.10084, and the modules of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Unpack

import keras
from keras import ops

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.core import (
    PACKAGE,
    Composite,
    Configured,
    Dense,
    Dropout,
    OptionalOutputs,
    arguments_of,
    build_once,
)
from kerasformer.layers.layer_types import Initializer, LayerConfig, LayerOptions
from kerasformer.layers.norms import LayerNormalization
from kerasformer.layers.tensor import Tensor

POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Kinds of pooling, by the names of sentence-transformers."""

SPARSE_POOLINGS = ("max", "sum")
"""Kinds of pooling of the weights of tokens, by the names of sentence-transformers."""

SPARSE_ACTIVATIONS = ("relu", "log1p_relu")
"""Activations of these weights, likewise."""

NORMALIZE = "normalize"
"""Step of a `SentenceHead` that scales each vector to length 1."""

LAYER_NORM = "layer_norm"
"""Step of a `SentenceHead` that applies a layer norm to each vector."""

_LOWEST = -1e9
"""Value of padding for the maximum; infinity would become NaN in products with 0."""


@dataclass(frozen=True)
class Projection:
    """Dense layer over a vector of a text, a step of a `SentenceHead`.

    Attributes:
        dim: Size of the result.
        activation: Name of the activation; `None` for none.
        use_bias: Whether the layer has a bias.
    """

    dim: int
    activation: str | None = "tanh"
    use_bias: bool = True


@dataclass(frozen=True)
class VectorDropout:
    """Dropout of a vector of a text, a step of a `SentenceHead` that has an effect only in training.

    Attributes:
        rate: Fraction of the entries set to 0.
    """

    rate: float


Step = Projection | VectorDropout | str


@keras.saving.register_keras_serializable(PACKAGE)
class SentencePooling(Configured, OptionalOutputs):
    """Pooling of the hidden states of a text to one vector.

    Args:
        modes: One or several of `POOLINGS`, the results of which are concatenated. `"cls"` is the state of the first
            real token and `"lasttoken"` that of the last one; `"mean_sqrt_len_tokens"` is the sum of the states,
            divided by the square root of their number; `"weightedmean"` weights them by 1, 2, 3 ….
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: Hidden states `(B, T, E)`.
        attention_mask: 1 for real tokens, `(B, T)`; by default all tokens are real.
        prompt_mask: 1 for tokens of a prompt, which are not pooled, `(B, T)`; optional. The weights of
            `"weightedmean"` count them nevertheless.

    Returns:
        `(B, N * E)` for `N` modes.

    Raises:
        UnsupportedConfigError: an unknown mode, or none.
    """

    def __init__(self, modes: Sequence[str] = ("mean",), **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        unknown = [mode for mode in modes if mode not in POOLINGS]
        if unknown or not modes:
            raise UnsupportedConfigError(
                f"Unknown pooling. Expected one or several of {', '.join(POOLINGS)}. Received: {list(modes)}"
            )
        self.modes = tuple(modes)

    def call(self, x: Tensor, attention_mask: Tensor | None = None, prompt_mask: Tensor | None = None) -> Tensor:
        """Applies the layer."""
        states = ops.cast(x, "float32")  # sums of many tokens in half precision would be inaccurate
        slots = ops.arange(ops.shape(x)[1], dtype="int32")
        everything = ops.ones_like(x[..., 0], dtype="int32")
        real = everything if attention_mask is None else ops.cast(attention_mask > 0, "int32")
        start = _first(real, slots)
        real = real if prompt_mask is None else real * ops.cast(prompt_mask == 0, "int32")
        pooled = [_pooled(mode, states, real, slots, start) for mode in self.modes]
        return ops.cast(pooled[0] if len(pooled) == 1 else ops.concatenate(pooled, axis=-1), self.compute_dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to `(B, N * E)`."""
        size = input_shape[-1]
        return input_shape[0], None if size is None else len(self.modes) * size


def _pooled(mode: str, states: Tensor, real: Tensor, slots: Tensor, start: Tensor) -> Tensor:
    """Returns the vector `(B, E)` of states `(B, T, E)`, where `real` `(B, T)` is 1.

    Args:
        mode: One of `POOLINGS`.
        states: The states.
        real: 1 for tokens that are pooled.
        slots: 0, 1, 2 … `(T,)`.
        start: Slot of the first token of each text, including its prompt, `(B, 1)`.
    """
    if mode in ("cls", "lasttoken"):
        slot = _first(real, slots) if mode == "cls" else ops.max(slots * real, axis=1, keepdims=True)
        return ops.take_along_axis(states, ops.expand_dims(slot, -1), axis=1)[:, 0]
    if mode == "max":
        return ops.max(ops.where(ops.expand_dims(real > 0, -1), states, _LOWEST), axis=1)
    weights = real * (slots + 1 - start) if mode == "weightedmean" else real
    weights = ops.cast(ops.expand_dims(weights, -1), "float32")
    total = ops.maximum(ops.sum(weights, axis=1), 1.0)
    return ops.sum(states * weights, axis=1) / (ops.sqrt(total) if mode == "mean_sqrt_len_tokens" else total)


def first_slots(attention_mask: Tensor) -> Tensor:
    """Returns the slot of the first real token of each text, int32 `(B,)`; the last slot of a text without any.

    Args:
        attention_mask: 1 for real tokens, `(B, T)`.
    """
    slots = ops.arange(ops.shape(attention_mask)[1], dtype="int32")
    return _first(ops.cast(attention_mask > 0, "int32"), slots)[:, 0]


def _first(real: Tensor, slots: Tensor) -> Tensor:
    """Returns the slot of the first token where `real` `(B, T)` is 1, `(B, 1)`; `slots` are 0, 1, 2 … `(T,)`."""
    length = ops.shape(real)[1]
    return ops.minimum(length - ops.max((length - slots) * real, axis=1, keepdims=True), length - 1)


@keras.saving.register_keras_serializable(PACKAGE)
class SentenceHead(Composite):
    """Head that computes the embedding of a text: pooling, then projections, norms and dropout in order.

    Args:
        pooling: Modes of `SentencePooling`.
        steps: `Projection(…)` and `VectorDropout(…)`, or dictionaries of their attributes; `"layer_norm"` and
            `"normalize"`.
        kernel_initializer: A Keras initializer for the projections.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: Hidden states `(B, T, E)`.
        attention_mask: 1 for real tokens, `(B, T)`; by default all tokens are real.
        prompt_mask: 1 for tokens of a prompt, which are not pooled, `(B, T)`; optional.

    Returns:
        `(B, D)`.

    Raises:
        UnsupportedConfigError: an unknown pooling, step or activation.
    """

    def __init__(
        self,
        pooling: Sequence[str] = ("mean",),
        steps: Sequence[Step | LayerConfig] = (),
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.steps = tuple(_step(step) if isinstance(step, Mapping) else step for step in steps)
        named = NORMALIZE, LAYER_NORM
        if unknown := [x for x in self.steps if not isinstance(x, Projection | VectorDropout) and x not in named]:
            raise UnsupportedConfigError(
                "Unknown step. Expected: a Projection, a VectorDropout, 'layer_norm' or 'normalize'. "
                f"Received: {unknown}"
            )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        policy, initializer = self.dtype_policy, keras.initializers.serialize(self.kernel_initializer)
        self.pooling = SentencePooling(pooling, name="pooling", dtype=policy)
        self.projections = [
            Dense(
                step.dim,
                step.use_bias,
                activation=step.activation,
                kernel_initializer=initializer,
                name=f"projection_{index}",
                dtype=policy,
            )
            for index, step in enumerate(step for step in self.steps if isinstance(step, Projection))
        ]
        self.norms = [
            LayerNormalization(name=f"norm_{index}", dtype=policy) for index in range(self.steps.count(LAYER_NORM))
        ]
        self.dropouts = [Dropout(step.rate, dtype=policy) for step in self.steps if isinstance(step, VectorDropout)]

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        shape = self.pooling.compute_output_shape(input_shape)
        projections, norms = iter(self.projections), iter(self.norms)
        for step in self.steps:
            if isinstance(step, Projection):
                build_once(next(projections), shape)
                shape = (*shape[:-1], step.dim)
            elif step == LAYER_NORM:
                build_once(next(norms), shape)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        prompt_mask: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        """Applies the head."""
        x = self.pooling(x, attention_mask=attention_mask, prompt_mask=prompt_mask)
        projections, norms, dropouts = iter(self.projections), iter(self.norms), iter(self.dropouts)
        for step in self.steps:
            if isinstance(step, Projection):
                x = next(projections)(x)
            elif isinstance(step, VectorDropout):
                x = next(dropouts)(x, training=training)
            else:
                x = next(norms)(x) if step == LAYER_NORM else unit(x)
        return x

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to `(B, D)`."""
        sizes = [step.dim for step in self.steps if isinstance(step, Projection)]
        shape = self.pooling.compute_output_shape(input_shape)
        return (shape[0], sizes[-1]) if sizes else shape

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        steps = [step if isinstance(step, str) else asdict(step) for step in self.steps]
        arguments = {"pooling": list(self.pooling.modes), "steps": steps, **arguments_of(self, "kernel_initializer")}
        return {**super().get_config(), **arguments}


def _step(attributes: LayerConfig) -> Step:
    """Returns the step with these attributes."""
    return VectorDropout(**attributes) if "rate" in attributes else Projection(**attributes)


def unit(x: Tensor) -> Tensor:
    """Scales vectors `(B, D)` to length 1; a vector of zeros is unchanged."""
    wide = ops.cast(x, "float32")
    length = ops.sqrt(ops.sum(ops.square(wide), axis=-1, keepdims=True))
    return ops.cast(wide / ops.maximum(length, 1e-12), x.dtype)


def sparse_weights(
    scores: Tensor, attention_mask: Tensor | None, pooling: str = "max", activation: str = "relu"
) -> Tensor:
    """Returns the weight of each token of the vocabulary for a text, float32 `(B, V)`, from the scores of its tokens.

    Args:
        scores: Scores of a masked language model `(B, T, V)`.
        attention_mask: 1 for real tokens, `(B, T)`; by default all tokens are real.
        pooling: One of `SPARSE_POOLINGS`.
        activation: One of `SPARSE_ACTIVATIONS`: `log(1 + relu(x))`, once or twice.

    Reference: Formal et al. 2021, arXiv:2109.10086, equation 1, and `SpladePooling` of sentence-transformers.
    """
    x = ops.cast(scores, "float32")
    x = x if attention_mask is None else x * ops.expand_dims(ops.cast(attention_mask > 0, "float32"), -1)
    if pooling == "max":
        x = ops.max(x, axis=1)  # before the activation, which keeps the order
    x = ops.relu(x)
    for _ in range(SPARSE_ACTIVATIONS.index(activation) + 1):
        x = ops.log(1.0 + x)  # runtimes of phones have no log1p
    return x if pooling == "max" else ops.sum(x, axis=1)

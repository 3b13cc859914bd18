"""Encoder and decoder layers, and the stacks of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.core import PACKAGE, build_once, serialize_part
from kerasformer.layers.feed_forward import FeedForward, normalization
from kerasformer.layers.positions import RotaryAngles
from kerasformer.layers.primitives import Tensor, mask_to_bias


class LayerOutput(NamedTuple):
    """What one layer gives; `E` hidden size, `S` keys of the self attention, `M` length of the memory."""

    output: Tensor
    """`(B, T, E)`."""
    cache: LayerCache | None
    cross_cache: LayerCache | None
    weights: Tensor | None
    """`(B, H, T, S)`, or `None` from a fused attention."""
    cross_weights: Tensor | None
    """`(B, H, T, M)`."""


@keras.saving.register_keras_serializable(PACKAGE)
class EncoderLayer(keras.layers.Layer):
    """Self attention, then feed-forward, each with a residual connection, a norm and dropout.

    Args:
        attention: The self attention.
        feed_forward: The feed-forward.
        norm: `"layer_norm"` or `"rms_norm"`.
        epsilon: Of the norm.
        norm_first: Normalizes what goes into a part (GPT-2, T5) rather than the sum that comes out (BERT).
        dropout: Rate on what comes out of a part, in training.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: Boolean, broadcastable to `(B, H, T, S)`; `True` attends.
        bias: Float, added to the scores.
        cache: `LayerCache` or `None`.
        rotary: `(cos, sin)` or `None`.
        count: Only this many first tokens are answered for (`T` of the output); they still see all. A classifier that
            reads the first token needs no others from the last layer. Not with a cache or `rotary`.

    Returns:
        `LayerOutput`.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.1; norm first: Xiong et al. 2020, arXiv:2002.04745.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        norm: str = "layer_norm",
        epsilon: float = 1e-5,
        norm_first: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.norm, self.epsilon = norm, epsilon
        self.norm_first, self.dropout = norm_first, dropout
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_norm = self._norm("attention_norm")
        self.feed_forward_norm = self._norm("feed_forward_norm")
        self.residual_dropout = keras.layers.Dropout(dropout, name="residual_dropout", dtype=self.dtype_policy)

    def _norm(self, name: str) -> keras.layers.Layer:
        return normalization(self.norm, self.epsilon, name=name, dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        for layer in (self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm):
            build_once(layer, input_shape)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        cache: LayerCache | None = None,
        rotary: RotaryAngles | None = None,
        count: int | None = None,
        training: bool = False,
    ) -> LayerOutput:
        """Applies the layer."""
        x, weights, cache = self._attend(x, attention_mask, bias, cache, rotary, training, count)
        return LayerOutput(self._feed(x, training), cache, None, weights, None)

    def _attend(
        self, x: Tensor, mask: Any, bias: Any, cache: Any, rotary: Any, training: bool, count: int | None = None
    ) -> tuple[Tensor, Tensor | None, LayerCache | None]:
        y = self.attention_norm(x) if self.norm_first else x
        seen = None
        if count is not None:
            seen, x, y = y, x[:, :count], y[:, :count]
        y, weights, cache = self.attention(
            y, key_value=seen, attention_mask=mask, bias=bias, cache=cache, rotary=rotary, training=training
        )
        return self._add(x, y, self.attention_norm, training), weights, cache

    def _feed(self, x: Tensor, training: bool) -> Tensor:
        y = self.feed_forward(self.feed_forward_norm(x) if self.norm_first else x, training=training)
        return self._add(x, y, self.feed_forward_norm, training)

    def _add(self, x: Tensor, y: Tensor, norm: keras.layers.Layer, training: bool) -> Tensor:
        total = primitives.residual(x, self.residual_dropout(y, training=training))
        return total if self.norm_first else norm(total)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        names = ("norm", "epsilon", "norm_first", "dropout")
        parts = ("attention", "feed_forward")
        own = {name: getattr(self, name) for name in names}
        own |= {name: serialize_part(getattr(self, name)) for name in parts}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> EncoderLayer:
        """A layer from `get_config`."""
        parts = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("attention", "feed_forward", "cross_attention")
            if config.get(name) is not None
        }
        return cls(**{**config, **parts})


@keras.saving.register_keras_serializable(PACKAGE)
class DecoderLayer(EncoderLayer):
    """An `EncoderLayer` that may also attend to a memory, the encoded text, between its two parts.

    Args:
        attention: The self attention; the caller's mask makes it causal.
        feed_forward: The feed-forward.
        cross_attention: Attention to the memory; `None` in a decoder-only model.
        kwargs: As in `EncoderLayer`.

    Call arguments:
        x: `(B, T, E)`.
        memory: `(B, M, E)`, or `None` where there is no cross attention or its cache is complete.
        attention_mask: Boolean, broadcastable to `(B, H, T, S)`.
        bias: Float, added to the scores of the self attention.
        memory_bias: Float, added to the scores of the cross attention.
        cache: `LayerCache` of the self attention.
        cross_cache: `LayerCache` of the cross attention.

    Returns:
        `LayerOutput`.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.1.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        cross_attention: MultiHeadAttention | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(attention, feed_forward, **kwargs)
        self.cross_attention = cross_attention
        self.cross_attention_norm: Any = None if cross_attention is None else self._norm("cross_attention_norm")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        super().build(input_shape)
        if self.cross_attention is not None:
            build_once(self.cross_attention, input_shape)
            build_once(self.cross_attention_norm, input_shape)

    def call(  # type: ignore[override]  # the memory is its second input, as in PyTorch
        self,
        x: Tensor,
        memory: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        memory_bias: Tensor | None = None,
        cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
        rotary: RotaryAngles | None = None,
        training: bool = False,
    ) -> LayerOutput:
        """Applies the layer."""
        x, weights, cache = self._attend(x, attention_mask, bias, cache, rotary, training)
        cross_weights = None
        if self.cross_attention is not None:
            y = self.cross_attention_norm(x) if self.norm_first else x
            y, cross_weights, cross_cache = self.cross_attention(
                y, key_value=memory, bias=memory_bias, cache=cross_cache, training=training
            )
            x = self._add(x, y, self.cross_attention_norm, training)
        return LayerOutput(self._feed(x, training), cache, cross_cache, weights, cross_weights)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "cross_attention": serialize_part(self.cross_attention)}


class StackOutput(NamedTuple):
    """What a stack of layers gives."""

    output: Tensor
    """`(B, T, E)`, after the final norm."""
    caches: tuple[LayerCache | None, ...]
    cross_caches: tuple[LayerCache | None, ...]
    hidden_states: tuple[Tensor, ...]
    """The input and what each layer gave, `(B, T, E)` each; the last one after the final norm."""
    attentions: tuple[Tensor | None, ...]
    """Per layer `(B, H, T, S)`."""
    cross_attentions: tuple[Tensor | None, ...]
    """Per layer `(B, H, T, M)`."""


class _Stack(keras.layers.Layer):
    """Layers one after the other, with a final norm or none; `schedule` lets several places share a layer."""

    def __init__(
        self,
        layers: Sequence[keras.layers.Layer],
        final_norm: keras.layers.Layer | None = None,
        schedule: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.layers = list(layers)
        self.final_norm = final_norm
        self.schedule = list(range(len(self.layers))) if schedule is None else [int(i) for i in schedule]
        if not all(0 <= i < len(self.layers) for i in self.schedule):
            raise InputError(f"schedule must name {len(self.layers)} layers from 0 on. Received: schedule={schedule}")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights of all layers for inputs `(B, T, E)`."""
        for layer in self.layers:
            build_once(layer, input_shape)
        if self.final_norm is not None:
            build_once(self.final_norm, input_shape)

    def _run(self, x: Tensor, per_place: Sequence[dict[str, Any]], **shared: Any) -> StackOutput:
        states, outputs = [x], []
        for place, arguments in zip(self.schedule, per_place, strict=True):
            outputs.append(self.layers[place](states[-1], **arguments, **shared))
            states.append(outputs[-1].output)
        if self.final_norm is not None:
            states[-1] = self.final_norm(states[-1])
        return StackOutput(
            output=states[-1],
            caches=tuple(o.cache for o in outputs),
            cross_caches=tuple(o.cross_cache for o in outputs),
            hidden_states=tuple(states),
            attentions=tuple(o.weights for o in outputs),
            cross_attentions=tuple(o.cross_weights for o in outputs),
        )

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        parts = {
            "layers": [serialize_part(layer) for layer in self.layers],
            "final_norm": serialize_part(self.final_norm),
        }
        own = {**parts, "schedule": self.schedule}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> _Stack:
        """A stack from `get_config`."""
        deserialize = keras.saving.deserialize_keras_object
        norm = config["final_norm"]
        layers = [deserialize(layer) for layer in config["layers"]]
        return cls(**{**config, "layers": layers, "final_norm": None if norm is None else deserialize(norm)})


@keras.saving.register_keras_serializable(PACKAGE)
class Encoder(_Stack):
    """A stack of `EncoderLayer`s.

    Args:
        layers: The layers.
        final_norm: Applied to the last output, where the layers normalize first.
        schedule: Which layer stands at which place; each once and in order by default (ALBERT shares them).
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: Boolean, broadcastable to `(B, H, T, T)`.
        bias: Float, added to all attention scores.
        count: Only this many first tokens are wanted; the last layer is not computed for the others.

    Returns:
        `StackOutput`.
    """

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotary: RotaryAngles | None = None,
        count: int | None = None,
        training: bool = False,
    ) -> StackOutput:
        """Applies all layers."""
        bias = add_biases(attention_mask, bias, x.dtype)
        per_place: list[dict[str, Any]] = [{} for _ in self.schedule]
        if count is not None:
            per_place[-1]["count"] = count
        return self._run(x, per_place, bias=bias, rotary=rotary, training=training)


@keras.saving.register_keras_serializable(PACKAGE)
class Decoder(_Stack):
    """A stack of `DecoderLayer`s.

    Args:
        layers: The layers.
        final_norm: Applied to the last output, where the layers normalize first.
        schedule: As in `Encoder`.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        memory: `(B, M, E)` for cross attention, or `None`.
        attention_mask: Boolean, broadcastable to `(B, H, T, S)`; the caller makes it causal (`causal_mask`).
        bias: Float, added to all scores of the self attention.
        memory_mask: Boolean, broadcastable to `(B, H, T, M)`.
        caches: One `LayerCache` a layer, or `None`.
        cross_caches: Likewise.

    Returns:
        `StackOutput`.
    """

    def call(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        memory_mask: Tensor | None = None,
        caches: Sequence[LayerCache] | None = None,
        cross_caches: Sequence[LayerCache] | None = None,
        rotary: RotaryAngles | None = None,
        training: bool = False,
    ) -> StackOutput:
        """Applies all layers."""
        none = [None] * len(self.schedule)
        own, cross = caches or none, cross_caches or none
        if not len(own) == len(cross) == len(none):
            raise InputError(
                f"There must be one cache a place: {len(none)}. Received: {len(own)} caches, {len(cross)} cross caches"
            )
        per_place = [{"cache": c, "cross_cache": x} for c, x in zip(own, cross, strict=True)]
        shared = {"memory": memory, "memory_bias": add_biases(memory_mask, None, x.dtype), "rotary": rotary}
        return self._run(x, per_place, bias=add_biases(attention_mask, bias, x.dtype), training=training, **shared)


def add_biases(mask: Tensor | None, bias: Tensor | None, dtype: str) -> Tensor | None:
    """One float bias from a boolean mask and a float bias, so that each layer adds one tensor and converts none."""
    if mask is None:
        return bias
    masked = mask_to_bias(mask, keras.backend.standardize_dtype(dtype))
    return masked if bias is None else masked + ops.cast(bias, masked.dtype)

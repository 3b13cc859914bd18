"""Encoder and decoder layers, and the stacks of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.attention import MultiHeadAttention, head_mask
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.core import PACKAGE, Composite, Dropout, Flagged, build_once, packed, serialize_part, unpacked
from kerasformer.layers.feed_forward import FeedForward, normalization
from kerasformer.layers.positions import RotaryAngles
from kerasformer.layers.primitives import Tensor, mask_to_bias


@keras.saving.register_keras_serializable(PACKAGE)
class EncoderLayer(Composite):
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
        attention_mask: `True` or 1 attends: `(B, S)` for padding, `(B, T, S)` or `(B, H, T, S)`; axes may be 1.
        bias: Float, added to the scores.
        cache: `LayerCache` or `None`.
        rotary: `(cos, sin)` or `None`.
        count: Only this many first tokens are answered for (`T` of the output); they still see all. A classifier that
            reads the first token needs no others from the last layer. Not with a cache or `rotary`.
        return_attention: Gives a dictionary of `output` and `attention`, the weights `(B, H, T, S)`.
        return_cache: Likewise with `cache`, the updated one.

    Returns:
        `(B, T, E)`, or the dictionary.

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
        self.residual_dropout = Dropout(dropout, name="residual_dropout", dtype=self.dtype_policy)

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
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Any:
        """Applies the layer."""
        seen, query = None, self._before(x, self.attention_norm)
        if count is not None:
            seen, x, query = query, x[:, :count], query[:, :count]
        y, found = attended(
            self.attention(
                query,
                key_value=seen,
                attention_mask=attention_mask,
                bias=bias,
                cache=cache,
                rotary=rotary,
                training=training,
                return_attention=return_attention,
                return_cache=return_cache,
            )
        )
        x = self._add(x, y, self.attention_norm, training)
        return packed(self._feed(x, training), return_attention or return_cache, **found)

    def _before(self, x: Tensor, norm: keras.layers.Layer) -> Tensor:
        """What goes into a part of the layer."""
        return norm(x) if self.norm_first else x

    def _feed(self, x: Tensor, training: bool) -> Tensor:
        y = self.feed_forward(self._before(x, self.feed_forward_norm), training=training)
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
        attention_mask: `True` attends: `(B, T, S)` or `(B, H, T, S)`, of which axes may be 1.
        bias: Float, added to the scores of the self attention.
        memory_mask: `True` or 1 attends: `(B, M)` for padding, `(B, T, M)` or `(B, H, T, M)`.
        memory_bias: Float, added to the scores of the cross attention.
        cache: `LayerCache` of the self attention.
        cross_cache: `LayerCache` of the cross attention.
        return_attention: Gives a dictionary of `output`, `attention` `(B, H, T, S)` and `cross_attention`
            `(B, H, T, M)`.
        return_cache: Likewise with `cache` and `cross_cache`, the updated ones.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: a memory without cross attention, cross attention without a memory, or a mask of padding alone,
            with which tokens would see those after them.

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
        memory_mask: Tensor | None = None,
        memory_bias: Tensor | None = None,
        cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
        rotary: RotaryAngles | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Any:
        """Applies the layer."""
        _check_causal(attention_mask)
        _check_memory(self.name, self.cross_attention is not None, memory, cross_cache)
        flags = {"training": training, "return_attention": return_attention, "return_cache": return_cache}
        y, found = attended(
            self.attention(
                self._before(x, self.attention_norm),
                attention_mask=attention_mask,
                bias=bias,
                cache=cache,
                rotary=rotary,
                **flags,
            )
        )
        x = self._add(x, y, self.attention_norm, training)
        if self.cross_attention is not None:
            y, crossed = attended(
                self.cross_attention(
                    self._before(x, self.cross_attention_norm),
                    key_value=memory,
                    attention_mask=memory_mask,
                    bias=memory_bias,
                    cache=cross_cache,
                    **flags,
                )
            )
            x = self._add(x, y, self.cross_attention_norm, training)
            found |= {f"cross_{name}": value for name, value in crossed.items()}
        return packed(self._feed(x, training), return_attention or return_cache, **found)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "cross_attention": serialize_part(self.cross_attention)}


def attended(result: Any) -> tuple[Tensor, dict[str, Any]]:
    """What an attention gave, and the rest of it."""
    found = unpacked(result)
    return found.pop("output"), found


def _check_causal(mask: Tensor | None) -> None:
    """A decoder's mask says for each token which others it sees."""
    if mask is not None and len(mask.shape) == 2:
        raise InputError(
            "A decoder's attention_mask is (B, T, S) or (B, H, T, S): with padding alone, tokens would see those after "
            "them. Expected ops.logical_and(layers.causal_mask(T), layers.padding_mask(mask)). "
            f"Received: shape {tuple(mask.shape)}"
        )


def _check_memory(name: str, attends: bool, memory: Tensor | None, cache: LayerCache | None) -> None:
    """A memory that no layer reads is an error, and so is a layer that has none to read."""
    if attends == (memory is not None or cache is not None):
        return
    expected, received = ("memory= or a cross cache", "neither") if attends else ("no memory", "one")
    state = "cross attention" if attends else "no cross attention"
    raise InputError(f"{name} has {state}. Expected: {expected}. Received: {received}")


class _Stack(Flagged):
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

    def _run(
        self,
        x: Tensor,
        per_place: Sequence[dict[str, Any]],
        return_hidden_states: bool,
        return_attention: bool,
        return_cache: bool,
        **shared: Any,
    ) -> Any:
        """All layers in turn; only what was asked for outlives its layer."""
        flags = {"return_attention": return_attention, "return_cache": return_cache}
        states, found = [x], []
        for place, arguments in zip(self.schedule, per_place, strict=True):
            x, more = attended(self.layers[place](x, **arguments, **shared, **flags))
            found.append(more)
            if return_hidden_states:
                states.append(x)
        if self.final_norm is not None:
            x = states[-1] = self.final_norm(x)
        collected = {
            f"{name}s": tuple(more.get(name) for more in found)
            for name in ("attention", "cross_attention", "cache", "cross_cache")
            if any(name in more for more in found)
        }
        if return_hidden_states:
            collected["hidden_states"] = tuple(states)
        return packed(x, return_hidden_states or return_attention or return_cache, **collected)

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
        attention_mask: `True` or 1 attends: `(B, T)` for padding, `(B, T, T)` or `(B, H, T, T)`; axes may be 1.
        bias: Float, added to all attention scores.
        count: Only this many first tokens are wanted; the last layer is not computed for the others.
        return_hidden_states: Gives a dictionary of `output` and `hidden_states`: the input and what each layer gave,
            `(B, T, E)` each, the last one after the final norm.
        return_attention: Likewise with `attentions`, `(B, H, T, T)` a layer.

    Returns:
        `(B, T, E)` after the final norm, or the dictionary.
    """

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotary: RotaryAngles | None = None,
        count: int | None = None,
        training: bool = False,
        return_hidden_states: bool = False,
        return_attention: bool = False,
    ) -> Any:
        """Applies all layers."""
        mask = None if attention_mask is None else head_mask(attention_mask, *x.shape[:2])
        bias = add_biases(mask, bias, x.dtype)
        per_place: list[dict[str, Any]] = [{} for _ in self.schedule]
        if count is not None:
            per_place[-1]["count"] = count
        flags = (return_hidden_states, return_attention, False)
        return self._run(x, per_place, *flags, bias=bias, rotary=rotary, training=training)


@keras.saving.register_keras_serializable(PACKAGE)
class Decoder(_Stack):
    """A stack of `DecoderLayer`s, or of `EncoderLayer`s where there is no memory to attend to.

    Args:
        layers: The layers.
        final_norm: Applied to the last output, where the layers normalize first.
        schedule: As in `Encoder`.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        memory: `(B, M, E)` for cross attention, or `None`.
        attention_mask: `True` attends: `(B, T, S)` or `(B, H, T, S)`; axes may be 1. The caller makes it causal
            (`causal_mask`).
        bias: Float, added to all scores of the self attention.
        memory_mask: `True` or 1 attends: `(B, M)` for padding, `(B, T, M)` or `(B, H, T, M)`.
        caches: One `LayerCache` a layer, or `None`.
        cross_caches: Likewise.
        return_hidden_states: As in `Encoder`.
        return_attention: Likewise; with `cross_attentions` `(B, H, T, M)` a layer too.
        return_cache: Gives a dictionary of `output`, `caches` and `cross_caches`, the updated ones.

    Returns:
        `(B, T, E)` after the final norm, or the dictionary.

    Raises:
        InputError: as in `DecoderLayer`, or another number of caches than of layers.
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
        return_hidden_states: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Any:
        """Applies all layers."""
        _check_causal(attention_mask)
        none = [None] * len(self.schedule)
        own, cross = caches or none, cross_caches or none
        if not len(own) == len(cross) == len(none):
            raise InputError(
                f"There must be one cache a place: {len(none)}. Received: {len(own)} caches, {len(cross)} cross caches"
            )
        reads = [getattr(self.layers[place], "cross_attention", None) is not None for place in self.schedule]
        if memory is not None and not any(reads):
            _check_memory(self.name, False, memory, None)
        mask = None if memory_mask is None else head_mask(memory_mask, x.shape[0])
        remembered = {"memory": memory, "memory_bias": add_biases(mask, None, x.dtype)}
        per_place = [
            {"cache": cache, **({**remembered, "cross_cache": crossed} if attends else {})}
            for cache, crossed, attends in zip(own, cross, reads, strict=True)
        ]
        mask = None if attention_mask is None else head_mask(attention_mask)
        flags = (return_hidden_states, return_attention, return_cache)
        bias = add_biases(mask, bias, x.dtype)
        return self._run(x, per_place, *flags, bias=bias, rotary=rotary, training=training)


def add_biases(mask: Tensor | None, bias: Tensor | None, dtype: str) -> Tensor | None:
    """One float bias from a boolean mask and a float bias, so that each layer adds one tensor and converts none."""
    if mask is None:
        return bias
    masked = mask_to_bias(mask, keras.backend.standardize_dtype(dtype))
    return masked if bias is None else masked + ops.cast(bias, masked.dtype)

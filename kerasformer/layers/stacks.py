"""Stacks of encoder and decoder layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from kerasformer.errors import InputError
from kerasformer.layers.blocks import attended, check_causal, check_memory
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.core import PACKAGE, Flagged, build_once, packed, serialize_part
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.visibility import Visibility, visibility_of


class _Stack(Flagged):
    """Layers one after the other, with an optional final norm; `schedule` lets several steps share a layer."""

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
        arguments: Sequence[dict[str, Any]],
        return_hidden_states: bool,
        return_attention: bool,
        return_cache: bool,
        **shared: Any,
    ) -> Any:
        """Applies all layers in turn, and keeps only the states that were asked for."""
        flags = {"return_attention": return_attention, "return_cache": return_cache}
        states, found = [x], []
        for index, own in zip(self.schedule, arguments, strict=True):
            x, more = attended(self.layers[index](x, **own, **shared, **flags))
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
        layers: The layers; they may differ.
        final_norm: Applied to the last output, where the layers normalize first.
        schedule: Index of the layer for each step; each layer once and in order by default (ALBERT shares them).
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 attends: `(B, T)` for padding, `(B, T, T)` or `(B, H, T, T)`; axes may be 1.
        bias: Float, added to all attention scores.
        visibility: `Visibility` of all layers, optional.
        count: Only this many first tokens are wanted; the last layer is not computed for the others.
        attention_inputs: Further keyword arguments of each attention's call, optional.
        return_hidden_states: Returns a dictionary of `output` and `hidden_states`: the input and the output of each
            layer, `(B, T, E)` each, the last one after the final norm.
        return_attention: Likewise with `attentions`, `(B, H, T, T)` for each layer.

    Returns:
        `(B, T, E)` after the final norm, or the dictionary.
    """

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        visibility: Visibility | None = None,
        count: int | None = None,
        attention_inputs: Mapping[str, Any] | None = None,
        training: bool = False,
        return_hidden_states: bool = False,
        return_attention: bool = False,
    ) -> Any:
        """Applies all layers."""
        visibility = visibility_of(visibility, attention_mask, bias, x, x.shape[1])
        arguments: list[dict[str, Any]] = [{} for _ in self.schedule]
        if count is not None:
            arguments[-1]["count"] = count
        flags = (return_hidden_states, return_attention, False)
        shared: dict[str, Any] = {"visibility": visibility, "attention_inputs": attention_inputs, "training": training}
        return self._run(x, arguments, *flags, **shared)


@keras.saving.register_keras_serializable(PACKAGE)
class Decoder(_Stack):
    """A stack of `DecoderLayer`s, or of `EncoderLayer`s where there is no memory to attend to.

    Args:
        layers: The layers; they may differ, in the shapes of their caches too.
        final_norm: Applied to the last output, where the layers normalize first.
        schedule: As in `Encoder`.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        memory: `(B, M, E)` for cross attention, optional.
        attention_mask: `True` attends: `(B, T, S)` or `(B, H, T, S)`; axes may be 1. The caller makes it causal
            (`causal_mask`).
        bias: Float, added to all scores of the self attention.
        memory_mask: `True` or 1 attends: `(B, M)` for padding, `(B, T, M)` or `(B, H, T, M)`.
        visibility: `Visibility` of the self attention, optional.
        caches: One `LayerCache` for each step of the schedule, optional.
        cross_caches: Likewise.
        attention_inputs: Further keyword arguments of each self attention's call, optional.
        return_hidden_states: As in `Encoder`.
        return_attention: Likewise; with `cross_attentions` `(B, H, T, M)` for each layer too.
        return_cache: Returns a dictionary of `output`, `caches` and `cross_caches`, the updated ones.

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
        visibility: Visibility | None = None,
        caches: Sequence[LayerCache] | None = None,
        cross_caches: Sequence[LayerCache] | None = None,
        attention_inputs: Mapping[str, Any] | None = None,
        training: bool = False,
        return_hidden_states: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Any:
        """Applies all layers."""
        check_causal(attention_mask)
        none = [None] * len(self.schedule)
        own, cross = caches or none, cross_caches or none
        if not len(own) == len(cross) == len(none):
            raise InputError(
                f"There must be one cache for each layer: {len(none)}. "
                f"Received: {len(own)} caches, {len(cross)} cross caches"
            )
        reads = [getattr(self.layers[index], "cross_attention", None) is not None for index in self.schedule]
        if memory is not None and not any(reads):
            check_memory(self.name, False, memory, None)
        crossed = {"memory": memory, "memory_visibility": visibility_of(None, memory_mask, None, x, None)}
        arguments = [
            {"cache": cache, **({**crossed, "cross_cache": cross_cache} if attends else {})}
            for cache, cross_cache, attends in zip(own, cross, reads, strict=True)
        ]
        visibility = visibility_of(visibility, attention_mask, bias, x, None)
        flags = (return_hidden_states, return_attention, return_cache)
        shared: dict[str, Any] = {"visibility": visibility, "attention_inputs": attention_inputs, "training": training}
        return self._run(x, arguments, *flags, **shared)

    def cache_shapes(self, batch: Any, length: Any) -> list[tuple[Any, ...]]:
        """Shape `(B, G, S, D)` of the keys (and of the values) of each layer's self attention.

        Args:
            batch: `B`, a number or a name.
            length: `S`, likewise. Layers with a sliding window have as many slots as others: engines take back guessed
                tokens, and pad the last part of a prompt, which would overwrite the older tokens of a `RollingCache`.
        """
        specs = [self.layers[index].attention.spec for index in self.schedule]
        return [(batch, spec.num_key_value_heads, length, spec.head_dim) for spec in specs]

    def memory_shapes(self, batch: Any, length: Any) -> list[tuple[Any, ...]]:
        """Shape `(B, G, M, D)` of the keys (and of the values) of each layer's cross attention."""
        specs = [self.layers[index].cross_attention.spec for index in self.schedule]
        return [(batch, spec.num_key_value_heads, length, spec.head_dim) for spec in specs]

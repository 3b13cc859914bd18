"""Stacks of encoder and decoder layers.

Called by the backbones (`models.decoder`, `models.encoder`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import keras

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.blocks import check_memory, decoder_visibility, split_output
from kerasformer.layers.cache import CacheSpec, LayerCache
from kerasformer.layers.core import PACKAGE, Configured, OptionalOutputs, build_once, packed
from kerasformer.layers.layer_types import LayerArguments, LayerOptions, Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.visibility import Visibility, visibility_of


class _Stack(Configured, OptionalOutputs):
    """Base of stacks: layers applied in sequence, with an optional final norm; `schedule` can repeat layers."""

    def __init__(
        self,
        layers: Sequence[keras.layers.Layer],
        final_norm: keras.layers.Layer | None = None,
        schedule: Sequence[int] | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.layers = list(layers)
        self.final_norm = final_norm
        self.schedule = list(range(len(self.layers))) if schedule is None else [int(i) for i in schedule]
        if not all(0 <= i < len(self.layers) for i in self.schedule):
            raise InputError(
                f"schedule must contain indices of layers, 0 to {len(self.layers) - 1}. Received: schedule={schedule}"
            )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights of all layers for inputs `(B, T, E)`."""
        for layer in self.layers:
            build_once(layer, input_shape)
        if self.final_norm is not None:
            build_once(self.final_norm, input_shape)

    def _run(
        self,
        x: Tensor,
        arguments: Sequence[LayerArguments],
        return_hidden_states: bool,
        return_attention: bool,
        return_cache: bool,
        **shared: object,
    ) -> Tensor | Outputs:
        """Applies all layers in sequence and collects the requested states."""
        flags = {"return_attention": return_attention, "return_cache": return_cache}
        states, results = [x], []
        for index, layer_arguments in zip(self.schedule, arguments, strict=True):
            x, result = split_output(primitives.layer(self.layers[index], x, {**layer_arguments, **shared, **flags}))
            results.append(result)
            if return_hidden_states:
                states.append(x)
        if self.final_norm is not None:
            x = states[-1] = self.final_norm(x)
        collected = {
            f"{name}s": tuple(result.get(name) for result in results)
            for name in ("attention", "cross_attention", "cache", "cross_cache")
            if any(name in result for result in results)
        }
        if return_hidden_states:
            collected["hidden_states"] = tuple(states)
        return packed(x, return_hidden_states or return_attention or return_cache, **collected)


@keras.saving.register_keras_serializable(PACKAGE)
class Encoder(_Stack):
    """A stack of encoder layers.

    Args:
        layers: The layers; they may differ.
        final_norm: Norm of the output of the last layer, for layers that do not normalize it; optional.
        schedule: Indices of the layers in the order in which they are applied, which may repeat (ALBERT); all layers in
            order by default.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 attends: `(B, T)` for padding, `(B, T, T)` or `(B, H, T, T)`, where axes may have
            size 1.
        bias: Added to the scores of all layers, float, broadcastable to `(B, H, T, T)`; optional.
        visibility: `Visibility` of all layers, optional.
        count: Number of first tokens to compute in the last layer, all by default.
        slots: Slot of the only token of each row to compute in the last layer, as in `EncoderLayer`; optional.
        attention_inputs: Further keyword arguments of each attention's call, optional.
        return_hidden_states: Returns a dictionary of `output` and `hidden_states`: the input of the stack and the
            output of each layer, `(B, T, E)` each, the last one after the final norm.
        return_attention: Returns a dictionary of `output` and `attentions`, `(B, H, T, T)` for each layer.

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
        slots: Tensor | None = None,
        attention_inputs: Mapping[str, Tensor] | None = None,
        training: bool = False,
        return_hidden_states: bool = False,
        return_attention: bool = False,
    ) -> Tensor | Outputs:
        """Applies all layers."""
        visibility = visibility_of(visibility, attention_mask, bias, x, x.shape[1])
        arguments: list[LayerArguments] = [{} for _ in self.schedule]
        if count is not None:
            arguments[-1]["count"] = count
        if slots is not None:
            arguments[-1]["slots"] = slots
        flags = (return_hidden_states, return_attention, False)
        shared: LayerArguments = {"visibility": visibility, "attention_inputs": attention_inputs, "training": training}
        return self._run(x, arguments, *flags, **shared)


@keras.saving.register_keras_serializable(PACKAGE)
class Decoder(_Stack):
    """A stack of decoder layers, or of encoder layers if there is no memory to attend to.

    It is causal, unless the mask or the visibility of a call specifies otherwise.

    Args:
        layers: The layers; they may differ, also in the shapes of their caches.
        final_norm: Norm of the output of the last layer, for layers that do not normalize it; optional.
        schedule: As in `Encoder`.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        memory: `(B, M, E)` for cross attention, optional.
        attention_mask: `True` or 1 attends: `(B, S)` for padding, or another mask with a row for all queries, is
            combined with the causal mask; `(B, T, S)` or `(B, H, T, S)` with a row for each query replaces it.
        bias: Added to the scores of all self attention, float, broadcastable to `(B, H, T, S)`; optional.
        memory_mask: `True` or 1 attends: `(B, M)` for padding, `(B, T, M)` or `(B, H, T, M)`.
        visibility: `Visibility` of the self attention, causal unless it has `causal=False`; optional.
        caches: One `LayerCache` for each entry of the schedule, as `cache_specs` declares it; optional.
        cross_caches: One `LayerCache` of the cross attention for each entry of the schedule, optional.
        attention_inputs: Further keyword arguments of each self attention's call, optional.
        return_hidden_states: As in `Encoder`.
        return_attention: As in `Encoder`, also with `cross_attentions`, `(B, H, T, M)` for each layer; `None` for a
            layer without attention weights, such as a convolution.
        return_cache: Returns a dictionary of `output`, `caches` and `cross_caches`, the updated caches.

    Returns:
        `(B, T, E)` after the final norm, or the dictionary.

    Raises:
        InputError: as in `DecoderLayer`, or the number of caches is not that of the entries of the schedule.
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
        attention_inputs: Mapping[str, Tensor] | None = None,
        training: bool = False,
        return_hidden_states: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Tensor | Outputs:
        """Applies all layers."""
        none = [None] * len(self.schedule)
        self_caches, cross = caches or none, cross_caches or none
        if not len(self_caches) == len(cross) == len(none):
            raise InputError(
                f"There must be one cache for each layer: {len(none)}. "
                f"Received: {len(self_caches)} caches, {len(cross)} cross caches"
            )
        attends = [getattr(self.layers[index], "cross_attention", None) is not None for index in self.schedule]
        if memory is not None and not any(attends):
            check_memory(self.name, False, memory, None)
        memory_inputs = {"memory": memory, "memory_visibility": visibility_of(None, memory_mask, None, x, None)}
        arguments = [
            {"cache": cache, **({**memory_inputs, "cross_cache": cross_cache} if has_cross_attention else {})}
            for cache, cross_cache, has_cross_attention in zip(self_caches, cross, attends, strict=True)
        ]
        visibility = decoder_visibility(visibility, attention_mask, bias, x, self_caches)
        flags = (return_hidden_states, return_attention, return_cache)
        shared: LayerArguments = {"visibility": visibility, "attention_inputs": attention_inputs, "training": training}
        return self._run(x, arguments, *flags, **shared)

    def cache_specs(self) -> list[CacheSpec]:
        """Returns what each entry of the schedule keeps of earlier tokens, as its self attention declares it."""
        return [self.layers[index].attention.cache_spec for index in self.schedule]

    def memory_specs(self) -> list[CacheSpec]:
        """Returns what the cross attention of each entry of the schedule keeps of the memory."""
        return [self.layers[index].cross_attention.cache_spec for index in self.schedule]

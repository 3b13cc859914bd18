"""Attention and a recurrent layer side by side, in the place of attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Unpack

import keras
from keras import ops

from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.cache import CacheSpec, ShiftingCache
from kerasformer.layers.core import PACKAGE, Composite, Configured, build_once, packed, unpacked
from kerasformer.layers.layer_types import LayerOptions, Outputs
from kerasformer.layers.recurrent_layer import RecurrentLayer
from kerasformer.layers.tensor import Tensor, scaled
from kerasformer.layers.visibility import Visibility, visibility_of


@keras.saving.register_keras_serializable(PACKAGE)
class ParallelMixer(Configured, Composite):
    """Attention and a recurrent layer with the same input, whose outputs are added (Falcon-H1).

    Its cache has the keys and values of the attention. The states of the recurrent layer are those of this one, and the
    last inputs of its convolution, `(B, 1, kernel_size - 1, C)`, are a further state.

    Args:
        attention: The attention.
        recurrent: The recurrent layer.
        attention_input_scale: Factor of the input of the attention.
        attention_scale: Factor of its output.
        recurrent_scale: Factor of the output of the recurrent layer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 for real tokens, `(B, T)`, or `(B, S)` with a cache; optional.
        visibility: `Visibility` shared by all layers of a stack, which is causal; optional.
        cache: `LayerCache` as `cache_spec` declares it, optional.
        return_attention: Returns a dictionary of `output` and `attention`, the weights `(B, H, T, S)`.
        return_cache: Returns a dictionary of `output` and `cache`, the updated cache.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: in a call, as `TokenMixer`.

    Reference: Zuo et al. 2025, "Falcon-H1: A Family of Hybrid-Head Language Models Redefining Efficiency and
    Performance", arXiv:2507.22448, section 2.1.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        recurrent: RecurrentLayer,
        attention_input_scale: float = 1.0,
        attention_scale: float = 1.0,
        recurrent_scale: float = 1.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.attention, self.recurrent = attention, recurrent
        self.attention_input_scale, self.attention_scale = attention_input_scale, attention_scale
        self.recurrent_scale = recurrent_scale

    @property
    def cache_spec(self) -> CacheSpec:
        """The keys and values of the attention, and all that the recurrent layer keeps as states."""
        spec = self.recurrent.cache_spec
        inputs = {name: (spec.num_heads, self.recurrent.kernel_size - 1, spec.size) for name in spec.tensors}
        return replace(self.attention.cache_spec, states={**inputs, **spec.states})

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        for layer in (self.attention, self.recurrent):
            build_once(layer, input_shape)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        visibility: Visibility | None = None,
        cache: Any = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Tensor | Outputs:
        """Applies the layer."""
        length = ops.shape(x)[1]
        visibility = visibility_of(visibility, attention_mask, None, x, None if cache is not None else x.shape[1])
        visibility = visibility.causal_unless_specified(length, [cache])
        state = entries = None
        if cache is not None:
            entries = cache.entries  # as attention knows them, for which formats have operators
            inputs, *content = cache.states
            state = StateCache((inputs,), tuple(content), visibility.real_queries(length))
        mixed = unpacked(self.recurrent(x, visibility=visibility, cache=state, return_cache=True))
        attended = unpacked(
            self.attention(
                scaled(x, self.attention_input_scale),
                visibility=visibility,
                cache=entries,
                training=training,
                return_attention=return_attention,
                return_cache=True,
            )
        )
        if cache is not None:
            state = mixed["cache"]
            cache = cache.with_entries(attended["cache"]).with_states(*state.tensors, *state.states)
        output = scaled(mixed["output"], self.recurrent_scale) + scaled(attended["output"], self.attention_scale)
        return packed(
            output,
            return_attention or return_cache,
            attention=attended.get("attention"),
            cache=cache if return_cache else None,
        )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to itself."""
        return input_shape


@dataclass(frozen=True)
class StateCache(ShiftingCache):
    """Cache of a recurrent layer whose convolution keeps its last inputs as a state, see `ParallelMixer`.

    Attributes:
        tensors: Inputs of the convolution at the last tokens, `(B, 1, kernel_size - 1, C)`.
        content: States of the recurrent layer, `(B, H, K, V)`.
        real: `True` for tokens among those that are added, `(B or 1, T)`; `None` if there is no padding.
    """

    content: tuple[Tensor, ...] = ()
    real: Tensor | None = None

    @property
    def states(self) -> tuple[Tensor, ...]:
        """See `LayerCache.states`."""
        return self.content

    def with_states(self, *states: Tensor) -> StateCache:
        """See `LayerCache.with_states`."""
        return replace(self, content=states)

    def update(self, *entries: Tensor) -> tuple[tuple[Tensor, ...], StateCache]:
        """Keeps the last inputs up to the last token: padding after it is overwritten by the next part of the text."""
        (joined,), shifted = super().update(*entries)
        if self.real is None:
            return (joined,), replace(self, tensors=shifted.tensors)
        length, size = ops.shape(self.real)[1], self.tensors[0].shape[2]
        end = ops.max(ops.where(self.real, ops.arange(1, length + 1, dtype="int32"), 0), axis=1)
        kept = ops.reshape(end, (-1, 1, 1, 1)) + ops.reshape(ops.arange(size, dtype="int32"), (1, 1, size, 1))
        chosen = ops.equal(kept, ops.arange(size + length, dtype="int32"))  # for each row, without a gather
        return (joined,), replace(self, tensors=(ops.matmul(ops.cast(chosen, joined.dtype), joined),))

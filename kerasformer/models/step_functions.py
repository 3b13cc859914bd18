"""The functions of tensors that a step of a Keras model runs, which are compiled for each size of its caches.

Shape letters: `B` batch, `T` tokens of one call, `S` slots of a cache, `M` length of the encoded text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from kerasformer.layers import FixedCache, LayerCache, Visibility, cache_of_slots
from kerasformer.layers.tensor import Tensor, TensorFunction
from kerasformer.models.compilation import compiled


def step_functions(model: keras.Model, jit_compile: bool, num_slots: int) -> dict[str, TensorFunction]:
    """Compiles the steps of a model; `num_slots` is the number of cache slots of layers without a window."""
    if model.is_encoder_decoder:
        functions = _encoder_decoder_steps(model, num_slots)
    else:
        decode = _decoder_step(model, num_slots)
        read = _decoder_step(model, num_slots, causal=not model.config.prefix_lm)
        # A prompt needs no logits, which take much time and memory if the vocabulary is large.
        functions = {"decode": decode, "read": lambda *arguments: read(*arguments)[1]}
    functions["write"] = _greedy(functions["decode"], num_slots)
    return {name: compiled(function, model, jit_compile) for name, function in functions.items()}


def _decoder_step(model: keras.Model, num_slots: int, causal: bool = True) -> TensorFunction:
    """Returns the function that reads tokens into the caches, which all see each other if it is not `causal`."""

    def decode(
        tokens: Tensor, index: Tensor, caches: Sequence[tuple[Tensor, Tensor]], starts: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        slots = ops.arange(tokens.shape[1], dtype="int32") + index
        positions = ops.maximum(ops.reshape(slots, (1, -1)) - ops.reshape(starts, (-1, 1)), 0)
        keys = ops.arange(num_slots, dtype="int32")
        # Slots after the tokens are empty.
        used = None if causal else ops.expand_dims(keys < index + tokens.shape[1], 0)
        visibility = Visibility(
            causal=causal, query_slots=slots, key_slots=keys, key_mask=used, positions=positions, starts=starts
        )
        logits, new = model.decode(tokens, visibility, _opened(model, caches, index, num_slots))
        return logits, _tensors(new)

    return decode


def _encoder_decoder_steps(model: keras.Model, num_slots: int) -> dict[str, TensorFunction]:
    def encode(ids: Tensor, mask: Tensor) -> list[tuple[Tensor, Tensor]]:
        return model.project_memory(model.encode(ids, mask))

    def decode(
        tokens: Tensor,
        index: Tensor,
        caches: Sequence[tuple[Tensor, Tensor]],
        memory_mask: Tensor,
        cross: Sequence[tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        slots = ops.arange(tokens.shape[1], dtype="int32") + index
        keys = ops.arange(num_slots, dtype="int32")
        visibility = Visibility(causal=True, query_slots=slots, key_slots=keys)
        fixed = [FixedCache(tuple(tensors)) for tensors in cross]
        logits, new, _ = model.decode(tokens, visibility, _opened(model, caches, index, num_slots), memory_mask, fixed)
        return logits, _tensors(new)

    return {"encode": encode, "decode": decode}


def _greedy(decode: TensorFunction, num_slots: int) -> TensorFunction:
    """Returns a function that generates up to `count` tokens after the given ones, until all rows have ended.

    One call for many tokens saves the time of a call, and the caches are updated in place, without a copy.
    """

    def write(
        tokens: Tensor,
        index: Tensor,
        count: Tensor,
        ended: Tensor,
        ends: Tensor,
        caches: Sequence[tuple[Tensor, Tensor]],
        *context: Tensor,
    ) -> tuple[Tensor, ...]:
        def continues(size: Tensor, ended: Tensor, *_: Tensor) -> Tensor:
            return ops.logical_and(size < count, ops.logical_not(ops.all(ended)))

        def add(
            size: Tensor,
            ended: Tensor,
            tokens: Tensor,
            ids: Tensor,
            logits: Tensor,
            caches: Sequence[tuple[Tensor, Tensor]],
        ) -> tuple[Tensor, ...]:
            scores, caches = decode(tokens, index + size, caches, *context)
            scores = ops.cast(scores[:, -1], "float32")
            tokens = ops.cast(ops.argmax(scores, axis=-1, keepdims=True), "int32")
            ended = ops.logical_or(ended, ops.any(ops.equal(tokens, ends), axis=-1))
            ids = ops.slice_update(ids, (0, size), tokens)
            logits = ops.slice_update(logits, (0, size), ops.max(scores, axis=-1, keepdims=True))
            return size + 1, ended, tokens, ids, logits, caches

        shape = ops.shape(tokens)[0], num_slots
        numbers = ops.zeros(shape, "int32"), ops.zeros(shape, "float32")
        size, _, _, ids, logits, caches = ops.while_loop(
            continues, add, (ops.zeros((), "int32"), ended, tokens, *numbers, caches)
        )
        return ids, logits, size, caches

    return write


def _opened(model: keras.Model, caches: Sequence[Sequence[Tensor]], index: Tensor, num_slots: int) -> list[LayerCache]:
    """Returns caches whose next token has the slot `index`."""
    layers = zip(model.cache_specs(), caches, strict=True)
    return [spec.opened(tensors, lambda slots: cache_of_slots(slots, index, num_slots)) for spec, tensors in layers]


def _tensors(caches: Sequence[Any]) -> list[tuple[Tensor, ...]]:
    return [cache.tensors for cache in caches]

"""Which functions of a model are exported, with their inputs, outputs and axes.

The names and shapes are those that foreign runtimes expect. TFLite: int32 and float32, static shapes, batch 1, caches
`(1, H, S, D)` under one name as input and output. ONNX: Hugging Face's names, int64 ids, a batch and lengths that are
free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.errors import InputError
from kerasformer.export.functions import Function
from kerasformer.layers import FixedCache, GrowingCache, StaticCache, causal_mask, padding_mask

Infos = dict[str, TensorInfo]

ENCODER_LENGTHS = (32, 128, 512)
PREFILL_LENGTHS = (8, 64)
# A step over a cache of a thousand positions takes two or three times as long as one over its first few hundred.
DECODE_WINDOWS = (128, 256)


def lengths_up_to(limit: int | None, wanted: Sequence[int] = ENCODER_LENGTHS) -> tuple[int, ...]:
    """The lengths below the limit, and the limit itself if it is below the longest one wanted."""
    limit = max(wanted) if limit is None else min(limit, max(wanted))
    return tuple(sorted({*(length for length in wanted if length < limit), limit}))


def tflite_functions(
    model: Any, capacity: int | None, encoder_capacity: int | None, lengths: Sequence[int]
) -> list[Function]:
    """The signatures of a TFLite file.

    Args:
        model: Any model of the zoo.
        capacity: Positions of the decoder's cache; a multiple of the longest prefill.
        encoder_capacity: Longest text that an encoder-decoder reads.
        lengths: Of texts that are read at once.
    """
    if not model.generates:
        return [_forward(model, f"forward_{n}", 1, n, "int32", model.input_names) for n in lengths]
    if capacity is None:
        raise InputError("A model that generates needs a capacity. Received: capacity=None")
    if not model.is_encoder_decoder:
        prefills = [n for n in PREFILL_LENGTHS if n <= capacity]
        steps = [_static_step(model, f"prefill_{n}", n, capacity, logits=False) for n in prefills]
        windows = [n for n in DECODE_WINDOWS if n < capacity]
        steps += [_static_step(model, f"decode_{n}", 1, capacity, logits=True, window=n) for n in windows]
        return [*steps, _static_step(model, "decode", 1, capacity, logits=True)]
    if encoder_capacity is None:
        raise InputError("An encoder-decoder needs an encoder capacity. Received: encoder_capacity=None")
    encoders = [_static_encode(model, n, encoder_capacity) for n in lengths]
    windows = [n for n in DECODE_WINDOWS if n < max(capacity, encoder_capacity)]
    steps = [_static_step_with_memory(model, f"decode_{n}", capacity, encoder_capacity, n) for n in windows]
    return [*encoders, *steps, _static_step_with_memory(model, "decode", capacity, encoder_capacity)]


def onnx_functions(model: Any) -> list[Function]:
    """The graphs of an ONNX folder, each a file of that name."""
    if not model.generates:
        return [_forward(model, "model", "batch_size", "sequence_length", "int64", model.input_names)]
    if not model.is_encoder_decoder:
        return [_growing_step(model)]
    return [_encoder(model), _growing_step_with_memory(model)]


def _forward(model: Any, name: str, batch: int | str, length: int | str, dtype: str, names: Sequence[str]) -> Function:
    """A text that is read at once."""

    def call(**inputs: Any) -> dict[str, Any]:
        return model.named(model(inputs, training=False))

    inputs = {key: TensorInfo((batch, length), dtype) for key in names}
    return Function(name, inputs, _output_infos(call, inputs), call)


def _output_infos(call: Callable[..., dict[str, Any]], inputs: Infos) -> Infos:
    """Shapes of the results; what Keras does not know is the batch, then the length."""
    free = list(dict.fromkeys(dim for info in inputs.values() for dim in info.shape if isinstance(dim, str)))
    specs = {
        key: keras.KerasTensor([None if isinstance(dim, str) else dim for dim in info.shape], dtype="int32")
        for key, info in inputs.items()
    }
    outputs = call(**specs)
    return {
        key: TensorInfo(tuple(free[axis] if dim is None else dim for axis, dim in enumerate(spec.shape)), "float32")
        for key, spec in outputs.items()
    }


# TFLite: caches of fixed size, written in place.


def _static_caches(model: Any, capacity: int) -> Infos:
    info = TensorInfo(tuple(model.cache_shape(1, capacity)), "float32")
    return {f"kv_cache_{kind}_{i}": info for i in range(model.num_cache_layers) for kind in "kv"}


def _taken(inputs: dict[str, Any], prefix: str, count: int) -> list[tuple[Any, Any]]:
    return [(inputs[f"{prefix}_k_{i}"], inputs[f"{prefix}_v_{i}"]) for i in range(count)]


def _given(prefix: str, caches: Sequence[Any]) -> dict[str, Any]:
    return {
        f"{prefix}_{kind}_{i}": tensor
        for i, cache in enumerate(caches)
        for kind, tensor in (("k", cache.key), ("v", cache.value))
    }


def _seen(input_pos: Any, count: int, capacity: int) -> Any:
    """Each token sees the positions up to its own: boolean `(1, 1, T, S)`."""
    places = ops.reshape(ops.arange(capacity, dtype="int32"), (1, 1, 1, capacity))
    return places <= ops.reshape(input_pos, (1, 1, count, 1))


def _static_step(model: Any, name: str, count: int, capacity: int, logits: bool, window: int | None = None) -> Function:
    """Some tokens of a decoder; only the last step needs logits. Only the first `window` positions are seen."""

    def call(tokens: Any, input_pos: Any, **inputs: Any) -> dict[str, Any]:
        taken = _taken(inputs, "kv_cache", model.num_cache_layers)
        caches = [StaticCache(k, v, input_pos[0], window=window) for k, v in taken]
        positions = ops.reshape(input_pos, (1, count))
        scores, new = model.decode(tokens, positions, _seen(input_pos, count, window or capacity), caches)
        outputs = _given("kv_cache", new)
        return {**outputs, "logits": scores} if logits else outputs

    cached = _static_caches(model, capacity)
    inputs = {"tokens": TensorInfo((1, count), "int32"), "input_pos": TensorInfo((count,), "int32"), **cached}
    scores = {"logits": TensorInfo((1, count, model.config.vocab_size), "float32")} if logits else {}
    return Function(name, inputs, {**cached, **scores}, call)


def _cross_caches(model: Any, encoder_capacity: int) -> Infos:
    info = TensorInfo(tuple(model.cache_shape(1, encoder_capacity)), "float32")
    return {f"cross_{kind}_{i}": info for i in range(model.num_cache_layers) for kind in "kv"}


def _static_encode(model: Any, length: int, encoder_capacity: int) -> Function:
    """A text, encoded and projected to what the decoder's layers attend to, padded to the full capacity."""

    def call(input_ids: Any, attention_mask: Any) -> dict[str, Any]:
        memory = model.project_memory(model.encode(input_ids, attention_mask))
        room = ((0, 0), (0, 0), (0, encoder_capacity - length), (0, 0))
        padded = [FixedCache(*(ops.pad(t, room) if encoder_capacity > length else t for t in pair)) for pair in memory]
        return _given("cross", padded)

    inputs = {name: TensorInfo((1, length), "int32") for name in ("input_ids", "attention_mask")}
    return Function(f"encode_{length}", inputs, _cross_caches(model, encoder_capacity), call)


def _static_step_with_memory(
    model: Any, name: str, capacity: int, encoder_capacity: int, window: int | None = None
) -> Function:
    """One token of a decoder that attends to an encoded text; of both, only the first `window` positions are seen."""
    own, other = min(window or capacity, capacity), min(window or encoder_capacity, encoder_capacity)

    def call(tokens: Any, input_pos: Any, encoder_mask: Any, **inputs: Any) -> dict[str, Any]:
        count = model.num_cache_layers
        window = own if own < capacity else None
        caches = [StaticCache(k, v, input_pos[0], window=window) for k, v in _taken(inputs, "kv_cache", count)]
        cross = [FixedCache(*(t[:, :, :other] for t in pair)) for pair in _taken(inputs, "cross", count)]
        seen, memory_mask = _seen(input_pos, 1, own), padding_mask(encoder_mask[:, :other])
        scores, new, _ = model.decode(tokens, input_pos, seen, caches, memory_mask, cross)
        return {**_given("kv_cache", new), "logits": scores}

    cached = _static_caches(model, capacity)
    inputs = {
        "tokens": TensorInfo((1, 1), "int32"),
        "input_pos": TensorInfo((1,), "int32"),
        "encoder_mask": TensorInfo((1, encoder_capacity), "int32"),
        **cached,
        **_cross_caches(model, encoder_capacity),
    }
    outputs = {**cached, "logits": TensorInfo((1, 1, model.config.vocab_size), "float32")}
    return Function(name, inputs, outputs, call)


# ONNX: caches that grow.


def _growing_caches(model: Any, prefix: str, parts: dict[str, str]) -> Infos:
    """Infos of all caches; `parts` names the kinds of a layer's caches, each with its length."""
    infos: Infos = {}
    for i in range(model.num_cache_layers):
        for part, length in parts.items():
            shape = tuple(model.cache_shape("batch_size", length))
            infos |= {f"{prefix}.{i}{part}.{kind}": TensorInfo(shape, "float32") for kind in ("key", "value")}
    return infos


def _grown(part: str, caches: Sequence[Any]) -> dict[str, Any]:
    return {
        f"present.{i}{part}.{kind}": tensor
        for i, cache in enumerate(caches)
        for kind, tensor in (("key", cache.key), ("value", cache.value))
    }


def _past(inputs: dict[str, Any], part: str, count: int) -> list[GrowingCache]:
    names = [f"past_key_values.{i}{part}" for i in range(count)]
    return [GrowingCache(inputs[f"{name}.key"], inputs[f"{name}.value"]) for name in names]


def _growing_step(model: Any) -> Function:
    """Some tokens of a decoder, with all before them in the past."""

    def call(input_ids: Any, attention_mask: Any, position_ids: Any, **past: Any) -> dict[str, Any]:
        tokens, positions, real = (ops.cast(x, "int32") for x in (input_ids, position_ids, attention_mask))
        mask = ops.logical_and(causal_mask(ops.shape(tokens)[1], ops.shape(real)[1]), padding_mask(real))
        caches = _past(past, "", model.num_cache_layers)
        scores, new = model.decode(tokens, positions, mask, caches)
        return {"logits": scores, **_grown("", new)}

    inputs = {
        "input_ids": TensorInfo(("batch_size", "sequence_length"), "int64"),
        "attention_mask": TensorInfo(("batch_size", "total_sequence_length"), "int64"),
        "position_ids": TensorInfo(("batch_size", "sequence_length"), "int64"),
        **_growing_caches(model, "past_key_values", {"": "past_sequence_length"}),
    }
    outputs = {
        "logits": TensorInfo(("batch_size", "sequence_length", model.config.vocab_size), "float32"),
        **_growing_caches(model, "present", {"": "total_sequence_length"}),
    }
    return Function("model", inputs, outputs, call)


def _encoder(model: Any) -> Function:
    def call(input_ids: Any, attention_mask: Any) -> dict[str, Any]:
        ids, mask = ops.cast(input_ids, "int32"), ops.cast(attention_mask, "int32")
        return {"last_hidden_state": model.encode(ids, mask)}

    shape = ("batch_size", "encoder_sequence_length")
    inputs = {name: TensorInfo(shape, "int64") for name in ("input_ids", "attention_mask")}
    outputs = {"last_hidden_state": TensorInfo((*shape, model.config.hidden_dim), "float32")}
    return Function("encoder_model", inputs, outputs, call)


def _growing_step_with_memory(model: Any) -> Function:
    """Some tokens of a decoder that attends to an encoded text.

    One graph without a branch serves all steps: keys and values are computed for those rows of the encoded text that
    the cross caches lack, which is all of them in the first step and none later.
    """

    def call(encoder_attention_mask: Any, input_ids: Any, encoder_hidden_states: Any, **past: Any) -> dict[str, Any]:
        tokens, real = ops.cast(input_ids, "int32"), ops.cast(encoder_attention_mask, "int32")
        caches = _past(past, ".decoder", model.num_cache_layers)
        cross = _past(past, ".encoder", model.num_cache_layers)
        count, before = ops.shape(tokens)[1], ops.shape(caches[0].key)[2]
        positions = ops.arange(count, dtype="int32") + before
        scores, new, new_cross = model.decode(
            tokens,
            positions,
            causal_mask(count, before + count),
            caches,
            padding_mask(real),
            cross,
            memory=encoder_hidden_states[:, ops.shape(cross[0].key)[2] :],
        )
        return {"logits": scores, **_grown(".decoder", new), **_grown(".encoder", new_cross)}

    parts = {".decoder": "past_decoder_sequence_length", ".encoder": "past_encoder_sequence_length"}
    now = {".decoder": "present_decoder_sequence_length", ".encoder": "encoder_sequence_length"}
    text = ("batch_size", "encoder_sequence_length")
    inputs = {
        "encoder_attention_mask": TensorInfo(text, "int64"),
        "input_ids": TensorInfo(("batch_size", "decoder_sequence_length"), "int64"),
        "encoder_hidden_states": TensorInfo((*text, model.config.hidden_dim), "float32"),
        **_growing_caches(model, "past_key_values", parts),
    }
    outputs = {
        "logits": TensorInfo(("batch_size", "decoder_sequence_length", model.config.vocab_size), "float32"),
        **_growing_caches(model, "present", now),
    }
    return Function("decoder_model_merged", inputs, outputs, call)

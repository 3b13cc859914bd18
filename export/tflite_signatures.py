"""The functions of a model that a TFLite file has: int32 and float32, static shapes, batch 1, several lengths.

Names and shapes are those that foreign runtimes expect; a cache is `(1, H, S, D)`, under one name as input and output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.errors import InputError
from kerasformer.export.functions import Function, Infos, forward
from kerasformer.layers import FixedCache, StaticCache, padding_mask

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
        return [forward(model, f"forward_{n}", 1, n, "int32") for n in lengths]
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

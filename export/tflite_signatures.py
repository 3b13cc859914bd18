"""The functions of a model that a TFLite file has: int32 and float32, static shapes, several lengths.

Names and shapes are those that foreign runtimes expect; a cache is `(1, H, S, D)`, under one name as input and output.
Steps of several rows at once have a cache for each row, with the row in its name: a row keeps its own position, and
its cache serves steps alone as well as steps together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.errors import InputError
from kerasformer.export.functions import Function, Infos, forward
from kerasformer.layers import FixedCache, LayerCache, RowCaches, StaticCache, padding_mask

ENCODER_LENGTHS = (16, 32, 64, 128, 256, 512)
PREFILL_LENGTHS = (8, 64)
# A step over a cache of a thousand positions takes two or three times as long as one over its first few hundred.
DECODE_WINDOWS = (128, 256)
# A step of several rows reads every weight once. Each takes some megabytes of a loaded model's memory, and over a long
# window the caches, which are read row by row, outweigh the weights: there a step of eight saves a tenth.
DECODE_ROWS = (8,)


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
        prefills = [_static_prefill(model, n, capacity) for n in PREFILL_LENGTHS if n <= capacity]
        shapes = _step_shapes(capacity)
        return [*prefills, *(_static_step(model, rows, capacity, window) for rows, window in shapes)]
    if encoder_capacity is None:
        raise InputError("An encoder-decoder needs an encoder capacity. Received: encoder_capacity=None")
    encoders = [_static_encode(model, n, encoder_capacity) for n in lengths]
    shapes = _step_shapes(max(capacity, encoder_capacity))
    capacities = capacity, encoder_capacity
    return [*encoders, *(_static_step_with_memory(model, rows, *capacities, window) for rows, window in shapes)]


def _step_shapes(capacity: int) -> list[tuple[int, int | None]]:
    """Rows and window of every step; the last one is the plain `decode`."""
    windows = [n for n in DECODE_WINDOWS if n < capacity]
    together: list[int | None] = [*windows] if len(windows) == len(DECODE_WINDOWS) else [*windows, None]
    return [*((rows, window) for rows in DECODE_ROWS for window in together), *((1, n) for n in windows), (1, None)]


def _step_name(rows: int, window: int | None) -> str:
    return "decode" + (f"_rows_{rows}" if rows > 1 else "") + (f"_{window}" if window else "")


def _by_row(name: str, rows: int) -> list[str]:
    """Names of a tensor that every row has."""
    return [name] if rows == 1 else [f"{name}_row_{row}" for row in range(rows)]


def _infos(model: Any, prefix: str, capacity: int, rows: int = 1) -> Infos:
    """Caches of all layers, under their names."""
    info = TensorInfo(tuple(model.cache_shape(1, capacity)), "float32")
    names = [f"{prefix}_{kind}_{i}" for i in range(model.num_cache_layers) for kind in "kv"]
    return {each: info for name in names for each in _by_row(name, rows)}


def _taken(model: Any, inputs: dict[str, Any], prefix: str, rows: int, make: Callable[..., LayerCache]) -> list[Any]:
    """The cache of each layer; `make` gets a row's number, keys and values."""
    layers = []
    for i in range(model.num_cache_layers):
        names = zip(_by_row(f"{prefix}_k_{i}", rows), _by_row(f"{prefix}_v_{i}", rows), strict=True)
        caches = tuple(make(row, inputs[key], inputs[value]) for row, (key, value) in enumerate(names))
        layers.append(RowCaches(caches) if rows > 1 else caches[0])
    return layers


def _given(prefix: str, caches: Sequence[Any]) -> dict[str, Any]:
    """The tensors of all layers' caches, under their names."""
    given: dict[str, Any] = {}
    for i, layer in enumerate(caches):
        rows: Sequence[Any] = layer.rows if isinstance(layer, RowCaches) else (layer,)
        given.update(zip(_by_row(f"{prefix}_k_{i}", len(rows)), (cache.key for cache in rows), strict=True))
        given.update(zip(_by_row(f"{prefix}_v_{i}", len(rows)), (cache.value for cache in rows), strict=True))
    return given


def _seen(input_pos: Any, capacity: int) -> Any:
    """Each place sees the positions up to its own: boolean `(N, S)`."""
    return ops.expand_dims(ops.arange(capacity, dtype="int32"), 0) <= ops.expand_dims(input_pos, 1)


def _static_prefill(model: Any, count: int, capacity: int) -> Function:
    """The next tokens of one prompt, into the caches; nobody needs their logits."""

    def call(tokens: Any, input_pos: Any, **inputs: Any) -> dict[str, Any]:
        caches = _taken(model, inputs, "kv_cache", 1, lambda row, key, value: StaticCache(key, value, input_pos[0]))
        seen = ops.reshape(_seen(input_pos, capacity), (1, 1, count, capacity))
        _, new = model.decode(tokens, ops.reshape(input_pos, (1, count)), seen, caches)
        return _given("kv_cache", new)

    cached = _infos(model, "kv_cache", capacity)
    inputs = {"tokens": TensorInfo((1, count), "int32"), "input_pos": TensorInfo((count,), "int32"), **cached}
    return Function(f"prefill_{count}", inputs, cached, call)


def _static_step(model: Any, rows: int, capacity: int, window: int | None) -> Function:
    """One token for each row, which stand at positions of their own; only the first `window` positions are seen."""
    reach = window or capacity

    def call(tokens: Any, input_pos: Any, **inputs: Any) -> dict[str, Any]:
        def cache(row: int, key: Any, value: Any) -> StaticCache:
            return StaticCache(key, value, input_pos[row], window=window)

        caches = _taken(model, inputs, "kv_cache", rows, cache)
        seen = ops.reshape(_seen(input_pos, reach), (rows, 1, 1, reach))
        scores, new = model.decode(tokens, ops.reshape(input_pos, (rows, 1)), seen, caches)
        return {**_given("kv_cache", new), "logits": scores}

    cached = _infos(model, "kv_cache", capacity, rows)
    inputs = {"tokens": TensorInfo((rows, 1), "int32"), "input_pos": TensorInfo((rows,), "int32"), **cached}
    return Function(_step_name(rows, window), inputs, {**cached, **_scores(model, rows)}, call)


def _scores(model: Any, rows: int) -> Infos:
    return {"logits": TensorInfo((rows, 1, model.config.vocab_size), "float32")}


def _static_encode(model: Any, length: int, encoder_capacity: int) -> Function:
    """A text, encoded and projected to what the decoder's layers attend to, padded to the full capacity."""

    def call(input_ids: Any, attention_mask: Any) -> dict[str, Any]:
        memory = model.project_memory(model.encode(input_ids, attention_mask))
        room = ((0, 0), (0, 0), (0, encoder_capacity - length), (0, 0))
        padded = [FixedCache(*(ops.pad(t, room) if encoder_capacity > length else t for t in pair)) for pair in memory]
        return _given("cross", padded)

    inputs = {name: TensorInfo((1, length), "int32") for name in ("input_ids", "attention_mask")}
    return Function(f"encode_{length}", inputs, _infos(model, "cross", encoder_capacity), call)


def _static_step_with_memory(
    model: Any, rows: int, capacity: int, encoder_capacity: int, window: int | None
) -> Function:
    """One token of each row of a decoder that attends to encoded texts, a text a row.

    All rows stand at one position, since each text begins with the decoder's start token. Of both caches, only the
    first `window` positions are seen.
    """
    own, other = min(window or capacity, capacity), min(window or encoder_capacity, encoder_capacity)

    def call(tokens: Any, input_pos: Any, encoder_mask: Any, **inputs: Any) -> dict[str, Any]:
        def cache(row: int, key: Any, value: Any) -> StaticCache:
            return StaticCache(key, value, input_pos[0], window=own if own < capacity else None)

        def memory(row: int, key: Any, value: Any) -> FixedCache:
            return FixedCache(key[:, :, :other], value[:, :, :other])

        caches = _taken(model, inputs, "kv_cache", rows, cache)
        cross = _taken(model, inputs, "cross", rows, memory)
        seen = ops.reshape(_seen(input_pos, own), (1, 1, 1, own))
        scores, new, _ = model.decode(tokens, input_pos, seen, caches, padding_mask(encoder_mask[:, :other]), cross)
        return {**_given("kv_cache", new), "logits": scores}

    cached = _infos(model, "kv_cache", capacity, rows)
    inputs = {
        "tokens": TensorInfo((rows, 1), "int32"),
        "input_pos": TensorInfo((1,), "int32"),
        "encoder_mask": TensorInfo((rows, encoder_capacity), "int32"),
        **cached,
        **_infos(model, "cross", encoder_capacity, rows),
    }
    return Function(_step_name(rows, window), inputs, {**cached, **_scores(model, rows)}, call)

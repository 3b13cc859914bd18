"""The functions of a model that a TFLite file has: int32 and float32, static shapes, several lengths.

Names and shapes are those that foreign runtimes expect; a cache is `(1, H, S, D)`, under one name as input and output.
Steps of several rows at once have a cache for each row, with the row in its name: a row keeps its own position, and
its cache serves steps alone as well as steps together. A layer with a sliding window has a `RollingCache` if that is
shorter than the capacity. A step that attends only to the first slots uses the same tensors as a `StaticCache` if they
hold that many slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keras import ops

from kerasformer.arguments import check, integer, optional, sequence
from kerasformer.bundle import TensorInfo
from kerasformer.bundle.interface import (
    ATTENTION_MASK,
    ENCODER_MASK,
    INPUT_IDS,
    INPUT_POS,
    LOGITS,
    TOKENS,
    encode_name,
    forward_name,
    prefill_name,
    static_caches,
    step_name,
)
from kerasformer.decoding.protocols import MIN_REWIND
from kerasformer.errors import InputError, argument
from kerasformer.export.graph.functions import Function, Infos, forward
from kerasformer.layers import FixedCache, LayerCache, RowCaches, Visibility, cache_of_slots

ENCODER_LENGTHS = (16, 32, 64, 128, 256, 512)
PREFILL_LENGTHS = (8, 64)
# A step over a cache of a thousand positions takes two or three times as long as one over its first few hundred.
DECODE_CACHE_LENGTHS = (128, 256)
# A step of several rows reads every weight once. Each takes some megabytes of a loaded model's memory, and over a long
# window the caches, which are read row by row, outweigh the weights: there a step of eight saves a tenth.
DECODE_ROWS = (8,)
# A step of several tokens of one text, of which those after the first are guesses. Four cost as much as one step and a
# fifth of GPT-2 in int8, eight as much as one and a half. A small model's step is mostly attention: there the windows
# make guesses pay at all.
VERIFY_LENGTHS = (4, 8)


@dataclass(frozen=True)
class DecoderSignatures:
    """The signatures of a decoder in a TFLite file: how many tokens, texts and cache slots one call takes.

    More signatures make generation faster in more situations; each costs load time and memory, and all share one set of
    weights. `decode`, which reads one token of one text with the whole cache, is always there.

    Attributes:
        prefill_lengths: Tokens of a prompt that one call reads, of a decoder; (8, 64) by default. The last call of a
            prompt may contain padding, so that a layer with a sliding window needs a longer cache for a longer prefill:
            575 slots for a window of 512 tokens and a prefill of 64.
        cache_lengths: First slots of the cache that a step attends to while a text is that short, which is faster than
            the whole cache; (128, 256) by default. A length that is not below the capacity means the whole cache.
        rows: Texts that one step continues, at least 2; (8,) by default. Such steps have the cache lengths above, and
            the whole cache if it is among them or if there are none.
        verify_lengths: Tokens of one text that one step reads to check guesses, at least 2; (4, 8) by default.

    An empty sequence leaves the signatures out. Defaults that are longer than the cache are left out, too.

    Raises:
        InputError: a value that is no sequence of such numbers.
    """

    prefill_lengths: Sequence[int] | None = None
    cache_lengths: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    verify_lengths: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name, kind in _SIZES.items():
            given = check(name, getattr(self, name), optional(kind))
            object.__setattr__(self, name, None if given is None else tuple(sorted(set(given))))

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Each field with its default filled in."""
        given = {name: getattr(self, name) for name in _DEFAULTS}
        return {name: _DEFAULTS[name] if value is None else value for name, value in given.items()}

    def check_capacity(self, capacity: int) -> None:
        """Refuses lengths that the cache is too short for; defaults are left out instead.

        Args:
            capacity: Slots of the decoder's cache.
        Raises:
            InputError: with the lengths.
        """
        for name in ("prefill_lengths", "verify_lengths"):
            if wrong := [length for length in getattr(self, name) or () if length > capacity]:
                raise InputError(
                    f"{argument(name)} must be at most {capacity}, the capacity of the cache. "
                    f"Received: {argument(name, wrong)}"
                )


_SIZES = {
    "prefill_lengths": sequence(integer(1), least=1),
    "cache_lengths": sequence(integer(1)),
    "rows": sequence(integer(2)),
    "verify_lengths": sequence(integer(2)),
}
_DEFAULTS = {
    "prefill_lengths": PREFILL_LENGTHS,
    "cache_lengths": DECODE_CACHE_LENGTHS,
    "rows": DECODE_ROWS,
    "verify_lengths": VERIFY_LENGTHS,
}


@dataclass(frozen=True)
class _Step:
    """A signature that answers.

    Attributes:
        rows: Texts at once, of which each has a cache of its own.
        count: Tokens of each; several of one text alone.
        cache_length: Number of first slots that are seen; all by default.
    """

    rows: int = 1
    count: int = 1
    cache_length: int | None = None

    @property
    def name(self) -> str:
        """Name of the signature."""
        return step_name(self.rows, self.count, self.cache_length)


def lengths_up_to(limit: int | None, wanted: Sequence[int] = ENCODER_LENGTHS) -> tuple[int, ...]:
    """The lengths below the limit, and the limit itself if it is below the longest one wanted."""
    limit = max(wanted) if limit is None else min(limit, max(wanted))
    return tuple(sorted({*(length for length in wanted if length < limit), limit}))


def tflite_functions(
    model: Any,
    capacity: int | None,
    encoder_capacity: int | None,
    lengths: Sequence[int],
    signatures: DecoderSignatures = DecoderSignatures(),
    rolling: bool = True,
) -> list[Function]:
    """The signatures of a TFLite file.

    Args:
        model: Any model of the zoo.
        capacity: Positions of the decoder's cache; a multiple of the longest prefill.
        encoder_capacity: Longest text that an encoder-decoder reads.
        lengths: Of texts that are read at once.
        signatures: Signatures of a model that generates.
        rolling: Layers with a sliding window may have caches shorter than the capacity, see `layers.RollingCache`.
    """
    if not model.generates:
        return [forward(model, forward_name(n), 1, n, "int32") for n in lengths]
    if capacity is None:
        raise InputError("A model that generates needs a capacity. Received: capacity=None")
    sizes = signatures.sizes
    own = _OwnCaches.of(model, capacity, sizes if rolling else None)
    if not model.is_encoder_decoder:
        prefills = [_static_prefill(model, n, own) for n in sizes["prefill_lengths"] if n <= capacity]
        return [*prefills, *(_static_step(model, step, own) for step in _steps(sizes, capacity, capacity))]
    if encoder_capacity is None:
        raise InputError("An encoder-decoder needs an encoder capacity. Received: encoder_capacity=None")
    encoders = [_static_encode(model, n, encoder_capacity) for n in lengths]
    steps = _steps(sizes, capacity, max(capacity, encoder_capacity))
    return [*encoders, *(_static_step_with_memory(model, step, own, encoder_capacity) for step in steps)]


def _steps(sizes: Mapping[str, Sequence[int]], capacity: int, longest: int) -> list[_Step]:
    """Every step over caches of which the longest has so many positions; the last one is the plain `decode`."""
    short = [length for length in sizes["cache_lengths"] if length < longest]
    all_fit = bool(short) and len(short) == len(sizes["cache_lengths"])
    together: list[int | None] = [*short] if all_fit else [*short, None]
    verifies = [
        _Step(count=count, cache_length=length)
        for count in sizes["verify_lengths"]
        if count <= capacity
        for length in (*short, None)
    ]
    several = [_Step(rows=rows, cache_length=length) for rows in sizes["rows"] for length in together]
    return [*verifies, *several, *(_Step(cache_length=length) for length in short), _Step()]


def _names(layer: int, rows: int, cross: bool) -> list[tuple[str, str]]:
    """Keys and values of a layer, for each row."""
    return [static_caches(layer, None if rows == 1 else row, cross) for row in range(rows)]


def _infos(layers: Sequence[TensorInfo], rows: int, cross: bool) -> Infos:
    """Caches of all layers: keys of all rows, then values."""
    return {
        names[half]: info
        for layer, info in enumerate(layers)
        for half in (0, 1)
        for names in _names(layer, rows, cross)
    }


@dataclass(frozen=True)
class _OwnCaches:
    """The caches of the decoder's self attention.

    Attributes:
        capacity: Number of slots of the longest text.
        layers: Description of the keys (and values) of each layer.
    """

    capacity: int
    layers: tuple[TensorInfo, ...]

    @classmethod
    def of(cls, model: Any, capacity: int, sizes: Mapping[str, Sequence[int]] | None) -> _OwnCaches:
        """Returns the caches of a model.

        Args:
            model: The model.
            capacity: As in the class.
            sizes: Lengths of the signatures. The longest one determines how many tokens of a verify step may be
                discarded, and how many tokens of a prefill may be padding. `None` for caches of full length.
        """
        margin = None
        if sizes is not None:
            steps = (*sizes["prefill_lengths"], *sizes["verify_lengths"])
            margin = max((MIN_REWIND, *(length for length in steps if length <= capacity)))
        shapes = model.cache_shapes(1, capacity, margin)
        infos = (TensorInfo(shape, "float32", margin=margin if shape[2] < capacity else None) for shape in shapes)
        return cls(capacity, tuple(infos))

    def infos(self, rows: int = 1) -> Infos:
        """All tensors by name."""
        return _infos(self.layers, rows, cross=False)


def _cross(model: Any, encoder_capacity: int, rows: int = 1) -> Infos:
    """Caches of the cross attention."""
    shapes = model.memory_shapes(1, encoder_capacity)
    return _infos([TensorInfo(shape, "float32") for shape in shapes], rows, cross=True)


def _taken(
    count: int, inputs: dict[str, Any], rows: int, make: Callable[..., LayerCache], cross: bool = False
) -> list[Any]:
    """The caches of `count` layers; `make` gets a row's number, keys and values."""
    layers = []
    for layer in range(count):
        names = enumerate(_names(layer, rows, cross))
        caches = tuple(make(row, inputs[key], inputs[value]) for row, (key, value) in names)
        layers.append(RowCaches(caches) if rows > 1 else caches[0])
    return layers


def _given(caches: Sequence[Any], cross: bool = False) -> dict[str, Any]:
    """The tensors of all layers' caches, under their names."""
    given: dict[str, Any] = {}
    for layer, cache in enumerate(caches):
        rows: Sequence[Any] = cache.rows if isinstance(cache, RowCaches) else (cache,)
        for (key, value), row in zip(_names(layer, len(rows), cross), rows, strict=True):
            given |= {key: row.key, value: row.value}
    return given


def _static_prefill(model: Any, count: int, own: _OwnCaches) -> Function:
    """The next tokens of one prompt, into the caches; nobody needs their logits."""
    step = _static_step(model, _Step(count=count), own)

    def call(**inputs: Any) -> dict[str, Any]:
        return {name: tensor for name, tensor in step.call(**inputs).items() if name != LOGITS}

    return Function(prefill_name(count), step.inputs, own.infos(), call)


def _static_step(model: Any, step: _Step, own: _OwnCaches) -> Function:
    """The next token of each row, which stand at positions of their own, or the next tokens of one."""
    reach = step.cache_length or own.capacity
    places = step.rows * step.count

    def call(tokens: Any, input_pos: Any, **inputs: Any) -> dict[str, Any]:
        def cache(row: int, key: Any, value: Any) -> LayerCache:
            return cache_of_slots(key, value, input_pos[row], own.capacity, visible_length=step.cache_length)

        caches = _taken(len(own.layers), inputs, step.rows, cache)
        slots = ops.reshape(input_pos, (step.rows, step.count))
        visibility = Visibility(causal=True, query_slots=slots, key_slots=ops.arange(reach, dtype="int32"))
        scores, new = model.decode(tokens, visibility, caches)
        return {**_given(new), LOGITS: scores}

    cached = own.infos(step.rows)
    inputs = {**_tokens(step, places), **cached}
    return Function(step.name, inputs, {**cached, **_scores(model, step)}, call)


def _tokens(step: _Step, places: int) -> Infos:
    return {
        TOKENS: TensorInfo((step.rows, step.count), "int32"),
        INPUT_POS: TensorInfo((places,), "int32"),
    }


def _scores(model: Any, step: _Step) -> Infos:
    return {LOGITS: TensorInfo((step.rows, step.count, model.config.vocab_size), "float32")}


def _static_encode(model: Any, length: int, encoder_capacity: int) -> Function:
    """A text, encoded and projected to what the decoder's layers attend to, padded to the full capacity."""

    def call(input_ids: Any, attention_mask: Any) -> dict[str, Any]:
        memory = model.project_memory(model.encode(input_ids, attention_mask))
        room = ((0, 0), (0, 0), (0, encoder_capacity - length), (0, 0))
        padded = [FixedCache(*(ops.pad(t, room) if encoder_capacity > length else t for t in pair)) for pair in memory]
        return _given(padded, cross=True)

    inputs = {name: TensorInfo((1, length), "int32") for name in (INPUT_IDS, ATTENTION_MASK)}
    return Function(encode_name(length), inputs, _cross(model, encoder_capacity), call)


def _static_step_with_memory(model: Any, step: _Step, own: _OwnCaches, encoder_capacity: int) -> Function:
    """Likewise for a decoder that attends to encoded texts, a text a row.

    All rows stand at one position, since each text begins with the decoder's start token. Of both caches, only the
    first positions of the window are seen.
    """
    reach, other = (min(step.cache_length or size, size) for size in (own.capacity, encoder_capacity))

    def call(tokens: Any, input_pos: Any, encoder_mask: Any, **inputs: Any) -> dict[str, Any]:
        def cache(row: int, key: Any, value: Any) -> LayerCache:
            visible = reach if reach < own.capacity else None
            return cache_of_slots(key, value, input_pos[0], own.capacity, visible_length=visible)

        def memory(row: int, key: Any, value: Any) -> FixedCache:
            return FixedCache(key[:, :, :other], value[:, :, :other])

        caches = _taken(len(own.layers), inputs, step.rows, cache)
        cross = _taken(len(own.layers), inputs, step.rows, memory, cross=True)
        visibility = Visibility(causal=True, query_slots=input_pos, key_slots=ops.arange(reach, dtype="int32"))
        scores, new, _ = model.decode(tokens, visibility, caches, encoder_mask[:, :other], cross)
        return {**_given(new), LOGITS: scores}

    cached = own.infos(step.rows)
    inputs = {
        **_tokens(step, step.count),
        ENCODER_MASK: TensorInfo((step.rows, encoder_capacity), "int32"),
        **cached,
        **_cross(model, encoder_capacity, step.rows),
    }
    return Function(step.name, inputs, {**cached, **_scores(model, step)}, call)

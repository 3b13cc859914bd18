"""Functions of a model that are exported in a TFLite file: int32 and float32 tensors, static shapes, several lengths.

Names and shapes are those that third-party runtimes expect. A cache is `(1, H, S, D)` and has the same name as input
and output. Steps of several rows have a separate cache for each row, with the row in its name, so that each row has its
own position and its cache also works in steps of a single row. A layer with a sliding window has a `RollingCache` if it
is shorter than the capacity. A step that attends only to the first slots uses the same tensors as a `StaticCache` if
they hold that many slots.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from keras import ops

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
from kerasformer.engines.protocols import MIN_REWIND
from kerasformer.errors import InputError
from kerasformer.export.graph.functions import Function, FunctionCall, Infos, forward, reads_any_length
from kerasformer.layers import CacheScales, CacheSpec, FixedCache, LayerCache, RowCaches, Visibility, cache_of_slots
from kerasformer.layers.tensor import Tensor
from kerasformer.models.contracts import CausalLM, Seq2SeqLM
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.text_inputs import LABEL_SLOTS, WORD_SLOTS

ENCODER_LENGTHS = (16, 32, 64, 128, 256, 512)
# A call computes all of its tokens, also those that a short prompt leaves empty: with AVX2, 64 tokens take twice the
# time of 32, and a long prompt in calls of 32 takes 6% longer than in calls of 64.
PREFILL_LENGTHS = (8, 32)
# The weights of 12 layers with 12 heads take 9 MB for 128 tokens, and 150 MB for 512, which no picture shows.
ATTENTION_LENGTHS = (32, 128)
# Attention to the first few hundred slots is much faster than to a cache of a thousand.
DECODE_CACHE_LENGTHS = (128, 256)
# A step of several rows reads every weight once, which pays as long as weights outweigh the caches.
BATCH_SIZES = (8,)
# A verify step reads several tokens of one text, all except the first of them guesses, for little more than the time of
# a plain step.
VERIFY_LENGTHS = (4, 8)
MOST_LABELS = 32
"""Default of the largest number of labels of a model that finds spans of named types."""


@dataclass(frozen=True)
class DecoderSignatures:
    """Signatures of a decoder in a TFLite file: the numbers of tokens, texts and cache slots of a call.

    More signatures make generation faster in more situations. Each costs load time and memory; all share one set of
    weights. The signature `decode`, which reads one token of one text with the whole cache, always exists. The
    attributes are options of an export (`kerasformer.bundle.export_options`), ascending; `None` stands for the default,
    of which lengths beyond the cache are omitted. An empty sequence omits the signatures.

    Attributes:
        prefill_lengths: Numbers of tokens of a prompt that one call reads, for a decoder-only model. The last call of a
            prompt may contain padding, so that a layer with a sliding window needs a longer cache for a longer prefill:
            575 slots for a window of 512 tokens and a prefill of 64.
        cache_lengths: Numbers of cache slots that a step or a prefill attends to while the text is no longer than that.
            A length of the capacity or more means all of it.
        batch_sizes: Numbers of texts that one step continues. Such steps exist for all cache lengths, and for the whole
            cache if it is among them or if there are none.
        verify_lengths: Numbers of tokens of one text that one step reads to check guessed tokens; by default none for a
            model with a recurrent state, which cannot discard tokens.
    """

    prefill_lengths: tuple[int, ...] | None = None
    cache_lengths: tuple[int, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None
    verify_lengths: tuple[int, ...] | None = None

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of the options of an export that determine the signatures."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DecoderSignatures:
        """Returns the signatures that the options of an export ask for."""
        return cls(**{name: tuple(sorted(set(options[name]))) for name in cls.names() if name in options})

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """All fields, with defaults in place of `None`."""
        values = {name: getattr(self, name) for name in _DEFAULTS}
        return {name: _DEFAULTS[name] if value is None else value for name, value in values.items()}

    def check_capacity(self, capacity: int) -> None:
        """Refuses lengths that exceed the capacity of the cache; defaults are omitted instead.

        Args:
            capacity: Number of slots of the decoder's cache.

        Raises:
            InputError: A length exceeds the capacity.
        """
        for name in ("prefill_lengths", "verify_lengths"):
            if too_long := [length for length in getattr(self, name) or () if length > capacity]:
                raise InputError(
                    f"{name} must be at most {capacity}, the capacity of the cache. Received: {name}={too_long}"
                )


_DEFAULTS = {
    "prefill_lengths": PREFILL_LENGTHS,
    "cache_lengths": DECODE_CACHE_LENGTHS,
    "batch_sizes": BATCH_SIZES,
    "verify_lengths": VERIFY_LENGTHS,
}


@dataclass(frozen=True)
class _Step:
    """A signature that returns logits.

    Attributes:
        rows: Number of texts, each with a separate cache.
        count: Number of tokens of each text; several only for a single text.
        cache_length: Number of cache slots that are attended to; all by default.
    """

    rows: int = 1
    count: int = 1
    cache_length: int | None = None

    @property
    def name(self) -> str:
        """Name of the signature."""
        return step_name(self.rows, self.count, self.cache_length)


def span_sizes(length: int, num_labels: int) -> dict[str, int]:
    """Returns the sizes of a signature of `length` tokens of a model that finds spans of named types, by their axis.

    A quarter of the tokens is left to the labels, special tokens, and words of several tokens.
    """
    return {str(WORD_SLOTS.axis): max(1, 3 * length // 4), str(LABEL_SLOTS.axis): num_labels}


def lengths_up_to(limit: int | None, lengths: Sequence[int] = ENCODER_LENGTHS) -> tuple[int, ...]:
    """Returns the lengths below the limit, and the limit itself if it is below the longest of them."""
    limit = max(lengths) if limit is None else min(limit, max(lengths))
    return tuple(sorted({*(length for length in lengths if length < limit), limit}))


def attention_lengths(capacity: int | None, encoder_capacity: int | None, lengths: Sequence[int]) -> tuple[int, ...]:
    """Returns the lengths of texts for which a file returns attention weights.

    Args:
        capacity: Number of slots of the decoder's cache; `None` for an encoder.
        encoder_capacity: Longest text that an encoder-decoder reads; `None` for other models.
        lengths: Lengths at which an encoder reads texts.
    """
    limits = [limit for limit in (capacity, encoder_capacity) if limit is not None]
    return lengths_up_to(min(limits) if limits else max(lengths), ATTENTION_LENGTHS)


def tflite_functions(
    model: PretrainedModel,
    capacity: int | None,
    encoder_capacity: int | None,
    lengths: Sequence[int],
    signatures: DecoderSignatures = DecoderSignatures(),
    rolling: bool = True,
    scales: Sequence[CacheScales | None] | None = None,
    num_labels: int = MOST_LABELS,
) -> list[Function]:
    """Returns the functions of a TFLite file, one for each signature.

    Args:
        model: A model of the zoo.
        capacity: Number of slots of the decoder's cache, a multiple of the longest prefill.
        encoder_capacity: Longest text that an encoder-decoder reads, in tokens.
        lengths: Lengths, in tokens, at which an encoder reads texts.
        signatures: Signatures of a model that generates.
        rolling: Whether layers with a sliding window may have caches shorter than the capacity; see
            `layers.RollingCache`.
        scales: Scales of each layer of a decoder whose caches are int8; float32 caches by default.
        num_labels: Largest number of labels of a model that finds spans of named types.

    Raises:
        InputError: A capacity is missing.
    """
    if not model.generates:
        return [forward(model, forward_name(n), 1, n, "int32", span_sizes(n, num_labels)) for n in lengths]
    if capacity is None:
        raise InputError("A model that generates needs a capacity. Received: capacity=None")
    if not model.rewinds:
        if signatures.verify_lengths:
            raise InputError(
                "verify_lengths checks guesses, of which wrong ones are discarded. A model with a recurrent state "
                f"cannot discard tokens. Received: verify_lengths={signatures.verify_lengths}. Remove verify_lengths"
            )
        signatures = replace(signatures, verify_lengths=())
    sizes = signatures.sizes
    own = _Caches.of(model, capacity, sizes if rolling else None, scales)
    if not model.is_encoder_decoder:
        call = functools.cache(functools.partial(_step_call, model, own))
        steps = _steps(sizes, capacity, capacity, doubled=signatures.cache_lengths is None)
        return [
            *(
                _static_prefill(model, step, own, call(1, step.cache_length))
                for step in _prefill_steps(sizes, capacity)
            ),
            *(_static_step(model, step, own, call(step.rows, step.cache_length)) for step in steps),
        ]
    if encoder_capacity is None:
        raise InputError("An encoder-decoder needs an encoder capacity. Received: encoder_capacity=None")
    cross = _Caches.of_memory(model, encoder_capacity)
    call = functools.cache(functools.partial(_step_call_with_memory, model, own, cross))
    steps = _steps(sizes, capacity, max(capacity, encoder_capacity), doubled=signatures.cache_lengths is None)
    return [
        *_static_encodes(model, lengths, cross),
        *(_static_step(model, step, own, call(step.rows, step.cache_length), cross) for step in steps),
    ]


def _steps(sizes: Mapping[str, Sequence[int]], capacity: int, longest: int, doubled: bool) -> list[_Step]:
    """Returns all steps for caches of which the longest has `longest` slots; the last one is the plain `decode`.

    With `doubled`, the plain steps also have cache lengths of twice the longest of the others, and so on: most tokens
    are generated by them, and a signature of one text is small.
    """
    short = [length for length in sizes["cache_lengths"] if length < longest]
    all_fit = bool(short) and len(short) == len(sizes["cache_lengths"])
    lengths_of_rows: list[int | None] = [*short] if all_fit else [*short, None]
    verifies = [
        _Step(count=count, cache_length=length)
        for count in sizes["verify_lengths"]
        if count <= capacity
        for length in (*short, None)
    ]
    several = [_Step(rows=rows, cache_length=length) for rows in sizes["batch_sizes"] for length in lengths_of_rows]
    plain = list(short)
    while doubled and plain and 2 * plain[-1] < longest:
        plain.append(2 * plain[-1])
    return [*verifies, *several, *(_Step(cache_length=length) for length in plain), _Step()]


def _names(layer: int, rows: int, cross: bool, tensors: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the names of the tensors of a layer's cache for each row."""
    return [static_caches(layer, None if rows == 1 else row, cross, tensors) for row in range(rows)]


@dataclass(frozen=True)
class _Caches:
    """The caches of all layers of a decoder: of its text, or of the encoded text.

    Attributes:
        capacity: Number of slots of the longest text.
        layers: Description of each tensor of each layer.
        specs: Declaration of each layer.
        scales: Scales of each layer; `None` for those of float32 caches.
        cross: Whether they are those of the encoded text.
    """

    capacity: int
    layers: tuple[tuple[TensorInfo, ...], ...]
    specs: tuple[CacheSpec, ...]
    scales: tuple[CacheScales | None, ...]
    cross: bool = False

    @classmethod
    def of(
        cls,
        model: CausalLM | Seq2SeqLM,
        capacity: int,
        sizes: Mapping[str, Sequence[int]] | None,
        scales: Sequence[CacheScales | None] | None,
    ) -> _Caches:
        """Returns the caches of the text of a decoder.

        Args:
            model: The model.
            capacity: As in the class.
            sizes: Lengths of the signatures. The longest one determines how many tokens of a verify step may be
                discarded, and how many tokens of a prefill may be padding. `None` for caches of full length.
            scales: Scales of each layer, for int8 caches.
        """
        margin = None
        if sizes is not None:
            steps = (*sizes["prefill_lengths"], *sizes["verify_lengths"])
            margin = max((MIN_REWIND, *(length for length in steps if length <= capacity)))
        specs = model.cache_specs()
        of_layers = tuple(scales or [None] * len(specs))
        infos = []
        for spec, of_layer in zip(specs, of_layers, strict=True):
            shape, dtype = spec.shape(1, capacity, margin), "float32" if of_layer is None else "int8"
            info = TensorInfo(shape, dtype, margin=margin if shape[2] < capacity else None)
            states = (TensorInfo((1, *state), "float32", margin=0) for state in spec.states.values())
            infos.append((*[info] * len(spec.tensors), *states))
        return cls(capacity, tuple(infos), tuple(specs), of_layers)

    @classmethod
    def of_memory(cls, model: Seq2SeqLM, capacity: int) -> _Caches:
        """Returns the caches of the encoded text, which has up to `capacity` tokens."""
        specs = model.memory_specs()
        infos = tuple((TensorInfo(spec.shape(1, capacity), "float32"),) * len(spec.tensors) for spec in specs)
        return cls(capacity, infos, tuple(specs), (None,) * len(specs), cross=True)

    def infos(self, rows: int = 1) -> Infos:
        """Describes all tensors by name: for each layer, its first tensor of all rows, then the next."""
        return {
            names[index]: info
            for layer, (infos, spec) in enumerate(zip(self.layers, self.specs, strict=True))
            for index, info in enumerate(infos)
            for names in _names(layer, rows, self.cross, spec.names)
        }

    def opened(self, inputs: dict[str, Tensor], rows: int, make: Callable[..., LayerCache]) -> list[LayerCache]:
        """Collects the caches from named tensors; `make` takes the indices of a row and of the layer, and tensors."""
        layers = []
        for layer, spec in enumerate(self.specs):
            names = enumerate(_names(layer, rows, self.cross, spec.names))
            caches = tuple(
                spec.opened([inputs[name] for name in of_row], functools.partial(make, row, layer))
                for row, of_row in names
            )
            layers.append(RowCaches(caches) if rows > 1 else caches[0])
        return layers

    def named(self, caches: Sequence[Any]) -> dict[str, Tensor]:
        """Returns the tensors of caches by name."""
        named: dict[str, Tensor] = {}
        for layer, (cache, spec) in enumerate(zip(caches, self.specs, strict=True)):
            rows: Sequence[Any] = cache.rows if isinstance(cache, RowCaches) else (cache,)
            for names, row in zip(_names(layer, len(rows), self.cross, spec.names), rows, strict=True):
                named |= zip(names, row.tensors, strict=True)
        return named


def _prefill_steps(sizes: Mapping[str, Sequence[int]], capacity: int) -> list[_Step]:
    """Returns the steps by which a prompt is read: each length with short caches, and with the whole cache."""
    short = [length for length in sizes["cache_lengths"] if length < capacity]
    return [
        _Step(count=count, cache_length=length)
        for count in sizes["prefill_lengths"]
        if count <= capacity
        for length in (*(length for length in short if length >= count), None)
    ]


def _static_prefill(model: CausalLM, read: _Step, own: _Caches, call: FunctionCall) -> Function:
    """Returns the function that reads tokens of a prompt into the caches; the converter drops the logits."""
    step = _static_step(model, read, own, call)
    return replace(step, name=prefill_name(read.count, read.cache_length), outputs=own.infos())


def _static_step(
    model: CausalLM | Seq2SeqLM, step: _Step, own: _Caches, call: FunctionCall, cross: _Caches | None = None
) -> Function:
    """Returns the function that reads the next token of each row, or the next tokens of one row.

    Rows of a decoder have positions of their own. With `cross`, each row attends to an encoded text, and all have the
    same position.
    """
    cached = own.infos(step.rows)
    if cross:
        mask = {ENCODER_MASK: TensorInfo((step.rows, cross.capacity), "int32")}
        inputs = {**_tokens(step, step.count), **mask, **cached, **cross.infos(step.rows)}
    else:
        inputs = {**_tokens(step, step.rows * step.count), **cached}
    return Function(
        step.name,
        inputs,
        {**cached, **_scores(model, step)},
        call,
        any_length=step.count > 1 and reads_any_length(model),
    )


def _step_call(model: CausalLM, own: _Caches, rows: int, cache_length: int | None) -> FunctionCall:
    """Returns the call of all steps of so many rows and slots."""
    reach = cache_length or own.capacity

    def call(tokens: Tensor, input_pos: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        def cache(row: int, layer: int, tensors: tuple[Tensor, ...]) -> LayerCache:
            return cache_of_slots(tensors, input_pos[row], own.capacity, cache_length, own.scales[layer])

        caches = own.opened(inputs, rows, cache)
        slots = ops.reshape(input_pos, (rows, -1))
        visibility = Visibility(causal=True, query_slots=slots, key_slots=ops.arange(reach, dtype="int32"))
        if not model.rewinds and tokens.shape[1] != 1:
            # Padding, which other caches overwrite, must not change a recurrent state. A table has no position -1.
            real, positions = ops.cast(slots >= 0, "int32"), ops.maximum(slots, 0)
            visibility = replace(visibility, query_mask=real, positions=positions)
        scores, new = model.decode(tokens, visibility, caches)
        return {**own.named(new), LOGITS: scores}

    return call


def _tokens(step: _Step, num_positions: int) -> Infos:
    return {
        TOKENS: TensorInfo((step.rows, step.count), "int32"),
        INPUT_POS: TensorInfo((num_positions,), "int32"),
    }


def _scores(model: CausalLM | Seq2SeqLM, step: _Step) -> Infos:
    return {LOGITS: TensorInfo((step.rows, step.count, model.output_vocab_size), "float32")}


def _static_encodes(model: Seq2SeqLM, lengths: Sequence[int], cross: _Caches) -> list[Function]:
    """Returns the functions that encode a text and project it to keys and values, padded to the encoder capacity."""

    def encode(input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        memory = model.project_memory(model.encode(input_ids, attention_mask))
        return cross.named([FixedCache(pair) for pair in memory])

    def encode_padded(**inputs: Tensor) -> dict[str, Tensor]:
        missing = cross.capacity - ops.shape(inputs[INPUT_IDS])[1]
        return {name: ops.pad(x, ((0, 0), (0, 0), (0, missing), (0, 0))) for name, x in encode(**inputs).items()}

    return [
        Function(
            encode_name(length),
            {name: TensorInfo((1, length), "int32") for name in (INPUT_IDS, ATTENTION_MASK)},
            cross.infos(),
            encode if length == cross.capacity else encode_padded,
            any_length=reads_any_length(model),
        )
        for length in lengths
    ]


def _step_call_with_memory(
    model: Seq2SeqLM, own: _Caches, cross: _Caches, rows: int, cache_length: int | None
) -> FunctionCall:
    """Returns the call of all steps of so many rows and slots; `cache_length` limits both caches.

    All rows have the same position, since each answer begins with the decoder's start token.
    """
    reach, other = (min(cache_length or size, size) for size in (own.capacity, cross.capacity))

    def call(tokens: Tensor, input_pos: Tensor, encoder_mask: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        def cache(row: int, layer: int, tensors: tuple[Tensor, ...]) -> LayerCache:
            visible = reach if reach < own.capacity else None
            return cache_of_slots(tensors, input_pos[0], own.capacity, visible, own.scales[layer])

        def memory(row: int, layer: int, tensors: tuple[Tensor, ...]) -> FixedCache:
            return FixedCache(tuple(tensor[:, :, :other] for tensor in tensors))

        caches, memories = own.opened(inputs, rows, cache), cross.opened(inputs, rows, memory)
        visibility = Visibility(causal=True, query_slots=input_pos, key_slots=ops.arange(reach, dtype="int32"))
        scores, new, _ = model.decode(tokens, visibility, caches, encoder_mask[:, :other], memories)
        return {**own.named(new), LOGITS: scores}

    return call

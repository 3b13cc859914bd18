"""What is to be exported: the options as values, the keywords that stand for them, and all of it for a given model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from kerasformer.arguments import STRING, Kind, check, instance, integer, optional, sequence, shown
from kerasformer.bundle import ModelInfo
from kerasformer.decoding.protocols import MAX_CAPACITY, default_capacity
from kerasformer.errors import InputError, argument
from kerasformer.export.formats.tflite.signatures import (
    ENCODER_LENGTHS,
    PREFILL_LENGTHS,
    DecoderSignatures,
    lengths_up_to,
)
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.export.quantization.search import Auto
from kerasformer.tasks import of_model, of_prefix
from kerasformer.zoo import PretrainedModel, load

IN_GRAPH = "in-graph"


# Options as values, as callers write them.


@dataclass(frozen=True)
class TFLite:
    """The TFLite format, for LiteRT; `"tflite"` stands for `TFLite()`.

    Attributes:
        lengths: Token lengths that an encoder, or the encoder of an encoder-decoder, is compiled for; the smallest one
            that fits a text runs. 16, 32, 64, … up to 512 or the model's own limit by default.
        capacity: Slots of a decoder's cache, in tokens; the smaller of the model's limit and 1024 by default.
        tokenizer: `"in-graph"` also writes an encoder's tokenizer in operators of TF Text, as `tokenizer.tflite` with
            the signature `tokenize`.
        signatures: The signatures of a decoder, or of the decoder of an encoder-decoder.
    """

    name: ClassVar[str] = "tflite"
    lengths: Sequence[int] | None = None
    capacity: int | None = None
    tokenizer: str | None = None
    signatures: DecoderSignatures | None = None

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True)
class Onnx:
    """The ONNX format, for ONNX Runtime; `"onnx"` stands for `Onnx()`.

    Attributes:
        profile: `"ort"`, the default, uses the fused operators of ONNX Runtime (domain `com.microsoft`); `"portable"`
            uses standard operators alone, as far as the recipe allows.
        opset: Version of the standard operators; 17 by default.
        capacity: Slots of a decoder's cache, in tokens; the smaller of the model's limit and 1024 by default.
        encoder_capacity: Longest text that an encoder-decoder reads, in tokens; the smaller of the model's limit and
            512 by default.
    """

    name: ClassVar[str] = "onnx"
    profile: str | None = None
    opset: int | None = None
    capacity: int | None = None
    encoder_capacity: int | None = None

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True)
class SavedModel:
    """The SavedModel format, for TensorFlow; `"saved-model"` stands for `SavedModel()`.

    Attributes:
        tokenizer: `"in-graph"` writes an encoder's tokenizer in operators of TF Text: `serving_default` reads texts.
        capacity: Slots of a decoder's cache, in tokens; the smaller of the model's limit and 1024 by default.
        encoder_capacity: Longest text that an encoder-decoder reads, in tokens; the smaller of the model's limit and
            512 by default.
    """

    name: ClassVar[str] = "saved-model"
    tokenizer: str | None = None
    capacity: int | None = None
    encoder_capacity: int | None = None

    def __post_init__(self) -> None:
        _check_fields(self)


FormatValue = TFLite | Onnx | SavedModel
_FORMAT_VALUES: tuple[type[FormatValue], ...] = (TFLite, Onnx, SavedModel)


@dataclass(frozen=True)
class Calibrated:
    """A recipe with static activations and the texts that the ranges of its activations are measured on.

    Attributes:
        texts: A file with a text a line, a list, or a dataset of texts, of which the first 128 are read; sentences of
            this package by default.
        recipe: Name of a recipe, or a `Recipe`.
    """

    texts: Any = None
    recipe: str | Recipe = "int8_static"


@dataclass(frozen=True)
class Checks:
    """What an export is compared with Keras on.

    Attributes:
        texts: Texts of the model's own kind; each a text, a list of words, or `{"question": …, "context": …}`. Texts
            of this package by default.
        labels: What is right for each text: a class, a list of classes (of words, say), an answer or a text to be
            generated. The task's metrics of Keras and of the bundle are then part of the fidelity, and the bundle
            contains the texts.

    Raises:
        InputError: labels without texts.
    """

    texts: Sequence[Any] | None = None
    labels: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if self.texts is None and self.labels is not None:
            raise InputError(f"labels are for texts. Received: labels without {argument('texts', ...)}")
        anything = Kind("anything", lambda label: label)
        object.__setattr__(self, "labels", check("labels", self.labels, optional(sequence(anything))))


_KINDS = {
    "format": STRING,
    "task": STRING,
    "profile": STRING,
    "tokenizer": STRING,
    "capacity": integer(1, MAX_CAPACITY),
    "encoder_capacity": integer(1, MAX_CAPACITY),
    "lengths": sequence(integer(1, MAX_CAPACITY), least=1),
    "opset": integer(1),
    "signatures": instance("DecoderSignatures(…)", DecoderSignatures),
}


def _check_fields(value: Any) -> None:
    """Checks each field of a value, and puts it into its plain form; `None` is allowed everywhere."""
    for field in fields(value):
        plain = check(field.name, getattr(value, field.name), optional(_KINDS[field.name]))
        object.__setattr__(value, field.name, plain)


# Keywords that stand for values.

_FORMAT_KEYWORDS = ("capacity", "encoder_capacity", "lengths", "profile", "opset", "tokenizer", "signatures")
_CHECK_KEYWORDS = ("texts", "labels")
_LIMIT_KEYWORDS = ("max_size", "max_latency", "min_agreement")
_CALIBRATION = "calibration"
KEYWORDS = (*_FORMAT_KEYWORDS, *_CHECK_KEYWORDS, _CALIBRATION, *_LIMIT_KEYWORDS)
"""Arguments of `export` that stand for fields of values."""


def check_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that have a value.

    Raises:
        InputError: one of them is unknown.
    """
    for name in keywords:
        if name not in KEYWORDS:
            near = get_close_matches(name, KEYWORDS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise InputError(
                f"Unknown option of an export. Expected one of {', '.join(KEYWORDS)}. Received: {name}.{hint}"
            )
    return {name: value for name, value in keywords.items() if value is not None}


def chosen_format(format: Any, task: Any, keywords: Mapping[str, Any]) -> ExportOptions:
    """Format and task, with the options of the format.

    Args:
        format: A name or a value.
        task: As for `export`.
        keywords: Of `check_keywords`.
    Raises:
        InputError: an argument of the wrong type, or keywords beside a value.
    """
    given = {name: value for name, value in keywords.items() if name in _FORMAT_KEYWORDS}
    if isinstance(format, _FORMAT_VALUES):
        _refuse_both("format", format, given)
        given = {field.name: getattr(format, field.name) for field in fields(format)}
        return ExportOptions(format.name, task, **given)
    expected = "a string or a value such as TFLite(…), Onnx(…) or SavedModel(…)"
    return ExportOptions(check("format", format, optional(instance(expected, str))), task, **given)


def chosen_checks(checks: Any, keywords: Mapping[str, Any]) -> Checks:
    """What the export is compared on.

    Raises:
        InputError: an argument of the wrong type, keywords beside a value, or labels without texts.
    """
    given = {name: value for name, value in keywords.items() if name in _CHECK_KEYWORDS}
    checks = check("checks", checks, optional(instance("Checks(…)", Checks)))
    if checks is None:
        return Checks(**given)
    _refuse_both("checks", checks, given)
    return checks


def chosen_quantization(quantize: Any, keywords: Mapping[str, Any]) -> tuple[Any, Any]:
    """The recipe or its name, or the limits of one to be found, and the texts of a calibration.

    Raises:
        InputError: limits of size, latency or agreement for a recipe that is named, or keywords beside a value.
    """
    limits = {name: value for name, value in keywords.items() if name in _LIMIT_KEYWORDS}
    texts = keywords.get(_CALIBRATION)
    if isinstance(quantize, Calibrated) and texts is not None:
        _refuse_both("quantize", quantize, {_CALIBRATION: texts})
    if isinstance(quantize, Auto):
        _refuse_both("quantize", quantize, limits)
    elif quantize == "auto":
        quantize, limits = Auto(**limits), {}
    elif limits:
        received = ", ".join(str(argument(name, value)) for name, value in limits.items())
        named = quantize.recipe if isinstance(quantize, Calibrated) else quantize
        named = named.name if isinstance(named, Recipe) else named
        raise InputError(
            f"{', '.join(_LIMIT_KEYWORDS)} are for {argument('quantize', 'auto')}. Received: {received} for "
            f"{argument('quantize', named)}"
        )
    return (quantize.recipe, quantize.texts) if isinstance(quantize, Calibrated) else (quantize, texts)


def _refuse_both(name: str, value: Any, keywords: Mapping[str, Any]) -> None:
    """Refuses keywords beside the value that has a field for them."""
    if keywords:
        given = ", ".join(f"{key}={shown(each)}" for key, each in keywords.items())
        raise InputError(
            f"Options are given once, in a value or as keywords. Received: {name}={shown(value)} and {given}. Write "
            f"{type(value).__name__}(…) with all of them"
        )


@dataclass(frozen=True)
class ExportOptions:
    """What the caller asked for, `None` where nothing was said; the values above explain the options of formats.

    Attributes:
        format: `"tflite"`, `"onnx"` or `"saved-model"`.
        task: Task that the bundle is meant for.
    """

    format: str | None = None
    task: str | None = None
    capacity: int | None = None
    encoder_capacity: int | None = None
    lengths: Sequence[int] | None = None
    profile: str | None = None
    opset: int | None = None
    tokenizer: str | None = None
    signatures: DecoderSignatures | None = None

    def __post_init__(self) -> None:
        """Checks each option.

        Raises:
            InputError: an option of the wrong type or out of range.
        """
        _check_fields(self)


# All of it for a given model.


@dataclass(frozen=True)
class ExportJob:
    """A checked export of a model, but for its recipe.

    Attributes:
        model: With its tokenizer, if it has one.
        info: What pipelines are told of it.
        format: Name of the format.
        capacity: Positions of the cache of a model that generates.
        encoder_capacity: Longest text that an encoder-decoder reads.
        lengths: Of texts that are read at once, ascending.
        profile: Of a format that has profiles.
        opset: Of ONNX.
        in_graph: The tokenizer is to be part of what is written.
        signatures: Signatures of a decoder.
    """

    model: PretrainedModel
    info: ModelInfo
    format: str
    capacity: int | None
    encoder_capacity: int | None
    lengths: tuple[int, ...]
    profile: str | None
    opset: int | None
    in_graph: bool = False
    signatures: DecoderSignatures = DecoderSignatures()


def resolve_options(
    model: PretrainedModel | str | Path,
    options: ExportOptions,
    profiles: Sequence[str],
    static: bool,
    lengths: Sequence[int] = ENCODER_LENGTHS,
) -> ExportJob:
    """The options, settled for a model.

    Args:
        model: The model, or what `zoo.load` takes.
        options: With the format.
        profiles: Of the format, the default first.
        static: The format reads an encoder's texts in fixed lengths.
        lengths: Lengths of texts by default, as far as the model reads.

    Raises:
        InputError: a task that the model is not for, a capacity or lengths that it does not have, or options that a
            model of its kind ignores.
    """
    if not isinstance(model, PretrainedModel):
        model = load(model, options.task)
    if options.task is not None and of_model(options.task) != model.task:
        raise InputError(f"This model is for {model.task}. Received: {argument('task', options.task)}")
    _refuse_ignored(model, options, static)
    signatures = options.signatures or DecoderSignatures()
    capacity = _capacity(model, options.capacity, signatures)
    wanted = _lengths(model, options, lengths)
    if options.signatures is not None:
        signatures.check_capacity(capacity or 0)
    info = model.info(None if options.task is None else of_prefix(options.task))
    if model.is_encoder_decoder or (static and not model.generates):
        info = replace(info, max_length=max(wanted))
    return ExportJob(
        model,
        info,
        str(options.format),
        capacity,
        max(wanted) if model.is_encoder_decoder else None,
        wanted,
        options.profile or next(iter(profiles), None),
        options.opset,
        options.tokenizer == IN_GRAPH,
        signatures,
    )


def _refuse_ignored(model: PretrainedModel, options: ExportOptions, static: bool) -> None:
    """Refuses options that an export of this model in this format would ignore.

    Raises:
        InputError: with the option, and what it is for.
    """

    def refuse(name: str, purpose: str) -> None:
        received = argument(name, getattr(options, name))
        raise InputError(f"{purpose}. Received: {received} for {model.task} in {argument('format', options.format)}")

    decoder = model.generates and not model.is_encoder_decoder
    if options.capacity is not None and not model.generates:
        refuse("capacity", "capacity is for models that generate")
    if options.lengths is not None and decoder:
        refuse("lengths", f"lengths are for encoders; a decoder has a {argument('capacity')}")
    if options.lengths is not None and not static and not model.is_encoder_decoder:
        refuse("lengths", f"lengths are for {argument('format', 'tflite')}; an encoder in this format reads any length")
    if options.encoder_capacity is not None and not model.is_encoder_decoder:
        refuse("encoder_capacity", "encoder_capacity is for encoder-decoders")
    if options.encoder_capacity is not None and options.lengths is not None:
        refuse("encoder_capacity", "encoder_capacity is the largest of lengths; give one of the two")
    if options.signatures is not None and not model.generates:
        refuse("signatures", "signatures are for models that generate")
    elif options.signatures is not None and options.signatures.prefill_lengths is not None and not decoder:
        refuse("signatures", "prefill_lengths are for decoders; an encoder-decoder reads its text in lengths")


def _lengths(model: PretrainedModel, options: ExportOptions, defaults: Sequence[int]) -> tuple[int, ...]:
    """Lengths of texts that are read at once, ascending.

    Raises:
        InputError: longer ones than the model reads.
    """
    if options.encoder_capacity is not None:
        chosen: tuple[int, ...] = (options.encoder_capacity,)
    elif options.lengths is not None:
        chosen = tuple(sorted(set(options.lengths)))
    else:
        return lengths_up_to(model.max_length, defaults)
    if model.max_length is not None and max(chosen) > model.max_length:
        name = "lengths" if options.encoder_capacity is None else "encoder_capacity"
        raise InputError(f"{name} must lie between 1 and {model.max_length}. Received: {list(chosen)}")
    return chosen


def _capacity(model: PretrainedModel, wanted: int | None, signatures: DecoderSignatures) -> int | None:
    if not model.generates:
        return None
    return cache_capacity(wanted, model.max_length, max(signatures.sizes["prefill_lengths"]))


def cache_capacity(wanted: int | None, limit: int | None, step: int = max(PREFILL_LENGTHS)) -> int:
    """Positions of a cache: a multiple of the longest prefill, as LiteRT-LM asks, unless the model is smaller.

    Args:
        wanted: By the caller, if anything.
        limit: Of the model, if it has one.
        step: Tokens of the longest prefill.

    Raises:
        InputError: less than a prompt and an answer need, or more than the model has.
    """
    chosen = default_capacity(limit) if wanted is None else wanted
    if chosen < 2 or (limit is not None and chosen > limit):
        raise InputError(
            f"capacity must lie between 2 and {limit or MAX_CAPACITY}. Received: {argument('capacity', wanted)}"
        )
    return chosen if chosen < step or wanted is not None else chosen // step * step

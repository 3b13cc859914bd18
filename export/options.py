"""Options of an export: as values, as keyword arguments, and resolved for a given model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from kerasformer.arguments import BOOLEAN, STRING, Kind, check, instance, integer, one_of, optional, sequence, shown
from kerasformer.bundle import ModelInfo
from kerasformer.decoding.protocols import MAX_CAPACITY, default_capacity
from kerasformer.errors import InputError
from kerasformer.export.formats.tflite.signatures import (
    ENCODER_LENGTHS,
    PREFILL_LENGTHS,
    DecoderSignatures,
    lengths_up_to,
)
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.export.quantization.search import Auto
from kerasformer.layers import CacheScales
from kerasformer.tasks import of_model, of_prefix
from kerasformer.zoo import PretrainedModel, load

IN_GRAPH = "in-graph"
INT8_CACHES = "int8"
CACHE_DTYPES = ("float32", INT8_CACHES)
"""Data types of the caches of a decoder."""
GPU = "gpu"
ACCELERATORS = ("cpu", GPU)
"""Processors that a TFLite file is written for."""


# Options as values, as passed by callers.


@dataclass(frozen=True)
class TFLite:
    """Options of the TFLite format, for LiteRT; `"tflite"` is short for `TFLite()`.

    Attributes:
        lengths: Lengths, in tokens, for which an encoder (or the encoder of an encoder-decoder) is compiled. A text is
            run at the smallest length that it fits into. By default 16, 32, 64, … up to 512 or the model's limit.
        capacity: Number of slots of a decoder's cache, in tokens. By default the smaller of the model's limit and 1024.
        tokenizer: `"in-graph"` also writes an encoder's tokenizer as TF Text operators, to `tokenizer.tflite` with the
            signature `tokenize`.
        signatures: Signatures of a decoder, or of the decoder of an encoder-decoder.
        shortlist: Whether an encoder-decoder has signatures for vocabulary shortlists, which make steps with one
            faster.
        lora_rank: Largest rank of the low-rank adapters that the bundle runs, see `pipeline.load_adapter`; by default
            none. The matrices of an adapter are then inputs of the model.
        lora_targets: The modules that adapters may adapt, as `target_modules` of `model.enable_lora`; by default all
            linear layers below the head.
        cache_dtype: `"int8"` stores the keys and values of a decoder's cache in a quarter of the bytes of `"float32"`,
            the default, with scales that are measured on the calibration texts.
        accelerator: `"gpu"` writes a file without anything that LiteRT's GPU delegate is known to compute wrongly or to
            leave to the CPU; `"cpu"` by default.
    """

    name: ClassVar[str] = "tflite"
    lengths: Sequence[int] | None = None
    capacity: int | None = None
    tokenizer: str | None = None
    signatures: DecoderSignatures | None = None
    shortlist: bool | None = None
    lora_rank: int | None = None
    lora_targets: str | Sequence[str] | None = None
    cache_dtype: str | None = None
    accelerator: str | None = None

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True)
class Onnx:
    """Options of the ONNX format, for ONNX Runtime; `"onnx"` is short for `Onnx()`.

    Attributes:
        profile: `"ort"` (the default) uses the fused operators of ONNX Runtime (domain `com.microsoft`); `"portable"`
            uses only standard operators, as far as the recipe allows.
        opset: Version of the standard operators; 17 by default.
        capacity: Largest number of tokens in a decoder's cache. By default the smaller of the model's limit and 1024.
        encoder_capacity: Longest text that an encoder-decoder reads, in tokens. By default the smaller of the model's
            limit and 512.
        shortlist: Whether an encoder-decoder has files for vocabulary shortlists, which make steps with one faster.
        lora_rank: Largest rank of the low-rank adapters that the bundle runs, see `pipeline.load_adapter`; by default
            none. The matrices of an adapter are then inputs of the model.
        lora_targets: The modules that adapters may adapt, as `target_modules` of `model.enable_lora`; by default all
            linear layers below the head.
        cache_dtype: `"int8"` stores the keys and values of a decoder's cache in a quarter of the bytes of `"float32"`,
            the default, with scales that are measured on the calibration texts.
    """

    name: ClassVar[str] = "onnx"
    profile: str | None = None
    opset: int | None = None
    capacity: int | None = None
    encoder_capacity: int | None = None
    shortlist: bool | None = None
    lora_rank: int | None = None
    lora_targets: str | Sequence[str] | None = None
    cache_dtype: str | None = None

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True)
class SavedModel:
    """Options of the SavedModel format, for TensorFlow; `"saved-model"` is short for `SavedModel()`.

    Attributes:
        tokenizer: `"in-graph"` includes an encoder's tokenizer as TF Text operators, so that `serving_default` takes
            texts.
        capacity: Largest number of tokens in a decoder's cache. By default the smaller of the model's limit and 1024.
        encoder_capacity: Longest text that an encoder-decoder reads, in tokens. By default the smaller of the model's
            limit and 512.
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
    """A recipe that rounds activations, and the texts on which their ranges are measured.

    A recipe with static activations rounds in these ranges. For `"int8"`, they determine the scales of the inputs of
    products in models that do not generate text.

    Attributes:
        texts: A file with one text per line, a list of texts, or a dataset of texts. The first 128 texts are used. By
            default, sentences that ship with this package.
        recipe: Name of a recipe, or a `Recipe`.
    """

    texts: Any = None
    recipe: str | Recipe = "int8_static"


@dataclass(frozen=True)
class Checks:
    """How an export is compared with the Keras model: on which texts, and what to do if it differs too much.

    Attributes:
        texts: Texts of the kind that the model is used for; each is a string, a list of words, or
            `{"question": …, "context": …}`. By default, texts that ship with this package.
        labels: Expected result for each text: a class, a list of classes (one for each word, for example), an answer,
            or a text to be generated. With labels, the fidelity includes the task's metrics of the Keras model and of
            the bundle, and the bundle contains the texts.
        fallback: Whether a recipe whose files exceed its limits is replaced by the smallest more faithful one that
            does not, such as `"int8_weights"` for `"int8"`. Manifest and card name both. By default, the export fails,
            and the error names that recipe.

    Raises:
        InputError: Labels were given without texts.
    """

    texts: Sequence[Any] | None = None
    labels: Sequence[Any] | None = None
    fallback: bool = False

    def __post_init__(self) -> None:
        if self.texts is None and self.labels is not None:
            raise InputError("labels must come with texts. Received: labels without texts=…")
        check("fallback", self.fallback, BOOLEAN)
        anything = Kind("anything", lambda label: label)
        object.__setattr__(self, "labels", check("labels", self.labels, optional(sequence(anything))))


def _targets(value: Any) -> str | tuple[str, ...]:
    return value if isinstance(value, str) else sequence(STRING, least=1).convert(value)


_KINDS = {
    "format": STRING,
    "task": STRING,
    "profile": STRING,
    "tokenizer": STRING,
    "capacity": integer(1, MAX_CAPACITY),
    "encoder_capacity": integer(1, MAX_CAPACITY),
    "lengths": sequence(integer(1, MAX_CAPACITY), least=1),
    "opset": integer(1),
    "shortlist": BOOLEAN,
    "lora_rank": integer(1),
    "lora_targets": Kind("a regular expression, 'all-linear' or a list of names", _targets),
    "cache_dtype": one_of(*CACHE_DTYPES),
    "accelerator": one_of(*ACCELERATORS),
    "signatures": instance("DecoderSignatures(…)", DecoderSignatures),
}


def _check_fields(value: Any) -> None:
    """Checks each field of a value and normalizes its type; `None` is always allowed."""
    for field in fields(value):
        plain = check(field.name, getattr(value, field.name), optional(_KINDS[field.name]))
        object.__setattr__(value, field.name, plain)


# Keyword arguments as a shorthand for fields of values.

_FORMAT_KEYWORDS = (
    "capacity",
    "encoder_capacity",
    "lengths",
    "profile",
    "opset",
    "tokenizer",
    "signatures",
    "shortlist",
    "lora_rank",
    "lora_targets",
    "cache_dtype",
    "accelerator",
)
_CHECK_KEYWORDS = ("texts", "labels", "fallback")
_LIMIT_KEYWORDS = ("max_size", "max_latency", "min_agreement")
_CALIBRATION = "calibration"
KEYWORDS = (*_FORMAT_KEYWORDS, *_CHECK_KEYWORDS, _CALIBRATION, *_LIMIT_KEYWORDS)
"""Keyword arguments of `export` that are a shorthand for fields of values."""


def check_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keyword arguments that are not `None`.

    Raises:
        InputError: One of them is unknown.
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
    """Returns the format and the task with the options of the format.

    Args:
        format: Name of a format, or a value such as `TFLite(…)`.
        task: As for `export`.
        keywords: Result of `check_keywords`.

    Raises:
        InputError: An argument has the wrong type, or keywords were passed together with a value.
    """
    format_options = {name: value for name, value in keywords.items() if name in _FORMAT_KEYWORDS}
    if isinstance(format, _FORMAT_VALUES):
        _refuse_both("format", format, format_options)
        format_options = {field.name: getattr(format, field.name) for field in fields(format)}
        return ExportOptions(format.name, task, **format_options)
    expected = "a string or a value such as TFLite(…), Onnx(…) or SavedModel(…)"
    return ExportOptions(check("format", format, optional(instance(expected, str))), task, **format_options)


def chosen_checks(checks: Any, keywords: Mapping[str, Any]) -> Checks:
    """Returns how the export is compared with Keras.

    Raises:
        InputError: An argument has the wrong type, keywords were passed together with a value, or labels without texts.
    """
    check_options = {name: value for name, value in keywords.items() if name in _CHECK_KEYWORDS}
    checks = check("checks", checks, optional(instance("Checks(…)", Checks)))
    if checks is None:
        return Checks(**check_options)
    _refuse_both("checks", checks, check_options)
    return checks


def chosen_quantization(quantize: Any, keywords: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the recipe (a `Recipe`, its name, or an `Auto` with limits) and the calibration texts.

    Raises:
        InputError: Limits of size, latency or agreement were passed for a fixed recipe, or keywords together with a
            value.
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
        received = ", ".join(f"{name}={value!r}" for name, value in limits.items())
        recipe = quantize.recipe if isinstance(quantize, Calibrated) else quantize
        name = recipe.name if isinstance(recipe, Recipe) else recipe
        raise InputError(
            f"{', '.join(_LIMIT_KEYWORDS)} are only for quantize='auto'. Received: {received} for quantize={name!r}"
        )
    return (quantize.recipe, quantize.texts) if isinstance(quantize, Calibrated) else (quantize, texts)


def _refuse_both(name: str, value: Any, keywords: Mapping[str, Any]) -> None:
    """Raises an error if keywords were passed together with the value that has fields for them."""
    if keywords:
        received = ", ".join(f"{key}={shown(option)}" for key, option in keywords.items())
        raise InputError(
            f"Pass options either in {type(value).__name__}(…) or as keyword arguments, not both. Received: "
            f"{name}={shown(value)} and {received}. Pass all of them in {type(value).__name__}(…)"
        )


@dataclass(frozen=True)
class ExportOptions:
    """The caller's options; `None` for those that were not passed.

    The options of formats are documented in `TFLite`, `Onnx` and `SavedModel`.

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
    shortlist: bool | None = None
    lora_rank: int | None = None
    lora_targets: str | Sequence[str] | None = None
    cache_dtype: str | None = None
    accelerator: str | None = None

    def __post_init__(self) -> None:
        """Checks each option.

        Raises:
            InputError: An option has the wrong type or is out of range.
        """
        _check_fields(self)


# Options resolved for a given model.


@dataclass(frozen=True)
class ExportJob:
    """A model with its resolved export options, except for the recipe.

    Attributes:
        model: The model, with its tokenizer if it has one.
        info: Description of the model for pipelines.
        format: Name of the format.
        capacity: Number of slots of the cache; `None` for a model that does not generate.
        encoder_capacity: Longest text that an encoder-decoder reads, in tokens; `None` for other models.
        lengths: Lengths, in tokens, at which an encoder reads texts, ascending.
        profile: Set of operators, for a format that has profiles.
        opset: Version of the ONNX operators.
        in_graph: Whether the tokenizer is exported in the graph.
        signatures: Signatures of a decoder.
        rolling_caches: Layers with a sliding window may have caches shorter than the capacity.
        shortlist: The bundle has signatures for vocabulary shortlists.
        lora_rank: Largest rank of the adapters that are inputs; `None` for none.
        lora_targets: The modules that they may adapt.
        cache_dtype: Data type of the caches of a decoder.
        cache_scales: Scales of each layer of int8 caches; `None` until they are measured, and for others.
        accelerator: Processor that a TFLite file is written for.
        owned: Whether the model was loaded for this export and not passed by the caller, so that its weights may be
            released.
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
    rolling_caches: bool = True
    owned: bool = False
    shortlist: bool = False
    lora_rank: int | None = None
    lora_targets: str | tuple[str, ...] = "all-linear"
    cache_dtype: str = "float32"
    cache_scales: tuple[CacheScales, ...] | None = None
    accelerator: str = "cpu"


def resolve_options(
    model: PretrainedModel | str | Path,
    options: ExportOptions,
    profiles: Sequence[str],
    static: bool,
    lengths: Sequence[int] = ENCODER_LENGTHS,
    rolling_caches: bool = True,
    keeps_dtype: bool = False,
) -> ExportJob:
    """Resolves export options for a model.

    Args:
        model: The model, or anything that `zoo.load` accepts.
        options: The caller's options, including the format.
        profiles: Profiles of the format, the default first.
        static: Whether the format compiles an encoder for fixed lengths.
        lengths: Default lengths; those beyond the model's limit are dropped.
        rolling_caches: As in `ExportJob`.
        keeps_dtype: Whether a model is loaded with matrices in the 16 bits of its checkpoint, see `zoo.load`.

    Raises:
        InputError: The model does not perform the task or support the capacity or lengths, or an option would be
            ignored for this kind of model.
    """
    owned = not isinstance(model, PretrainedModel)
    if not isinstance(model, PretrainedModel):
        model = load(model, options.task, keep_dtype=keeps_dtype)
    if options.task is not None and of_model(options.task) != model.task:
        raise InputError(f"The task of this model is {model.task}. Received: task={options.task!r}")
    _refuse_ignored(model, options, static)
    _check_head(model, options)
    signatures = options.signatures or DecoderSignatures()
    capacity = _capacity(model, options.capacity, signatures)
    resolved_lengths = _lengths(model, options, lengths)
    if options.signatures is not None:
        signatures.check_capacity(capacity or 0)
    info = model.info(None if options.task is None else of_prefix(options.task))
    if model.is_encoder_decoder or (static and not model.generates):
        info = replace(info, max_length=max(resolved_lengths))
    return ExportJob(
        model,
        info,
        str(options.format),
        capacity,
        max(resolved_lengths) if model.is_encoder_decoder else None,
        resolved_lengths,
        options.profile or next(iter(profiles), None),
        options.opset,
        options.tokenizer == IN_GRAPH,
        signatures,
        rolling_caches,
        owned,
        bool(options.shortlist),
        options.lora_rank,
        "all-linear" if options.lora_targets is None else options.lora_targets,  # type: ignore[arg-type]
        options.cache_dtype or "float32",
        accelerator=options.accelerator or "cpu",
    )


def _refuse_ignored(model: PretrainedModel, options: ExportOptions, static: bool) -> None:
    """Refuses options that an export of this model in this format would ignore.

    Raises:
        InputError: An option would be ignored; the message names it and what it is for.
    """

    def refuse(name: str, purpose: str) -> None:
        received = f"{name}={getattr(options, name)!r}"
        raise InputError(f"{purpose}. Received: {received} for {model.task} in format={options.format!r}")

    decoder = model.generates and not model.is_encoder_decoder
    if options.capacity is not None and not model.generates:
        refuse("capacity", "capacity is only for models that generate")
    if options.lengths is not None and decoder:
        refuse("lengths", "lengths are only for encoders; for a decoder, set capacity")
    if options.lengths is not None and not static and not model.is_encoder_decoder:
        refuse(
            "lengths",
            "lengths are only for format='tflite'; an encoder in this format reads any length",
        )
    if options.encoder_capacity is not None and not model.is_encoder_decoder:
        refuse("encoder_capacity", "encoder_capacity is only for encoder-decoders")
    if options.encoder_capacity is not None and options.lengths is not None:
        refuse("encoder_capacity", "encoder_capacity and lengths exclude each other: it is the largest of lengths")
    if options.cache_dtype is not None and not decoder:
        refuse("cache_dtype", "cache_dtype is only for decoders, such as GPT-2 and Llama")
    if options.signatures is not None and not model.generates:
        refuse("signatures", "signatures are only for models that generate")
    elif options.signatures is not None and options.signatures.prefill_lengths is not None and not decoder:
        refuse("signatures", "prefill_lengths are only for decoders; for an encoder-decoder, set lengths")


def _check_head(model: PretrainedModel, options: ExportOptions) -> None:
    """Refuses a shortlist for a model whose output matrix is not a table of token embeddings."""
    if not options.shortlist:
        return
    head: Any = getattr(model, "head", None)
    if not model.is_encoder_decoder or not getattr(head, "tied", False) or head.softcap is not None:
        raise InputError(
            "shortlist is for encoder-decoders that write with the table of their token embeddings, such as Marian, "
            f"BART and T5. Received: shortlist=True for {model.task} with "
            f"{'another output matrix' if model.is_encoder_decoder else 'another architecture'}. A shortlist "
            "can be passed to generation without it, which then computes all logits"
        )


def _lengths(model: PretrainedModel, options: ExportOptions, defaults: Sequence[int]) -> tuple[int, ...]:
    """Returns the lengths at which an encoder reads texts, ascending.

    Raises:
        InputError: A length exceeds the model's limit.
    """
    if options.encoder_capacity is not None:
        chosen: tuple[int, ...] = (options.encoder_capacity,)
    elif options.lengths is not None:
        chosen = tuple(sorted(set(options.lengths)))
    else:
        return lengths_up_to(model.max_length, defaults)
    if model.max_length is not None and max(chosen) > model.max_length:
        name = "lengths" if options.encoder_capacity is None else "encoder_capacity"
        raise InputError(f"{name} must be between 1 and {model.max_length}. Received: {list(chosen)}")
    return chosen


def _capacity(model: PretrainedModel, requested: int | None, signatures: DecoderSignatures) -> int | None:
    if not model.generates:
        return None
    return cache_capacity(requested, model.max_answer_length, max(signatures.sizes["prefill_lengths"]))


def cache_capacity(requested: int | None, limit: int | None, step: int = max(PREFILL_LENGTHS)) -> int:
    """Returns the number of slots of a cache.

    The default is a multiple of the longest prefill, as LiteRT-LM requires, unless the model's limit is shorter.

    Args:
        requested: The caller's capacity, or `None` for the default.
        limit: Positions of the model, or `None` if they are unlimited.
        step: Tokens of the longest prefill.

    Raises:
        InputError: The capacity is below 2 or exceeds the model's limit.
    """
    chosen = default_capacity(limit) if requested is None else requested
    if chosen < 2 or (limit is not None and chosen > limit):
        raise InputError(f"capacity must be between 2 and {limit or MAX_CAPACITY}. Received: capacity={requested!r}")
    return chosen if chosen < step or requested is not None else chosen // step * step

"""Export options of a model: defaults filled in, and options that would be ignored refused.

Called by `api`, first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kerasformer.basics.tasks import task_of_model, without_languages
from kerasformer.bundle import PROMPT_MASK
from kerasformer.bundle.export_options import IN_GRAPH, INT8_CACHES, ONNX, TFLITE, ExportOptions
from kerasformer.bundle.interface import MAX_CAPACITY
from kerasformer.bundle.recipes import Recipe
from kerasformer.engines.protocols import default_capacity
from kerasformer.errors import ExportError, InputError
from kerasformer.export.formats.base import Format
from kerasformer.export.formats.tflite.signatures import (
    MOST_LABELS,
    PREFILL_LENGTHS,
    DecoderSignatures,
    lengths_up_to,
    span_sizes,
)
from kerasformer.export.job import ExportJob
from kerasformer.export.targets.base import Target
from kerasformer.models.loading import load
from kerasformer.models.pretrained import PretrainedModel

_UNCHANGED = (
    "accelerator cache_dtype calibration fallback lora_rank lora_targets num_labels opset outputs texts".split()
)
"""Options that a job has as they are checked."""


def resolve_options(
    model: PretrainedModel | str | Path, options: ExportOptions, format: Format, target: Target
) -> ExportJob:
    """Resolves export options for a model.

    Args:
        model: The model, or anything that `zoo.load` accepts.
        options: The caller's options, checked.
        format: Format of the bundle. If it converts weights as it writes them, a model is loaded with matrices in the
            16 bits of its checkpoint.
        target: Runtime that the bundle is for.

    Raises:
        InputError: The model does not perform the task or support the capacity or lengths, or an option would be
            ignored for this type of model.
        ExportError: The model computes embeddings without the tokens of prompts.
    """
    task = options.get("task")
    owned = not isinstance(model, PretrainedModel)
    if not isinstance(model, PretrainedModel):
        model = load(model, task, keep_dtype=format.streams_weights)
    if task is not None and task_of_model(task) != model.task:
        raise InputError(f"The task of this model is {model.task}. Received: task={task!r}")
    if PROMPT_MASK in model.input_names:
        raise ExportError(
            "Bundles pool all tokens of a text. Expected: a model whose pooling includes prompts. Received: one with "
            "include_prompt=False, whose embeddings of texts with a prompt would be others. Run the model in Keras"
        )
    _refuse_ignored(model, options, format)
    signatures = DecoderSignatures.of(options)
    capacity = _capacity(model, options.get("capacity"), signatures)
    signatures.check_capacity(capacity or 0)
    resolved_lengths = _lengths(model, options, target.lengths)
    info = model.info(None if task is None else without_languages(task))
    if model.is_encoder_decoder or (format.static and not model.generates):
        info = replace(info, max_length=max(resolved_lengths))
    if info.spans is not None and format.static:
        words, most = span_sizes(max(resolved_lengths), options.get("num_labels") or MOST_LABELS).values()
        info = replace(info, spans=replace(info.spans, max_words=min(words, info.spans.max_words), max_labels=most))
    return ExportJob(
        model=model,
        info=info,
        format=format.name,
        capacity=capacity,
        encoder_capacity=max(resolved_lengths) if model.is_encoder_decoder else None,
        lengths=resolved_lengths,
        profile=options.get("profile", next(iter(format.profiles), None)),
        in_graph=options.get("tokenizer") == IN_GRAPH,
        signatures=signatures,
        rolling_caches=target.rolling_caches,
        owned=owned,
        **{name: options[name] for name in _UNCHANGED if name in options},  # type: ignore[literal-required]
    )


def uses_calibration(recipe: Recipe, cache_dtype: str | None) -> bool:
    """Returns whether an export may measure something on calibration texts: ranges, roundings, or scales of caches."""
    measures = recipe.activations == "static" or recipe.scales_inputs or recipe.compensates
    return measures or cache_dtype == INT8_CACHES


def _refuse_ignored(model: PretrainedModel, options: Mapping[str, Any], format: Format) -> None:
    """Refuses options that an export of this model in this format would ignore.

    Raises:
        InputError: An option would be ignored; the message names it and what it is for.
    """
    decoder = model.generates and not model.is_encoder_decoder

    def refuse(name: str, purpose: str, ignored: bool = True) -> None:
        if ignored and name in options:
            raise InputError(
                f"{purpose}. Received: {name}={options[name]!r} for {model.task} in format={format.name!r}"
            )

    refuse("capacity", "capacity is only for models that generate", not model.generates)
    refuse("lengths", "lengths are only for encoders; for a decoder, set capacity", decoder)
    refuse(
        "lengths",
        "lengths are only for format='tflite'; an encoder in this format reads any length",
        not format.static and not model.is_encoder_decoder,
    )
    refuse("encoder_capacity", "encoder_capacity is only for encoder-decoders", not model.is_encoder_decoder)
    if "lengths" in options:
        refuse("encoder_capacity", "encoder_capacity and lengths exclude each other: it is the largest of lengths")
    spans = model.info().spans is not None
    refuse("num_labels", "num_labels is only for zero-shot-token-classification", not spans)
    for name in ("tokenizer", "outputs"):
        refuse(name, f"{name} is not for models that read slots of words and labels", spans)
    refuse("tokenizer", "tokenizer is not for models of vectors of tokens", model.info().vectors is not None)
    if spans and format.name not in (TFLITE, ONNX):
        raise ExportError(
            f"{model.task} is exported in the formats litert and onnx, whose engines pass the slots of words and "
            f"labels. Received: format={format.name!r}"
        )
    refuse("cache_dtype", "cache_dtype is only for decoders, such as GPT-2 and Llama", not decoder)
    for name in DecoderSignatures.names():
        refuse(name, f"{name} are only for models that generate", not model.generates)
    refuse("prefill_lengths", "prefill_lengths are only for decoders; for an encoder-decoder, set lengths", not decoder)


def _lengths(model: PretrainedModel, options: ExportOptions, defaults: Sequence[int]) -> tuple[int, ...]:
    """Returns the lengths at which an encoder reads texts, ascending.

    Raises:
        InputError: A length exceeds the model's limit.
    """
    name = "encoder_capacity" if "encoder_capacity" in options else "lengths"
    if name not in options:
        return lengths_up_to(model.max_length, defaults)
    chosen = sorted(set(options.get("lengths") or (options["encoder_capacity"] or 0,)))
    if model.max_length is not None and max(chosen) > model.max_length:
        raise InputError(f"{name} must be between 1 and {model.max_length}. Received: {chosen}")
    return tuple(chosen)


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
        raise InputError(f"capacity must be between 2 and {limit or MAX_CAPACITY}. Received: capacity={requested}")
    return chosen if chosen < step or requested is not None else chosen // step * step

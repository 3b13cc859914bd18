"""The pipeline: trace, convert, write weights, verify, describe, publish; nothing appears before all succeeded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasformer import bundle
from kerasformer.arguments import BOOLEAN, STRING, Kind, check, optional
from kerasformer.bundle import Bundle, Manifest
from kerasformer.errors import ExportError, InputError, argument
from kerasformer.evaluation import Example, examples
from kerasformer.export.attention_support import check_attention
from kerasformer.export.builder import BundleBuilder
from kerasformer.export.card.credits import Credits
from kerasformer.export.card.model_card import write_card
from kerasformer.export.child_process import export_in_child
from kerasformer.export.formats.base import Format
from kerasformer.export.formats.registry import FORMATS, find_format
from kerasformer.export.formats.saved_model.convert import check_in_graph
from kerasformer.export.hugging_face_files import write_config, write_tokenizer
from kerasformer.export.options import (
    IN_GRAPH,
    Calibrated,
    Checks,
    ExportOptions,
    FormatValue,
    check_keywords,
    chosen_checks,
    chosen_format,
    chosen_quantization,
    resolve_options,
)
from kerasformer.export.progress_report import progress_reporter
from kerasformer.export.quantization.auto import NAME as AUTO
from kerasformer.export.quantization.auto import choose
from kerasformer.export.quantization.calibration import calibrate
from kerasformer.export.quantization.recipes import Recipe, recipe_line
from kerasformer.export.quantization.recipes import recipe as find_recipe
from kerasformer.export.quantization.sample_inputs import read_texts
from kerasformer.export.quantization.search import Auto
from kerasformer.export.references import keras_quality, record
from kerasformer.export.targets import TARGETS, find_target
from kerasformer.fidelity.figures import Fidelity
from kerasformer.interop.keras_hub.names import is_keras_hub
from kerasformer.layers.core import merged_lora
from kerasformer.progress import StageProgress
from kerasformer.zoo import PretrainedModel, load

logger = logging.getLogger("kerasformer")

_PROGRESS = optional(
    Kind("a function, True or False", lambda value: value if callable(value) else BOOLEAN.convert(value))
)


def export(
    model: PretrainedModel | str | Path,
    destination: str | Path,
    format: str | FormatValue | None = None,
    quantize: str | Recipe | Calibrated | Auto = "none",
    *,
    target: str | None = None,
    task: str | None = None,
    overwrite: bool = False,
    checks: Checks | None = None,
    progress: StageProgress | bool | None = None,
    **keywords: Any,
) -> Bundle:
    """Writes a verified bundle: a folder that runs without Keras.

        export(model, "out", "onnx", "int8")
        export(model, "out", TFLite(capacity=512, signatures=DecoderSignatures(rows=())), Auto(max_size=90))

    Args:
        model: A model of the zoo, or what `zoo.load` takes.
        destination: The folder; written aside and moved into place.
        format: `"tflite"`, the default, `"onnx"`, or `"saved-model"`, which is for TensorFlow; or one of these with
            options: `TFLite(…)`, `Onnx(…)`, `SavedModel(…)`.
        quantize: Name of one of `RECIPES`, such as `"int8"`; a `Recipe`; `Calibrated(…)`, which has calibration texts;
            `"auto"`, which finds out how coarsely each part of the model may be stored; or `Auto(…)` with limits.
        target: Name of one of `TARGETS`, a runtime that asks for more than the plain bundle, such as `"mediapipe"`; it
            sets the format. What it cannot do is refused.
        task: Task that the bundle is meant for, such as `"summarization"`; the model's by default.
        overwrite: Replaces a bundle that is there; the old one is kept until the new one is whole.
        checks: Texts, with labels or without, that the artifact is compared with Keras on; sentences of this package by
            default.
        progress: A function that is called with each stage; `False` for none. By default a bar on the standard error,
            where that is a terminal.
        keywords: Fields of the values above, as a shorter form: `capacity`, `encoder_capacity`, `lengths`, `profile`,
            `opset`, `tokenizer` and `signatures` of the format, `max_size`, `max_latency` and `min_agreement` of
            `Auto`, `calibration` (the texts of `Calibrated`), `texts` and `labels` of `Checks`.

    Returns:
        The bundle, which is accepted wherever the path of its folder is.

    Raises:
        BundleError: the destination exists and `overwrite` is false.
        ExportError: an unknown format, target or recipe, a model, task or tokenizer that the target cannot run, an
            operator that the format lacks, or limits that no mix keeps.
        ExportMismatchError: the artifact does not answer as the Keras model does.
        InputError: a task that the model is not for; lengths, a capacity or texts that are out of range; an option that
            the format, the model or the recipe would ignore, that is unknown, or that is given twice.
        MissingExtraError: a converter or runtime is not installed.
    """
    progress = check("progress", progress, _PROGRESS)
    overwrite = check("overwrite", overwrite, BOOLEAN)
    target = check("target", target, optional(STRING))
    keywords = check_keywords(keywords)
    options = chosen_format(format, task, keywords)
    checks = chosen_checks(checks, keywords)
    wanted, calibration = chosen_quantization(quantize, keywords)
    runtime = find_target(options.format if target is None and options.format in TARGETS else target)
    options = runtime.with_needs(options)
    options = replace(options, format=options.format or FORMATS[0])
    kind = find_format(str(options.format))
    recipe = wanted if isinstance(wanted, Auto) else find_recipe(wanted)
    name = AUTO if isinstance(recipe, Auto) else recipe.name
    kind.check(options, name)
    _check_model(model)
    if options.tokenizer is not None:
        model = _with_tokenizer(model, options, kind)
    given_texts = None if checks.texts is None else examples(checks.texts, checks.labels)
    calibration_texts = _calibration_texts(recipe, calibration)
    runtime.check_name(bundle.check_destination(destination, overwrite).name)
    with progress_reporter(progress) as tell:
        if is_keras_hub(model):
            model = load(model, options.task)
        if keras.backend.backend() != "tensorflow":
            given = {"texts": given_texts, "calibration": calibration_texts if calibration is not None else None}
            return Bundle(export_in_child(model, destination, options, target, recipe, overwrite, given, tell))
        job = resolve_options(model, options, kind.profiles, kind.static, runtime.lengths)
        check_attention(job, argument("format", kind.name), kind.attention)
        check_attention(job, argument("target", runtime.name), runtime.attention)
        runtime.check(job, name)
        quality: dict[str, np.ndarray] = {}
        if given_texts and any(example.label is not None for example in given_texts):
            tell("measure Keras", 0, 0)
            quality = keras_quality(job.model, job.info, given_texts)
        with bundle.staging(destination) as folder, merged_lora(job.model):
            artifact = BundleBuilder(job, runtime, name, folder, tell)
            texts_of_ranges = calibration_texts, calibration is not None
            manifest = _write_all(artifact, recipe, given_texts, quality, texts_of_ranges)
            written = bundle.publish(folder, destination, overwrite)
    logger.info("%s: %s", written, recipe_line(manifest.recipe, wanted == "none"))
    return Bundle(written)


def _write_all(
    artifact: BundleBuilder,
    recipe: Recipe | Auto,
    texts: Sequence[Example] | None,
    quality: dict[str, np.ndarray],
    calibration: tuple[list[str] | None, bool],
) -> Manifest:
    """Fills the folder of an artifact: the verified model files and all that stands beside them.

    Args:
        artifact: Whose files are to be written.
        recipe: Of the files, or what one that is to be found may cost.
        texts: Given by the caller, to compare on.
        quality: References on labelled texts.
        calibration: Texts that ranges are measured on, and whether the caller gave them.
    """
    job, folder = artifact.job, artifact.folder
    write_tokenizer(job, folder)
    artifact.tell("answer with Keras", 0, 0)
    answers = record(job.model, artifact.manifest(), texts, artifact.functions[0])
    bundle.write_references(folder, answers | quality)
    if isinstance(recipe, Auto):
        of_recipe, fidelity = _write_chosen(artifact, recipe)
    else:
        of_recipe, fidelity = _write(artifact, recipe, *calibration)
    signatures = artifact.manifest().signatures
    if job.in_graph:
        artifact.tell("tokenizer", 0, 0)
        signatures = {**signatures, **artifact.format.add_tokenizer(job, folder)}
    manifest = replace(artifact.manifest(), signatures=signatures, recipe=of_recipe, fidelity=fidelity.to_dict())
    write_config(job, folder, artifact.format.found_by(manifest, folder))
    artifact.target.finish(job, manifest, folder)
    write_card(folder, manifest, artifact.target, Credits.of(job.model.source))
    bundle.write(folder, replace(manifest, files=bundle.checksums(folder)))
    return manifest


def _write(
    artifact: BundleBuilder, recipe: Recipe, calibration_texts: list[str] | None, given: bool
) -> tuple[dict[str, Any], Fidelity]:
    """Writes the files of a recipe; what the manifest says of it, and how faithful they are."""
    ranges, notes = None, {}
    if calibration_texts is not None:
        ranges = calibrate(
            artifact.job.model, calibration_texts, lambda done, total: artifact.tell("calibrate", done, total)
        )
        notes = {"calibration": {"texts": len(calibration_texts), "given": given}}
    artifact.write(recipe, ranges)
    return {**recipe.to_dict(), **notes}, artifact.verify_decided(recipe)


def _write_chosen(artifact: BundleBuilder, budget: Auto) -> tuple[dict[str, Any], Fidelity]:
    """Likewise for the recipe that fits a budget."""
    job = artifact.job
    choice = choose(
        job.model,
        bundle.read_references(artifact.folder),
        artifact.format.layout(job.profile, job.opset),
        budget,
        artifact,
        artifact.tell,
    )
    return {**choice.recipe.to_dict(), AUTO: choice.to_dict()}, choice.fidelity


def _calibration_texts(recipe: Recipe | Auto, calibration: Any) -> list[str] | None:
    """The texts, if the recipe needs some."""
    if isinstance(recipe, Recipe) and recipe.activations == "static":
        return read_texts(calibration)
    if calibration is not None:
        name = recipe.name if isinstance(recipe, Recipe) else AUTO
        raise InputError(
            f"calibration is for recipes with static activations, such as int8_static. Received: {name!r}. Leave "
            f"calibration out; {argument('texts', ...)} are what a bundle is compared with Keras on"
        )
    return None


def _with_tokenizer(model: Any, options: ExportOptions, kind: Format) -> PretrainedModel:
    """The model, if its tokenizer can be part of what is exported."""
    if options.tokenizer != IN_GRAPH or not kind.in_graph:
        raise ExportError(
            f"{argument('tokenizer', IN_GRAPH)}, for {argument('format', 'tflite')} or 'saved-model', was expected. "
            f"Received: {argument('tokenizer', options.tokenizer)}, {argument('format', options.format)}"
        )
    chosen: PretrainedModel = model if isinstance(model, PretrainedModel) else load(model, options.task)
    check_in_graph(chosen)
    return chosen


def _check_model(model: Any) -> None:
    if not (isinstance(model, PretrainedModel | str | Path) or is_keras_hub(model)):
        raise ExportError(
            "A model of kerasformer.zoo or of KerasHub, a folder, a preset or a hub id was expected. "
            f"Received: {type(model).__name__}"
        )

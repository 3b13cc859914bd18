"""The function `export`: traces, converts, writes weights, verifies, describes and publishes a bundle.

The destination appears only after every stage has succeeded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

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
from kerasformer.export.fallback import write_verified
from kerasformer.export.formats.base import Format
from kerasformer.export.formats.registry import FORMATS, find_format
from kerasformer.export.formats.saved_model.convert import check_in_graph
from kerasformer.export.graph.adapters import zero_adapter
from kerasformer.export.hugging_face_files import write_config, write_tokenizer
from kerasformer.export.options import (
    IN_GRAPH,
    INT8_CACHES,
    Calibrated,
    Checks,
    ExportJob,
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
from kerasformer.export.quantization.cache_scales import measure_cache_scales
from kerasformer.export.quantization.calibration import calibrate
from kerasformer.export.quantization.layouts import calibrated_kernels
from kerasformer.export.quantization.recipes import Recipe, recipe_line
from kerasformer.export.quantization.recipes import recipe as find_recipe
from kerasformer.export.quantization.rotation import adapted, rotated, rotates
from kerasformer.export.quantization.sample_inputs import described_texts, read_texts
from kerasformer.export.quantization.search import Auto
from kerasformer.export.references import keras_quality, record
from kerasformer.export.targets import TARGETS, find_target
from kerasformer.fidelity.figures import Fidelity
from kerasformer.fidelity.recording import CHATS, DEFAULT_TEXTS
from kerasformer.interop.keras_hub.names import is_keras_hub
from kerasformer.layers.core import merged_lora
from kerasformer.models.contracts import CausalLM
from kerasformer.models.variables import release_weights
from kerasformer.process import hidden_native_logs
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
    """Exports a model as a verified bundle: a folder that runs without Keras.

        export(model, "out", "onnx", "int8")
        export(model, "out", TFLite(capacity=512, signatures=DecoderSignatures(rows=())), Auto(max_size=90))

    Args:
        model: A model of the zoo or of KerasHub, or anything that `zoo.load` accepts: a folder, a preset or a hub id.
        destination: Folder of the bundle. The bundle is written to a temporary folder and then moved here.
        format: `"tflite"` (the default), `"onnx"` or `"saved-model"` (for TensorFlow); or a value with options:
            `TFLite(…)`, `Onnx(…)` or `SavedModel(…)`.
        quantize: Name of one of `RECIPES`, such as `"int8"`; a `Recipe`; `Calibrated(…)`, a recipe with calibration
            texts; `"auto"`, which searches for the coarsest storage that each part of the model tolerates; or
            `Auto(…)`, the same search with limits.
        target: Name of one of `TARGETS`, third-party runtimes with requirements beyond the plain bundle, such as
            `"mediapipe"`. It determines the format. A model or option that it does not support raises an error.
        task: Task that the bundle is meant for, such as `"summarization"`; the model's own task by default.
        overwrite: Whether to replace an existing bundle. The old one is kept until the new one is complete.
        checks: Texts, with or without labels, on which the bundle is compared with the Keras model (by default, texts
            that ship with this package), and whether the export falls back to another recipe if it differs too much.
        progress: A function that is called with each stage, or `False` for no progress report. By default a progress
            bar is shown on standard error if it is a terminal.
        keywords: Fields of the values above, as a shorthand: `capacity`, `encoder_capacity`, `lengths`, `profile`,
            `opset`, `tokenizer`, `signatures`, `shortlist`, `lora_rank`, `lora_targets`, `cache_dtype`, `accelerator`
            of the format; `max_size`, `max_latency` and `min_agreement` of `Auto`; `calibration` (the texts of
            `Calibrated`); `texts`, `labels` and `fallback` of `Checks`.

    Returns:
        The bundle. It can be passed wherever the path of its folder is accepted.

    Raises:
        BundleError: The destination exists and `overwrite` is false.
        ExportError: The format, target or recipe is unknown; the target cannot run the model, its task or its
            tokenizer; the format lacks an operator; or no mix of storage types satisfies the limits of `Auto`.
        ExportMismatchError: The exported model's answers differ from those of the Keras model by more than the recipe
            allows. If a more faithful recipe was seen to pass, the message names it.
        InputError: The model does not perform the task; lengths, a capacity or texts are out of range; or an option is
            unknown, passed twice, or would be ignored for this format, model or recipe.
        MissingExtraError: A required converter or runtime is not installed.
    """
    progress = check("progress", progress, _PROGRESS)
    overwrite = check("overwrite", overwrite, BOOLEAN)
    target = check("target", target, optional(STRING))
    keywords = check_keywords(keywords)
    options = chosen_format(format, task, keywords)
    checks = chosen_checks(checks, keywords)
    quantization, calibration = chosen_quantization(quantize, keywords)
    runtime = find_target(options.format if target is None and options.format in TARGETS else target)
    options = runtime.with_requirements(options)
    options = replace(options, format=options.format or FORMATS[0])
    file_format = find_format(str(options.format))
    recipe = quantization if isinstance(quantization, Auto) else find_recipe(quantization)
    name = AUTO if isinstance(recipe, Auto) else recipe.name
    file_format.check(options, name)
    _check_model(model)
    if options.tokenizer is not None:
        model = _with_tokenizer(model, options, file_format)
    check_texts = None if checks.texts is None else examples(checks.texts, checks.labels)
    calibration_texts = _calibration_texts(recipe, name, calibration, options.cache_dtype)
    runtime.check_name(bundle.check_destination(destination, overwrite).name)
    with progress_reporter(progress) as report:
        if is_keras_hub(model):
            model = load(model, options.task)
        if keras.backend.backend() != "tensorflow":
            texts = {"texts": check_texts, "calibration": calibration_texts}
            return Bundle(
                export_in_child(model, destination, options, target, recipe, overwrite, texts, report, checks.fallback)
            )
        job = resolve_options(
            model,
            options,
            file_format.profiles,
            file_format.static,
            runtime.lengths,
            runtime.rolling_caches,
            keeps_dtype=file_format.streams_weights,
        )
        check_attention(job, argument("format", file_format.name), file_format.attention)
        check_attention(job, argument("target", runtime.name), runtime.attention)
        runtime.check_interface(job)
        runtime.check(job, name)
        if calibration_texts is not None and not (
            _measures_ranges(recipe, job.model) or _rotates(job, recipe) or job.cache_dtype == INT8_CACHES
        ):
            raise InputError(
                f"Calibration has no effect on {argument('quantize', name)} for a model that generates text: its "
                "activations are rounded in ranges of their own. Received: calibration texts. Remove calibration"
            )
        quality: dict[str, np.ndarray] = {}
        if check_texts and any(example.label is not None for example in check_texts):
            report("measure Keras", 0, 0)
            quality = keras_quality(job.model, job.info, check_texts)
        with bundle.staging(destination) as folder, merged_lora(job.model), zero_adapter(job), hidden_native_logs():
            if job.cache_dtype == INT8_CACHES:
                job = _with_cache_scales(job, calibration_texts, report)
            builder = BundleBuilder(job, runtime, name, folder, report)
            manifest = _write_all(builder, recipe, check_texts, quality, calibration_texts, checks.fallback)
            published = bundle.publish(folder, destination, overwrite)
    logger.info("%s: %s", published, recipe_line(manifest.recipe, quantization == "none"))
    return Bundle(published)


def _write_all(
    builder: BundleBuilder,
    recipe: Recipe | Auto,
    texts: Sequence[Example] | None,
    quality: dict[str, np.ndarray],
    calibration_texts: list[str] | None,
    fallback: bool,
) -> Manifest:
    """Writes all files of a bundle: the verified model files and everything beside them.

    Args:
        builder: Writes and verifies the model files.
        recipe: The recipe of the files, or the limits of the search for one.
        texts: The caller's texts, on which the bundle is compared with Keras; `None` for the default texts.
        quality: Keras metrics on labelled texts, for the references.
        calibration_texts: The caller's texts, on which ranges of activations are measured; `None` for the default ones.
        fallback: Whether to fall back to a more faithful recipe.
    """
    job, folder = builder.job, builder.folder
    write_tokenizer(job, folder)
    builder.report("answer with Keras", 0, 0)
    answers = record(job.model, builder.manifest(), texts, builder.functions[0])
    bundle.write_references(folder, answers | quality)
    with ExitStack() as stack:
        if isinstance(recipe, Recipe):
            recipe = recipe.resolved(variable.path for variable in job.model.variables)
        if _rotates(job, recipe):
            recipe = adapted(cast(Recipe, recipe))
            stack.enter_context(rotated(cast(CausalLM, job.model), keep=not job.owned))
        recipe_entry, fidelity = _write(builder, recipe, fallback, calibration_texts)
    findings = builder.gpu_findings()
    signatures = builder.manifest().signatures
    if job.in_graph:
        builder.report("tokenizer", 0, 0)
        signatures = {**signatures, **builder.format.add_tokenizer(job, folder)}
    manifest = replace(
        builder.manifest(),
        signatures=signatures,
        recipe=recipe_entry,
        fidelity=fidelity.to_dict() | _compared_on(answers),
        gpu_findings=findings,
    )
    write_config(job, folder, builder.format.config_entries(manifest, folder))
    added = builder.target.finish(job, manifest, folder)
    write_card(folder, manifest, builder.target, Credits.of(job.model.source), added)
    bundle.write(folder, replace(manifest, files=bundle.checksums(folder)))
    return manifest


def _rotates(job: ExportJob, recipe: Recipe | Auto) -> bool:
    """Returns whether hidden states are rotated; the matrices of adapters would not fit to rotated ones."""
    return not isinstance(recipe, Auto) and job.lora_rank is None and rotates(job.model, recipe)


def _write(
    builder: BundleBuilder, recipe: Recipe | Auto, fallback: bool, calibration_texts: list[str] | None
) -> tuple[dict[str, Any], Fidelity]:
    """Writes and verifies the model files; returns the manifest's entry for the recipe, and the fidelity."""
    job = builder.job
    measures = _measures_ranges(recipe, job.model)
    if measures:
        _calibrate(builder, recipe, calibration_texts)
    if isinstance(recipe, Auto):
        entry, fidelity = _write_within_budget(builder, recipe)
    else:
        if job.owned and builder.format.streams_weights:
            release_weights(job.model)  # each is read again as it is written
        recipe, fidelity, refused = write_verified(builder, recipe, fallback)
        entry = recipe.to_dict() | refused
        measures = _measures_ranges(recipe, job.model)
    if measures or job.cache_dtype == INT8_CACHES:
        entry["calibration"] = described_texts(calibration_texts)
    return entry, fidelity


def _compared_on(references: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the manifest's entry for the texts that a bundle was compared on."""
    texts = int(np.sum(references.get("made_up", np.zeros(len(references["input.input_ids"]))) == 0))
    return {"texts": {"count": texts, "given": not references[DEFAULT_TEXTS], "chats": bool(references.get(CHATS, 0))}}


def _with_cache_scales(job: ExportJob, texts: list[str] | None, report: StageProgress) -> ExportJob:
    """Measures the ranges of keys and values on the caller's calibration texts, or on the default ones."""

    def progress(done: int, total: int) -> None:
        report("measure caches", done, total)

    return replace(job, cache_scales=measure_cache_scales(cast(CausalLM, job.model), read_texts(texts), progress))


def _measures_ranges(recipe: Recipe | Auto, model: PretrainedModel) -> bool:
    """Returns whether the files of a model depend on the inputs of its products.

    A model that generates has no scales of inputs: its hidden states are rotated instead, if it has RMS norms.
    """
    return recipe.activations == "static" or recipe.compensates or (recipe.scales_inputs and not model.generates)


def _calibrate(builder: BundleBuilder, recipe: Recipe | Auto, texts: list[str] | None) -> None:
    """Measures the ranges of activations and rounds kernels."""
    job = builder.job
    builder.report("calibrate", 0, 0)
    passages = read_texts(texts)
    layout = builder.format.layout(job.profile, job.opset)
    kernels = {} if isinstance(recipe, Auto) else calibrated_kernels(job.model, recipe, layout)
    builder.calibration = calibrate(
        job.model, passages, lambda done, total: builder.report("calibrate", done, total), kernels
    )


def _write_within_budget(builder: BundleBuilder, budget: Auto) -> tuple[dict[str, Any], Fidelity]:
    """Writes the files with the recipe that a search finds for a budget; returns its entry and the fidelity."""
    job = builder.job
    chosen = choose(
        job.model,
        bundle.read_references(builder.folder),
        builder.format.layout(job.profile, job.opset),
        budget,
        builder,
        builder.report,
        builder.calibration,
    )
    return {**chosen.recipe.to_dict(), AUTO: chosen.to_dict()}, chosen.fidelity


def _calibration_texts(recipe: Recipe | Auto, name: str, calibration: Any, cache_dtype: str | None) -> list[str] | None:
    """Returns the caller's calibration texts, or `None` if there are none.

    Raises:
        InputError: Texts were passed for a recipe that ignores them.
    """
    if calibration is None:
        return None
    measured = recipe.activations == "static" or recipe.scales_inputs or recipe.compensates
    if not measured and cache_dtype != INT8_CACHES:
        raise InputError(
            "calibration is only for recipes that round activations of int8 products, such as int8 and int8_static, "
            f"for int4 and int4_channel, and for {argument('cache_dtype', INT8_CACHES)}. "
            f"Received: {name!r}. Remove calibration; the texts on which a bundle is compared with Keras are "
            f"{argument('texts', ...)}"
        )
    return read_texts(calibration)


def _with_tokenizer(model: Any, options: ExportOptions, file_format: Format) -> PretrainedModel:
    """Returns the model after checking that its tokenizer can be exported in the graph."""
    if options.tokenizer != IN_GRAPH or not file_format.in_graph:
        raise ExportError(
            f"Unsupported tokenizer option. Expected: {argument('tokenizer', IN_GRAPH)} with "
            f"{argument('format', 'tflite')} or 'saved-model'. Received: {argument('tokenizer', options.tokenizer)}, "
            f"{argument('format', options.format)}"
        )
    loaded: PretrainedModel = model if isinstance(model, PretrainedModel) else load(model, options.task)
    check_in_graph(loaded)
    return loaded


def _check_model(model: Any) -> None:
    if not (isinstance(model, PretrainedModel | str | Path) or is_keras_hub(model)):
        raise ExportError(
            "model must be a model of kerasformer.zoo or of KerasHub, a folder, a preset or a hub id. "
            f"Received: {type(model).__name__}"
        )

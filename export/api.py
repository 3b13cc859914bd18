"""The function `export`: traces, converts, writes weights, verifies, describes and publishes a bundle.

The destination appears only after every stage has succeeded.

Called by the user as `model.export`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Unpack, cast

import keras
import numpy as np

from kerasformer import bundle
from kerasformer.basics.arguments import STRING, check, optional
from kerasformer.basics.options import checked, documented
from kerasformer.basics.progress import StageProgress
from kerasformer.bundle import Bundle, Fidelity, Manifest, Role
from kerasformer.bundle.export_options import ALIASES, IN_GRAPH, INT8_CACHES, ExportOptions
from kerasformer.bundle.recipes import Recipe, recipe_line
from kerasformer.bundle.recipes import recipe as find_recipe
from kerasformer.engines.fidelity.references import CHATS, DEFAULT_TEXTS
from kerasformer.errors import ExportError, InputError
from kerasformer.export.attention_support import check_attention
from kerasformer.export.builder import BundleBuilder
from kerasformer.export.calibrated_job import calibrated, calibration_passages, measures_ranges
from kerasformer.export.card.credits import Credits
from kerasformer.export.card.model_card import write_card
from kerasformer.export.child_process import export_in_child
from kerasformer.export.fallback import write_verified
from kerasformer.export.formats.registry import find_format
from kerasformer.export.formats.saved_model.convert import check_in_graph
from kerasformer.export.graph.adapters import zero_adapter
from kerasformer.export.hugging_face_files import write_config, write_modules, write_tokenizer
from kerasformer.export.job import ExportJob
from kerasformer.export.options import resolve_options, uses_calibration
from kerasformer.export.progress_report import progress_reporter
from kerasformer.export.quantization.cache_scales import measure_cache_scales
from kerasformer.export.quantization.learned_rounding import MAX_LEARNING_TEXTS, learning_windows
from kerasformer.export.quantization.mixed_bits import mixes
from kerasformer.export.quantization.rotation import adapted, rotated, rotates
from kerasformer.export.quantization.sample_inputs import MAX_TEXTS, Passages, described_texts, read_texts
from kerasformer.export.quantization.stored_levels import keep_levels
from kerasformer.export.references import Attentions, keras_quality, record, record_attention
from kerasformer.export.targets import TARGETS, find_target
from kerasformer.export.verify import verify_attention
from kerasformer.files.readers import converter_of, is_quantized
from kerasformer.files.reading import JsonObject
from kerasformer.layers.core import merged_lora
from kerasformer.models.contracts import CausalLM
from kerasformer.models.loading import load
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.variables import release_weights
from kerasformer.pipelines.labelled_texts import examples, read_examples
from kerasformer.process import hidden_native_logs

logger = logging.getLogger("kerasformer")


@documented(ExportOptions)
def export(
    model: PretrainedModel | str | Path,
    destination: str | Path,
    format: str | None = None,
    quantize: str | Recipe | None = None,
    **options: Unpack[ExportOptions],
) -> Bundle:
    """Exports a model as a verified bundle: a folder that runs without Keras.

        export(model, "out", "onnx", "int8")
        export("path/to/checkpoint", "out", "litert", kf.search("path/to/checkpoint", "litert", max_size=90))

    Args:
        model: A model of the zoo or of KerasHub, or anything that `zoo.load` accepts: a folder, a preset or a hub id.
            Weights of a model that is loaded here are not kept in memory, but read again as they are written.
        destination: Folder of the bundle. The bundle is written to a temporary folder and then moved here.
        format: `"litert"` (the default; also `"tflite"`), `"onnx"`, `"saved_model"` for TensorFlow, or `"table"` for
            static embeddings without a runtime.
        quantize: Name of one of `RECIPES`, such as `"int8"`, or a `Recipe`, such as that which `kerasformer.search`
            finds. By default `"stored"` for a file that is quantized, such as one of llama.cpp, and `"none"` for all
            other models.
        options: See `ExportOptions`.

    Returns:
        The bundle. It can be passed wherever the path of its folder is accepted.

    Raises:
        BundleError: The destination exists and `overwrite` is false.
        ExportError: The format, target or recipe is unknown; the target cannot run the model, its task or its
            tokenizer; or the format lacks an operator.
        ExportMismatchError: The exported model's answers differ from those of the Keras model by more than the recipe
            allows. If a more faithful recipe was seen to pass, the message names it.
        InputError: The model does not perform the task; lengths, a capacity or texts are out of range; or an option is
            unknown, or would be ignored for this format, model or recipe.
        MissingExtraError: A required converter or runtime is not installed.
    """
    recipe = find_recipe("none" if quantize is None else quantize)
    options = checked(ExportOptions, options, "an export")
    format = check("format", format, optional(STRING))
    format = ALIASES.get(format or "", format)
    target = options.get("target")
    runtime = find_target(format if target is None and format in TARGETS else target)
    file_format = find_format(runtime.check_options(options, format))
    if quantize is None and file_format.streams_weights and isinstance(model, str | Path) and is_quantized(model):
        recipe = find_recipe("stored")
    file_format.check(options, recipe.name)
    recipe = file_format.adapted(recipe)
    _check_model(model)
    if "tokenizer" in options:
        model = _with_tokenizer(model, options)
    _read_given_texts(options, recipe)
    overwrite = options.get("overwrite") or False
    runtime.check_name(bundle.check_destination(destination, overwrite).name)
    with progress_reporter(options.get("progress")) as report:
        if converter_of(model):
            model = load(model, options.get("task"))
        if keras.backend.backend() != "tensorflow":
            return Bundle(export_in_child(model, destination, file_format.name, recipe, options, report))
        job = resolve_options(model, options, file_format, runtime)
        if not mixes(job.model, recipe):  # which waits for the calibration
            recipe = recipe.resolved(variable.path for variable in job.model.variables)
        job = replace(job, recipe=recipe)
        if _rotates(job):
            job = replace(job, recipe=adapted(job.recipe))
        check_attention(job, f"format={file_format.name!r}", file_format.attention)
        check_attention(job, f"target={runtime.name!r}", runtime.attention)
        runtime.check_interface(job)
        runtime.check(job)
        if recipe.rounding == "distilled":
            learning_windows(job.model, job.calibration)  # what is wrong with the texts is said before minutes pass
        measures = measures_ranges(job) or _rotates(job) or job.cache_dtype == INT8_CACHES
        if job.calibration is not None and not measures:
            raise InputError(
                f"Calibration has no effect on quantize={recipe.name!r} for a model that generates text: its "
                "activations are rounded in ranges of their own. Received: calibration texts. Remove calibration"
            )
        with bundle.staging(destination) as folder, merged_lora(job.model), zero_adapter(job), hidden_native_logs():
            if job.cache_dtype == INT8_CACHES:
                job = _with_cache_scales(job, report)
            manifest = _write_all(BundleBuilder(job, runtime, folder, report))
            published = bundle.publish(folder, destination, overwrite)
    logger.info("%s: %s", published, recipe_line(manifest.recipe, recipe.name == "none"))
    return Bundle(published)


def _read_given_texts(options: ExportOptions, recipe: Recipe) -> None:
    """Replaces texts, labels and calibration by the texts that they stand for.

    Raises:
        InputError: There are labels without texts, or for a file, which has its own; or calibration texts for a recipe
            that ignores them.
    """
    texts, labels = options.get("texts"), options.pop("labels", None)
    if labels is not None and (texts is None or isinstance(texts, str | Path)):
        received = "no texts" if texts is None else f"the file {texts}, which has a column of labels"
        raise InputError(f"labels must come with a list of texts. Received: labels and {received}")
    if texts is not None:
        options["texts"] = read_examples(texts) if isinstance(texts, str | Path) else examples(texts, labels)
    if "calibration" not in options:
        return
    if not uses_calibration(recipe, options.get("cache_dtype")):
        raise InputError(
            "calibration is only for recipes that round activations of int8 products, such as int8 and int8_static, "
            f"for int4 and int4_channel, and for cache_dtype={INT8_CACHES!r}. "
            f"Received: quantize={recipe.name!r}. Remove calibration; the texts on which a bundle is "
            "compared with Keras are texts"
        )
    limit = MAX_LEARNING_TEXTS if recipe.rounding == "distilled" else MAX_TEXTS
    options["calibration"] = read_texts(options["calibration"], limit)


def _write_all(builder: BundleBuilder) -> Manifest:
    """Writes all files of a bundle: the verified model files and everything beside them."""
    job, folder = builder.job, builder.folder
    write_tokenizer(job, folder)
    texts = job.texts or ()
    quality: dict[str, np.ndarray] = {}
    if any(example.label is not None for example in texts):
        builder.report("measure Keras", 0, 0)
        quality = keras_quality(job.model, job.info, texts)
    builder.report("answer with Keras", 0, 0)
    few = job.recipe.rounding == "stored"  # levels that are kept change no answer
    answers = record(job.model, builder.manifest(), job.texts, builder.functions[0], few)
    bundle.write_references(folder, answers | quality)
    attentions = _attentions(builder, answers)
    # Before a rotation, so that functions that were compiled for the answers continue the texts of calibration, too.
    read = calibration_passages(builder) if measures_ranges(job) else None
    with rotated(cast(CausalLM, job.model), keep=not job.owned) if _rotates(job) else nullcontext():
        recipe, fidelity = _write(builder, read)
    for expected in attentions:
        verify_attention(folder, builder.manifest(), str(recipe["name"]), expected)
    findings = builder.gpu_findings()
    signatures = builder.manifest().signatures
    if job.in_graph:
        builder.report("tokenizer", 0, 0)
        signatures = {**signatures, **builder.format.add_tokenizer(job, folder)}
    manifest = replace(
        builder.manifest(),
        signatures=signatures,
        recipe=recipe,
        fidelity=fidelity.to_dict() | _compared_on(answers),
        gpu_findings=findings,
    )
    write_config(job, folder, builder.format.config_entries(manifest, folder))
    if job.info.embedding is not None and not builder.target.name:
        write_modules(job.info.embedding, folder)
    manifest = builder.target.place(manifest, folder)
    added = builder.target.finish(job, manifest, folder)
    write_card(folder, manifest, builder.target, Credits.of_model(job.model), added)
    bundle.write(folder, replace(manifest, files=bundle.checksums(folder)))
    return manifest


def _attentions(builder: BundleBuilder, answers: dict[str, np.ndarray]) -> list[Attentions]:
    """Returns the attention weights of Keras for a text, with which the bundle is compared if it has such outputs."""
    functions = [function for function in builder.functions if function.signature().role == Role.ATTENTION]
    return [record_attention(builder.job.model, functions[0], answers)] if functions else []


def _rotates(job: ExportJob) -> bool:
    """Returns whether hidden states are rotated; the matrices of adapters would not fit to rotated ones."""
    return job.lora_rank is None and rotates(job.model, job.recipe)


def _write(builder: BundleBuilder, read: Passages | None) -> tuple[JsonObject, Fidelity]:
    """Writes and verifies the model files; returns the manifest's entry for the recipe, and the fidelity."""
    job = builder.job
    if read is not None:
        builder.job = calibrated(builder, read)
    kept: JsonObject = {}
    if job.recipe.rounding == "stored":
        recipe, ranges, kept["stored"] = keep_levels(job.model, job.recipe, builder.layout, builder.report)
        builder.job = replace(job, recipe=recipe, ranges=ranges)
    if job.owned and builder.format.streams_weights:
        release_weights(job.model)  # each is read again as it is written
    recipe, fidelity, refused = write_verified(builder)
    entry = recipe.to_dict() | refused | kept
    if measures_ranges(replace(job, recipe=recipe)) or job.cache_dtype == INT8_CACHES:
        entry["calibration"] = described_texts(job.calibration, read)
    return entry, fidelity


def _compared_on(references: Mapping[str, np.ndarray]) -> JsonObject:
    """Returns the manifest's entry for the texts that a bundle was compared on."""
    texts = int(np.sum(references.get("made_up", np.zeros(len(references["input.input_ids"]))) == 0))
    return {"texts": {"count": texts, "given": not references[DEFAULT_TEXTS], "chats": bool(references.get(CHATS, 0))}}


def _with_cache_scales(job: ExportJob, report: StageProgress) -> ExportJob:
    """Measures the ranges of keys and values on the caller's calibration texts, or on the default ones."""
    texts, progress = read_texts(job.calibration), partial(report, "measure caches")
    return replace(job, cache_scales=measure_cache_scales(cast(CausalLM, job.model), texts, progress))


def _with_tokenizer(model: PretrainedModel | str | Path, options: ExportOptions) -> PretrainedModel:
    """Returns the model after checking that its tokenizer can be exported in the graph."""
    if options["tokenizer"] != IN_GRAPH:
        raise ExportError(
            "Unsupported tokenizer option. "
            f"Expected: tokenizer={IN_GRAPH!r}. Received: tokenizer={options['tokenizer']!r}"
        )
    loaded: PretrainedModel = model if isinstance(model, PretrainedModel) else load(model, options.get("task"))
    check_in_graph(loaded)
    return loaded


def _check_model(model: object) -> None:
    if not (isinstance(model, PretrainedModel | str | Path) or converter_of(model)):
        raise ExportError(
            "model must be a model of kerasformer.zoo or of KerasHub, a folder, a preset or a hub id. "
            f"Received: {type(model).__name__}"
        )

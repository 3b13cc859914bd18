"""The function `export`: traces, converts, writes weights, verifies, describes and publishes a bundle.

The destination appears only after every stage has succeeded.

Called by the user as `model.export`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
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
from kerasformer.export.card.credits import Credits
from kerasformer.export.card.model_card import write_card
from kerasformer.export.child_process import export_in_child
from kerasformer.export.fallback import write_verified
from kerasformer.export.formats.base import Format
from kerasformer.export.formats.registry import find_format
from kerasformer.export.formats.saved_model.convert import check_in_graph
from kerasformer.export.graph.adapters import zero_adapter
from kerasformer.export.hugging_face_files import write_config, write_tokenizer
from kerasformer.export.job import ExportJob
from kerasformer.export.options import resolve_options, uses_calibration
from kerasformer.export.progress_report import progress_reporter
from kerasformer.export.quantization.cache_scales import measure_cache_scales
from kerasformer.export.quantization.calibration import calibrate
from kerasformer.export.quantization.layouts import calibrated_kernels
from kerasformer.export.quantization.rotation import adapted, rotated, rotates
from kerasformer.export.quantization.sample_inputs import described_texts, read_texts
from kerasformer.export.references import Attentions, keras_quality, record, record_attention
from kerasformer.export.targets import TARGETS, find_target
from kerasformer.export.verify import verify_attention
from kerasformer.files.readers import converter_of
from kerasformer.files.reading import JsonObject
from kerasformer.layers.core import merged_lora
from kerasformer.models.contracts import CausalLM
from kerasformer.models.loading import load
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.variables import release_weights
from kerasformer.pipelines.labelled_texts import Example, examples, read_examples
from kerasformer.process import hidden_native_logs

logger = logging.getLogger("kerasformer")


@documented(ExportOptions)
def export(
    model: PretrainedModel | str | Path,
    destination: str | Path,
    format: str | None = None,
    quantize: str | Recipe = "none",
    **options: Unpack[ExportOptions],
) -> Bundle:
    """Exports a model as a verified bundle: a folder that runs without Keras.

        export(model, "out", "onnx", "int8")
        export("path/to/checkpoint", "out", "litert", kf.search("path/to/checkpoint", "litert", max_size=90))

    Args:
        model: A model of the zoo or of KerasHub, or anything that `zoo.load` accepts: a folder, a preset or a hub id.
            Weights of a model that is loaded here are not kept in memory, but read again as they are written.
        destination: Folder of the bundle. The bundle is written to a temporary folder and then moved here.
        format: `"litert"` (the default; also `"tflite"`), `"onnx"`, or `"saved_model"` for TensorFlow.
        quantize: Name of one of `RECIPES`, such as `"int8"`, or a `Recipe`, such as that which `kerasformer.search`
            finds.
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
    recipe = find_recipe(quantize)
    options = checked(ExportOptions, options, "an export")
    format = check("format", format, optional(STRING))
    format = ALIASES.get(format or "", format)
    target = options.get("target")
    runtime = find_target(format if target is None and format in TARGETS else target)
    file_format = find_format(runtime.check_options(options, format))
    file_format.check(options, recipe.name)
    _check_model(model)
    if "tokenizer" in options:
        model = _with_tokenizer(model, options, file_format)
    check_texts = _check_texts(options)
    calibration_texts = _calibration_texts(recipe, options)
    overwrite = options.get("overwrite") or False
    runtime.check_name(bundle.check_destination(destination, overwrite).name)
    with progress_reporter(options.get("progress")) as report:
        if converter_of(model):
            model = load(model, options.get("task"))
        if keras.backend.backend() != "tensorflow":
            texts = {"texts": check_texts, "calibration": calibration_texts}
            return Bundle(export_in_child(model, destination, file_format.name, recipe, options, texts, report))
        job = resolve_options(model, options, file_format, runtime)
        check_attention(job, f"format={file_format.name!r}", file_format.attention)
        check_attention(job, f"target={runtime.name!r}", runtime.attention)
        runtime.check_interface(job)
        runtime.check(job, recipe.name)
        if calibration_texts is not None and not (
            _measures_ranges(recipe, job.model) or _rotates(job, recipe) or job.cache_dtype == INT8_CACHES
        ):
            raise InputError(
                f"Calibration has no effect on quantize={recipe.name!r} for a model that generates text: its "
                "activations are rounded in ranges of their own. Received: calibration texts. Remove calibration"
            )
        quality: dict[str, np.ndarray] = {}
        if check_texts and any(example.label is not None for example in check_texts):
            report("measure Keras", 0, 0)
            quality = keras_quality(job.model, job.info, check_texts)
        with bundle.staging(destination) as folder, merged_lora(job.model), zero_adapter(job), hidden_native_logs():
            if job.cache_dtype == INT8_CACHES:
                job = _with_cache_scales(job, calibration_texts, report)
            builder = BundleBuilder(job, runtime, recipe.name, folder, report)
            fallback = options.get("fallback") or False
            manifest = _write_all(builder, recipe, check_texts, quality, calibration_texts, fallback)
            published = bundle.publish(folder, destination, overwrite)
    logger.info("%s: %s", published, recipe_line(manifest.recipe, recipe.name == "none"))
    return Bundle(published)


def _check_texts(options: ExportOptions) -> list[Example] | None:
    """Returns the texts on which the bundle is compared with Keras; `None` for the default ones.

    Raises:
        InputError: There are labels without texts, or for a file, which has its own.
    """
    texts, labels = options.get("texts"), options.get("labels")
    if isinstance(texts, str | Path) and labels is None:
        return read_examples(texts)
    if labels is not None and (texts is None or isinstance(texts, str | Path)):
        received = "no texts" if texts is None else f"the file {texts}, which has a column of labels"
        raise InputError(f"labels must come with a list of texts. Received: labels and {received}")
    return None if texts is None else examples(texts, labels)


def _write_all(
    builder: BundleBuilder,
    recipe: Recipe,
    texts: Sequence[Example] | None,
    quality: dict[str, np.ndarray],
    calibration_texts: list[str] | None,
    fallback: bool,
) -> Manifest:
    """Writes all files of a bundle: the verified model files and everything beside them.

    Args:
        builder: Writes and verifies the model files.
        recipe: The recipe of the files.
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
    attentions = _attentions(builder, answers)
    with ExitStack() as stack:
        recipe = recipe.resolved(variable.path for variable in job.model.variables)
        if _rotates(job, recipe):
            recipe = adapted(recipe)
            stack.enter_context(rotated(cast(CausalLM, job.model), keep=not job.owned))
        recipe_entry, fidelity = _write(builder, recipe, fallback, calibration_texts)
    for expected in attentions:
        verify_attention(folder, builder.manifest(), str(recipe_entry["name"]), expected)
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
    manifest = builder.target.place(manifest, folder)
    added = builder.target.finish(job, manifest, folder)
    write_card(folder, manifest, builder.target, Credits.of_model(job.model), added)
    bundle.write(folder, replace(manifest, files=bundle.checksums(folder)))
    return manifest


def _attentions(builder: BundleBuilder, answers: dict[str, np.ndarray]) -> list[Attentions]:
    """Returns the attention weights of Keras for a text, with which the bundle is compared if it has such outputs."""
    functions = [function for function in builder.functions if function.signature().role == Role.ATTENTION]
    return [record_attention(builder.job.model, functions[0], answers)] if functions else []


def _rotates(job: ExportJob, recipe: Recipe) -> bool:
    """Returns whether hidden states are rotated; the matrices of adapters would not fit to rotated ones."""
    return job.lora_rank is None and rotates(job.model, recipe)


def _write(
    builder: BundleBuilder, recipe: Recipe, fallback: bool, calibration_texts: list[str] | None
) -> tuple[JsonObject, Fidelity]:
    """Writes and verifies the model files; returns the manifest's entry for the recipe, and the fidelity."""
    job = builder.job
    if _measures_ranges(recipe, job.model):
        _calibrate(builder, recipe, calibration_texts)
    if job.owned and builder.format.streams_weights:
        release_weights(job.model)  # each is read again as it is written
    recipe, fidelity, refused = write_verified(builder, recipe, fallback)
    entry = recipe.to_dict() | refused
    if _measures_ranges(recipe, job.model) or job.cache_dtype == INT8_CACHES:
        entry["calibration"] = described_texts(calibration_texts)
    return entry, fidelity


def _compared_on(references: Mapping[str, np.ndarray]) -> JsonObject:
    """Returns the manifest's entry for the texts that a bundle was compared on."""
    texts = int(np.sum(references.get("made_up", np.zeros(len(references["input.input_ids"]))) == 0))
    return {"texts": {"count": texts, "given": not references[DEFAULT_TEXTS], "chats": bool(references.get(CHATS, 0))}}


def _with_cache_scales(job: ExportJob, texts: list[str] | None, report: StageProgress) -> ExportJob:
    """Measures the ranges of keys and values on the caller's calibration texts, or on the default ones."""

    def progress(done: int, total: int) -> None:
        report("measure caches", done, total)

    return replace(job, cache_scales=measure_cache_scales(cast(CausalLM, job.model), read_texts(texts), progress))


def _measures_ranges(recipe: Recipe, model: PretrainedModel) -> bool:
    """Returns whether the files of a model depend on the inputs of its products.

    A model that generates has no scales of inputs: its hidden states are rotated instead, if it has RMS norms.
    """
    return recipe.activations == "static" or recipe.compensates or (recipe.scales_inputs and not model.generates)


def _calibrate(builder: BundleBuilder, recipe: Recipe, texts: list[str] | None) -> None:
    """Measures the ranges of activations and rounds kernels."""
    job = builder.job
    builder.report("calibrate", 0, 0)
    passages = read_texts(texts)
    layout = builder.format.layout(job.profile, job.opset)
    kernels = calibrated_kernels(job.model, recipe, layout)
    builder.calibration = calibrate(
        job.model, passages, lambda done, total: builder.report("calibrate", done, total), kernels
    )


def _calibration_texts(recipe: Recipe, options: ExportOptions) -> list[str] | None:
    """Returns the caller's calibration texts, or `None` if there are none.

    Raises:
        InputError: Texts were passed for a recipe that ignores them.
    """
    calibration = options.get("calibration")
    if calibration is None:
        return None
    if not uses_calibration(recipe, options.get("cache_dtype")):
        raise InputError(
            "calibration is only for recipes that round activations of int8 products, such as int8 and int8_static, "
            f"for int4 and int4_channel, and for cache_dtype={INT8_CACHES!r}. "
            f"Received: quantize={recipe.name!r}. Remove calibration; the texts on which a bundle is "
            "compared with Keras are texts"
        )
    return read_texts(calibration)


def _with_tokenizer(
    model: PretrainedModel | str | Path, options: ExportOptions, file_format: Format
) -> PretrainedModel:
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

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
from kerasformer.arguments import BOOLEAN, STRING, Kind, check, optional, sequence
from kerasformer.bundle import Manifest
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
from kerasformer.export.options import IN_GRAPH, ExportOptions, resolve_options
from kerasformer.export.progress_report import progress_reporter
from kerasformer.export.quantization.auto import NAME as AUTO
from kerasformer.export.quantization.auto import choose
from kerasformer.export.quantization.calibration import calibrate
from kerasformer.export.quantization.recipes import Recipe, recipe_line
from kerasformer.export.quantization.recipes import recipe as find_recipe
from kerasformer.export.quantization.sample_inputs import read_texts
from kerasformer.export.quantization.search import Budget
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
    format: str | None = None,
    quantize: str | Recipe = "none",
    *,
    target: str | None = None,
    task: str | None = None,
    overwrite: bool = False,
    capacity: int | None = None,
    lengths: Sequence[int] | None = None,
    profile: str | None = None,
    opset: int | None = None,
    texts: Sequence[Any] | None = None,
    labels: Sequence[Any] | None = None,
    calibration: Any = None,
    max_size: float | None = None,
    max_latency: float | None = None,
    min_agreement: float | None = None,
    tokenizer: str | None = None,
    progress: StageProgress | bool | None = None,
) -> Path:
    """Writes a verified bundle: a folder that runs without Keras.

    Args:
        model: A model of the zoo, or what `zoo.load` takes.
        destination: The folder; written aside and moved into place.
        format: `"tflite"`, the default, `"onnx"`, or `"saved-model"`, which is for TensorFlow.
        quantize: Name of one of `RECIPES`, such as `"int8"`; a `Recipe` of your own; or `"auto"`, which finds out how
            coarsely each part of the model may be stored.
        target: Name of one of `TARGETS`, a runtime that asks for more than the plain bundle, such as `"mediapipe"`; it
            sets the format. What it cannot do is refused.
        task: For which the bundle is meant, such as `"summarization"`; the model's by default.
        overwrite: Replaces a bundle that is there; the old one is kept until the new one is whole.
        capacity: Positions of the decoder's cache; the smaller of the model's limit and 1024 by default.
        lengths: Token lengths for which an encoder is compiled (TFLite); the smallest that fits a text is used.
        profile: ONNX: `"ort"`, the default, takes the fused operators of ONNX Runtime (domain `com.microsoft`);
            `"portable"` takes those of the standard, as far as the recipe allows.
        opset: ONNX: version of the standard operators; 17 by default.
        texts: Of the model's own kind, on which the artifact is compared with Keras; each a text, a list of words, or
            `{"question": …, "context": …}`.
        labels: What is right for each text: a class, a list of classes (of words, say), an answer or a text to be
            written. The task's metrics before and after are then part of the fidelity, and the texts of the bundle.
        calibration: Texts for recipes with static activations, such as `"int8_static"`: a file with a text a line, a
            list, or a dataset of texts, of which the first 128 are read; sentences of this package by default.
        max_size: For `"auto"`: MB (1e6 bytes) of the model files. Without `max_size` and `max_latency` the smallest
            mix that keeps `min_agreement` is taken, with them the most faithful one within.
        max_latency: For `"auto"`: milliseconds of a token, or of a text that is answered at once, on this machine.
        min_agreement: For `"auto"`: least share of answers whose most probable one is the Keras model's; 0.98 by
            default.
        tokenizer: `"in-graph"` writes an encoder's tokenizer in operators of TF Text too: for `"tflite"` as
            `tokenizer.tflite` beside the model, with the signature `tokenize`; for `"saved-model"` as the signature
            `serving_default`, which reads texts.
        progress: A function that is told each stage; `False` for nobody. By default a bar on the standard error, where
            that is a terminal.

    Returns:
        The absolute path of the folder.

    Raises:
        BundleError: the destination exists and `overwrite` is false.
        ExportError: an unknown format, target or recipe, a model, task or tokenizer that the target cannot run, an
            operator that the format lacks, or budgets that no mix keeps.
        ExportMismatchError: the artifact does not answer as the Keras model does.
        InputError: a task that the model is not for, or lengths, a capacity or texts that cannot be.
        MissingExtraError: a converter or runtime is not installed.
    """
    progress = check("progress", progress, _PROGRESS)
    overwrite = check("overwrite", overwrite, BOOLEAN)
    format, target = check("format", format, optional(STRING)), check("target", target, optional(STRING))
    runtime = find_target(format if target is None and format in TARGETS else target)
    options = runtime.with_needs(ExportOptions(format, task, capacity, lengths, profile, opset, tokenizer))
    options = replace(options, format=options.format or FORMATS[0])
    kind = find_format(str(options.format))
    recipe = _recipe(quantize, {"max_size": max_size, "max_latency": max_latency, "min_agreement": min_agreement})
    name = AUTO if isinstance(recipe, Budget) else recipe.name
    kind.check(options, name)
    _check_model(model)
    if tokenizer is not None:
        model = _with_tokenizer(model, options, kind)
    if texts is None and labels is not None:
        raise InputError(f"labels are for texts. Received: labels without {argument('texts', ...)}")
    labels = check("labels", labels, optional(sequence(Kind("anything", lambda label: label))))
    given_texts = None if texts is None else examples(texts, labels)
    calibration_texts = _calibration_texts(recipe, calibration)
    runtime.check_name(bundle.check_destination(destination, overwrite).name)
    with progress_reporter(progress) as tell:
        if is_keras_hub(model):
            model = load(model, task)
        if keras.backend.backend() != "tensorflow":
            given = {"texts": given_texts, "calibration": calibration_texts if calibration is not None else None}
            return export_in_child(model, destination, options, target, recipe, overwrite, given, tell)
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
    logger.info("%s: %s", written, recipe_line(manifest.recipe, quantize == "none"))
    return written


def _write_all(
    artifact: BundleBuilder,
    recipe: Recipe | Budget,
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
    if isinstance(recipe, Budget):
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


def _write_chosen(artifact: BundleBuilder, budget: Budget) -> tuple[dict[str, Any], Fidelity]:
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


def _recipe(quantize: str | Recipe, limits: dict[str, float | None]) -> Recipe | Budget:
    """The recipe, or what one that is to be found may cost."""
    given = {name: value for name, value in limits.items() if value is not None}
    if quantize == AUTO:
        return Budget(**given)
    if given:
        received = ", ".join(f"{name}={value:g}" for name, value in given.items())
        raise InputError(
            f"{', '.join(limits)} are for {argument('quantize', 'auto')}. Received: {received} for "
            f"{argument('quantize', quantize)}"
        )
    return find_recipe(quantize)


def _calibration_texts(recipe: Recipe | Budget, calibration: Any) -> list[str] | None:
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

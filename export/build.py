"""The pipeline: trace, convert, write weights, verify, describe, publish; nothing appears before all succeeded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasformer import bundle, errors
from kerasformer.errors import ExportError, InputError, require
from kerasformer.evaluation import Example, examples
from kerasformer.export.artifact import PROFILES, Artifact, Progress
from kerasformer.export.auto import NAME as AUTO
from kerasformer.export.auto import choose
from kerasformer.export.calibration import calibrate
from kerasformer.export.card import write_card
from kerasformer.export.layouts import layout_of
from kerasformer.export.recipes import RECIPES, Recipe
from kerasformer.export.recipes import recipe as find_recipe
from kerasformer.export.sample import read_texts
from kerasformer.export.search import Budget
from kerasformer.export.targets import find_target
from kerasformer.export.to_saved_model import tf_text
from kerasformer.export.to_saved_model.convert import IN_GRAPH, check_in_graph, export_saved_model
from kerasformer.export.to_tflite.signatures import PREFILL_LENGTHS, lengths_up_to
from kerasformer.export.verify import keras_quality, record
from kerasformer.export.wish import Job, Wish
from kerasformer.runtime.fidelity import Fidelity
from kerasformer.zoo import PretrainedModel, load
from kerasformer.zoo._keras_hub import is_keras_hub
from kerasformer.zoo._loading import TASK_ALIASES

FORMATS = ("tflite", "onnx")
DEFAULT_CAPACITY = 1024


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
    progress: Progress | None = None,
) -> Path:
    """Writes a verified bundle: a folder that runs without Keras.

    Args:
        model: A model of the zoo, or what `zoo.load` takes.
        destination: The folder; written aside and moved into place.
        format: `"tflite"`, the default, or `"onnx"`.
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
            `tokenizer.tflite` beside the model, with the signature `tokenize`; and `format="saved-model"` is then a
            SavedModel that reads texts, without a manifest.
        progress: Is told each stage.

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
    tell = progress or _silent
    runtime = find_target(target)
    wish = runtime.settle(Wish(format, task, capacity, lengths, profile, opset, tokenizer))
    wish = replace(wish, format=wish.format or FORMATS[0])
    if tokenizer is not None:
        model = _with_tokenizer(model, wish, quantize)
        if wish.format == "saved-model":
            return export_saved_model(model, destination)
    recipe = _recipe(quantize, {"max_size": max_size, "max_latency": max_latency, "min_agreement": min_agreement})
    _check_arguments(model, wish)
    if texts is None and labels is not None:
        raise InputError("labels are for texts. Received: labels without texts=")
    given_texts = None if texts is None else examples(texts, labels)
    calibration_texts = _calibration_texts(recipe, calibration)
    bundle.check_destination(destination, overwrite)
    if is_keras_hub(model):
        model = load(model, task)
    if keras.backend.backend() != "tensorflow":
        given = {"texts": given_texts, "calibration": calibration_texts if calibration is not None else None}
        return _in_child(model, destination, wish, target, recipe, overwrite, given)
    job = _checked(model, wish)
    name = AUTO if isinstance(recipe, Budget) else recipe.name
    runtime.check(job, name)
    quality: dict[str, np.ndarray] = {}
    if given_texts and any(example.label is not None for example in given_texts):
        tell("measure Keras", 0, 0)
        quality = keras_quality(job.model, job.info, given_texts)
    with bundle.staging(destination) as folder:
        artifact = Artifact(job, runtime, name, folder, tell)
        _write_companions(job, folder)
        tell("answer with Keras", 0, 0)
        bundle.write_references(folder, record(job.model, artifact.manifest(), given_texts) | quality)
        if isinstance(recipe, Budget):
            of_recipe, fidelity = _write_chosen(artifact, recipe)
        else:
            of_recipe, fidelity = _write(artifact, recipe, calibration_texts, calibration is not None)
        signatures = artifact.manifest().signatures
        if tokenizer is not None:
            tell("tokenizer", 0, 0)
            names, file = job.model.input_names, folder / tf_text.FILE
            written = tf_text.write_tokenizer(job.model.tokenizer, names, max(job.lengths), file)
            signatures = {**signatures, tf_text.TOKENIZE: written}
        manifest = replace(artifact.manifest(), signatures=signatures, recipe=of_recipe, fidelity=fidelity.to_dict())
        runtime.finish(job, manifest, folder)
        write_card(folder, manifest, runtime)
        bundle.write(folder, replace(manifest, files=bundle.checksums(folder)))
        return bundle.publish(folder, destination, overwrite)


def _write(
    artifact: Artifact, recipe: Recipe, calibration_texts: list[str] | None, given: bool
) -> tuple[dict[str, Any], Fidelity]:
    """Writes the files of a recipe; what the manifest says of it, and how faithful they are."""
    ranges, notes = None, {}
    if calibration_texts is not None:
        ranges = calibrate(
            artifact.job.model, calibration_texts, lambda done, total: artifact.tell("calibrate", done, total)
        )
        notes = {"calibration": {"texts": len(calibration_texts), "given": given}}
    artifact.write(recipe, ranges)
    return {**recipe.to_dict(), **notes}, artifact.verify(recipe)


def _write_chosen(artifact: Artifact, budget: Budget) -> tuple[dict[str, Any], Fidelity]:
    """Likewise for the recipe that fits a budget."""
    job = artifact.job
    choice = choose(
        job.model,
        bundle.read_references(artifact.folder),
        layout_of(job.format, job.profile, job.opset),
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
            f"{', '.join(limits)} are for quantize='auto'. Received: {received} for quantize={quantize!r:.60}"
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
            "calibration out; texts= are what a bundle is compared with Keras on"
        )
    return None


def _with_tokenizer(model: Any, wish: Wish, quantize: str | Recipe) -> PretrainedModel:
    """The model, if its tokenizer can be part of what is exported."""
    if wish.tokenizer != IN_GRAPH or wish.format not in ("tflite", "saved-model"):
        raise ExportError(
            f"tokenizer={IN_GRAPH!r}, for format='tflite' or 'saved-model', was expected. "
            f"Received: tokenizer={wish.tokenizer!r}, format={wish.format!r}"
        )
    if wish.format == "saved-model" and quantize != "none":
        raise ExportError(f"A SavedModel keeps its weights as they are. Received: quantize={quantize!r}")
    chosen: PretrainedModel = model if isinstance(model, PretrainedModel) else load(model, wish.task)
    check_in_graph(chosen)
    return chosen


def _silent(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


def _check_arguments(model: Any, wish: Wish) -> None:
    """All that can be said before a model is loaded."""
    format, lengths, profile = wish.format, wish.lengths, wish.profile
    if format not in FORMATS:
        raise ExportError(f"Unknown format. Expected one of {', '.join(FORMATS)}. Received: {format!r}")
    for module in ("tf2onnx", "onnx", "onnxruntime") if format == "onnx" else ("ai_edge_litert", "flatbuffers"):
        require(module, "export")
    if not (isinstance(model, PretrainedModel | str | Path) or is_keras_hub(model)):
        raise ExportError(
            "A model of kerasformer.zoo or of KerasHub, a folder, a preset or a hub id was expected. "
            f"Received: {type(model).__name__}"
        )
    if lengths is not None and (not lengths or not all(isinstance(n, int) and n >= 1 for n in lengths)):
        raise InputError(f"lengths must be one or more whole numbers of at least 1. Received: {lengths}")
    if format != "onnx" and (profile is not None or wish.opset is not None):
        raise InputError(f"profile and opset are for format='onnx'. Received: profile={profile!r}, opset={wish.opset}")
    if profile is not None and profile not in PROFILES:
        raise ExportError(f"Unknown profile. Expected one of {', '.join(PROFILES)}. Received: {profile!r}")


def _checked(model: PretrainedModel | str | Path, wish: Wish) -> Job:
    task, format = wish.task, wish.format or FORMATS[0]
    if not isinstance(model, PretrainedModel):
        model = load(model, task)
    if task is not None and TASK_ALIASES.get(task, task) != model.task:
        raise InputError(f"This model is for {model.task}. Received: task={task!r}")
    limit = None if model.is_encoder_decoder else model.max_length
    chosen: int | None = None
    if model.generates:
        chosen = _capacity(wish.capacity, limit)
    elif wish.capacity is not None:
        raise InputError(f"capacity is for models that generate. Received: capacity={wish.capacity} for {model.task}")
    wanted = lengths_up_to(model.max_length) if wish.lengths is None else tuple(sorted(set(wish.lengths)))
    if model.max_length is not None and max(wanted) > model.max_length:
        raise InputError(f"lengths must lie between 1 and {model.max_length}. Received: {list(wanted)}")
    info, encoder_capacity = model.info(task), None
    if model.is_encoder_decoder:
        encoder_capacity = max(wanted)
    if model.is_encoder_decoder or (format == "tflite" and not model.generates):
        info = replace(info, max_length=max(wanted))
    profile = (wish.profile or PROFILES[0]) if format == "onnx" else None
    return Job(model, info, format, chosen, encoder_capacity, wanted, profile, wish.opset)


def _capacity(wanted: int | None, limit: int | None) -> int:
    """A multiple of the longest prefill, as LiteRT-LM asks, unless the model is smaller than that."""
    chosen = min(DEFAULT_CAPACITY, limit or DEFAULT_CAPACITY) if wanted is None else wanted
    if chosen < 2 or (limit is not None and chosen > limit):
        raise InputError(f"capacity must lie between 2 and {limit or 'any number'}. Received: capacity={wanted}")
    step = max(PREFILL_LENGTHS)
    return chosen if chosen < step or wanted is not None else chosen // step * step


def _write_companions(job: Job, folder: Path) -> None:
    """Configuration, generation settings and tokenizer, as Hugging Face names them."""
    config = {"architectures": [job.model.architecture], **job.model.config.to_hf()}
    files = {"config.json": config}
    if job.model.generates:
        files["generation_config.json"] = job.info.generation
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if job.model.tokenizer is not None:
        job.model.tokenizer.save(folder)


def _in_child(
    model: Any,
    destination: str | Path,
    wish: Wish,
    target: str | None,
    recipe: Recipe | Budget,
    overwrite: bool,
    given: Mapping[str, Sequence[Any] | None],
) -> Path:
    """The same under TensorFlow, whose tracing both converters need; the model goes there as a checkpoint."""
    require("tensorflow", "export")
    if isinstance(recipe, Recipe) and RECIPES.get(recipe.name) != recipe:
        raise ExportError(
            f"A recipe of your own needs the TensorFlow backend of Keras (KERAS_BACKEND=tensorflow). Received: {recipe}"
        )
    options: dict[str, Any] = {**asdict(wish), "target": target}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = model
        if isinstance(model, PretrainedModel):
            source = model.save_pretrained(folder / "checkpoint")
            options["task"] = wish.task or model.task
        # --debug, for then the last line of stderr names the error's type.
        command = [sys.executable, "-m", "kerasformer.cli", "--debug", "export", str(source), str(destination)]
        options |= _as_options(recipe)
        for option, texts in given.items():
            if texts is not None:
                rows = [json.dumps(t.to_dict()) if isinstance(t, Example) else t.replace("\n", " ") for t in texts]
                options[option] = folder / (f"{option}.jsonl" if isinstance(texts[0], Example) else f"{option}.txt")
                options[option].write_text("\n".join(rows), encoding="utf-8")
        for option, value in options.items():
            values = value if isinstance(value, list | tuple) else [value]
            name = option.replace("_", "-")
            command += [part for each in values if each is not None for part in (f"--{name}", str(each))]
        command += ["--overwrite"] if overwrite else []
        environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise _error_of(done.stderr)
    return Path(destination).expanduser().resolve()


def _as_options(recipe: Recipe | Budget) -> dict[str, Any]:
    """Of the command line."""
    return {"quantize": recipe.name} if isinstance(recipe, Recipe) else {"quantize": AUTO, **asdict(recipe)}


def _error_of(log: str) -> Exception:
    """The error that ended a child process, as it would have been raised here."""
    found = re.findall(r"^kerasformer\.errors\.(\w+): (.*)", log, re.MULTILINE)
    if not found:
        return ExportError(f"The export in a TensorFlow process failed: {log.strip()[-2000:]}")
    name, message = found[-1]
    return getattr(errors, name)(message)

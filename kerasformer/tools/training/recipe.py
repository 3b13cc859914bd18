"""Recipes: TOML files that say how a model is trained, for `kerasformer train`."""

from __future__ import annotations

import csv
import os
import shutil
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import keras
import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, instance, integer, number, one_of, sequence
from kerasformer.basics.options import Option, checked
from kerasformer.errors import CheckpointError, InputError
from kerasformer.extras import require
from kerasformer.files.publishing import move_files, staging
from kerasformer.files.reading import local_path
from kerasformer.files.sources import inside
from kerasformer.models import Config, PretrainedModel, architecture, build, describe, load
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.evaluation import Example, Examples, read_documents, read_examples, text_to_text
from kerasformer.tools.evaluation.glue import glue_task
from kerasformer.tools.training.callbacks import Curve, Evaluate, SavePretrained, StopOnNaN
from kerasformer.tools.training.datasets import dataset
from kerasformer.tools.training.mixtures import TEMPERATURE, mixture
from kerasformer.tools.training.optimizers import SCHEDULES, optimizer
from kerasformer.tools.training.pretraining import (
    OBJECTIVES,
    ObjectiveOptions,
    batches,
    needed_tokens,
    trained,
    usual_task,
    with_needed_tokens,
)
from kerasformer.tools.training.resume import Resume
from kerasformer.tools.training.vocabularies import train_tokenizer

_TABLE = instance("a table", dict)


class ModelOptions(TypedDict, total=False):
    """Table `[model]` of a recipe.

    Attributes:
        source: Preset, folder, GGUF file or hub id of the model that is trained further; relative to the data.
        architecture: Architecture of a model that starts from random weights, such as `gpt2`.
        config: Fields of its configuration, such as `num_layers`.
        task: Task; that of the source or architecture by default.
        labels: Names of the classes.
        problem_type: `single_label_classification`, `multi_label_classification` or `regression`.
        new_head: Whether to start with a new head although the source has one.
        dtype: Keras' dtype policy, such as `mixed_bfloat16`.
        generation: Generation settings that are saved with the model.
    """

    source: Annotated[str, Option(STRING)]
    architecture: Annotated[str, Option(STRING)]
    config: Annotated[Mapping[str, Any], Option(_TABLE, {})]
    task: Annotated[str, Option(STRING)]
    labels: Annotated[Sequence[str], Option(sequence(STRING))]
    problem_type: Annotated[str, Option(STRING)]
    new_head: Annotated[bool, Option(BOOLEAN, False)]
    dtype: Annotated[str, Option(STRING)]
    generation: Annotated[Mapping[str, Any], Option(_TABLE, {})]


class TokenizerOptions(TypedDict, total=False):
    """Table `[tokenizer]` of a recipe: a vocabulary that is trained on its texts.

    Attributes:
        algorithm: `bpe`, `unigram` or `wordpiece`.
        vocab_size: Number of tokens.
    """

    algorithm: Annotated[str, Option(one_of("bpe", "unigram", "wordpiece"), "bpe")]
    vocab_size: Annotated[int, Option(integer(1), 8192)]


class TaskOptions(TypedDict, total=False):
    """Table `[[data.tasks]]` of a recipe: the texts of one of several tasks.

    Attributes:
        train: Files of texts, in the formats of `kerasformer eval`.
        validation: File of texts whose loss is computed after each epoch, with those of the other tasks.
        glue: Task of GLUE or SuperGLUE of the files, whose texts and labels become those of T5.
        text_column: Column of the texts.
        label_column: Column of the labels.
        prefix: Text put before each text, for text2text-generation.
        rate: Share of the task, for all tasks or for none of them.
    """

    train: Annotated[Sequence[str], Option(sequence(STRING, 1))]
    validation: Annotated[str, Option(STRING)]
    glue: Annotated[str, Option(STRING)]
    text_column: Annotated[str, Option(STRING)]
    label_column: Annotated[str, Option(STRING)]
    prefix: Annotated[str, Option(STRING)]
    rate: Annotated[float, Option(number(above=0))]


class DataOptions(TypedDict, total=False):
    """Table `[data]` of a recipe; files are relative to the folder of the data.

    An objective, which makes its own batches, has no `vectors`, `class_weights`, `pad_to`, `prefix` and `pack`.

    Attributes:
        train: Files of texts, in the formats of `kerasformer eval`.
        tasks: Several tasks in place of the files; see `TaskOptions`.
        limit: Largest number of texts that counts for the rate of a task; see `mixing_rates`.
        temperature: 1 for rates of tasks in proportion to their texts, `inf` for equal ones; see `mixing_rates`.
        size: Number of texts of an epoch of several tasks; see `mixture`.
        validation: File of texts that are evaluated after each epoch.
        vectors: NumPy files `(N, D)` with the vector of each text of `train`, for sentence-similarity.
        text_column: Column of the texts.
        label_column: Column of the labels.
        skip_bad: Whether rows that cannot be read are skipped; their number is printed.
        class_weights: Whether rare classes have a higher weight in the loss, so that all have the same influence.
        batch_size: Number of texts of a batch.
        max_length: Maximum number of tokens of a text.
        pad_to: Lengths in tokens to which batches are padded.
        prefix: Text put before each text.
        pack: Whether texts are put one after another and cut into rows of `max_length` tokens.
    """

    train: Annotated[Sequence[str], Option(sequence(STRING, 1))]
    tasks: Annotated[Sequence[TaskOptions], Option(sequence(_TABLE, 1))]
    limit: Annotated[int, Option(integer(1))]
    temperature: Annotated[float, Option(TEMPERATURE)]
    size: Annotated[int, Option(integer(1))]
    validation: Annotated[str, Option(STRING)]
    vectors: Annotated[Sequence[str], Option(sequence(STRING))]
    text_column: Annotated[str, Option(STRING)]
    label_column: Annotated[str, Option(STRING)]
    skip_bad: Annotated[bool, Option(BOOLEAN, False)]
    class_weights: Annotated[bool, Option(BOOLEAN, False)]
    batch_size: Annotated[int, Option(integer(1), 32)]
    max_length: Annotated[int, Option(integer(1))]
    pad_to: Annotated[Sequence[int], Option(sequence(integer(1)))]
    prefix: Annotated[str, Option(STRING)]
    pack: Annotated[bool, Option(BOOLEAN, False)]


class LoraOptions(TypedDict, total=False):
    """Table `[lora]` of a recipe: the model is frozen, and a low-rank adapter is trained.

    Attributes:
        rank: Rank of the products.
        alpha: Scale of the products, times the rank; twice the rank by default.
        target_modules: Modules with a product; all linear layers by default.
    """

    rank: Annotated[int, Option(integer(1), 16)]
    alpha: Annotated[float, Option(number(above=0))]
    target_modules: Annotated[Sequence[str], Option(sequence(STRING))]


class TrainingOptions(TypedDict, total=False):
    """Table `[training]` of a recipe.

    Attributes:
        epochs: Number of times that each text is read.
        learning_rate: Highest learning rate.
        optimizer: `adamw` or `adafactor`.
        schedule: Course of the learning rate after the warm-up.
        warmup: Share of the steps in which the learning rate rises.
        weight_decay: Weight decay of matrices; norms and biases have none.
        layer_decay: Factor of the learning rate from each layer to the one below it.
        clip_norm: Largest norm of all gradients.
        evaluate: Whether the metrics of `kerasformer eval` are computed on the validation data after each epoch.
        monitor: Figure by which the best epoch is kept, such as `val_f1`; the last epoch by default.
        save_every: Number of batches after which the state is saved, beside after each epoch.
        seed: Seed of the initial weights, of dropout and of the order of the texts.
    """

    epochs: Annotated[int, Option(integer(1), 3)]
    learning_rate: Annotated[float, Option(number(above=0), 5e-5)]
    optimizer: Annotated[str, Option(one_of("adamw", "adafactor"), "adamw")]
    schedule: Annotated[str, Option(one_of(*SCHEDULES), "linear")]
    warmup: Annotated[float, Option(number(0, 1), 0.1)]
    weight_decay: Annotated[float, Option(number(0), 0.01)]
    layer_decay: Annotated[float, Option(number(0, 1), 1.0)]
    clip_norm: Annotated[float, Option(number(above=0), 1.0)]
    evaluate: Annotated[bool, Option(BOOLEAN, False)]
    monitor: Annotated[str, Option(STRING)]
    save_every: Annotated[int, Option(integer(1))]
    seed: Annotated[int, Option(integer(0), 0)]


_LABELLED = "vectors", "class_weights", "pad_to", "prefix", "pack"
"""Keys of `[data]` that only the batches of texts with labels have, see `dataset`."""

_TABLES = {
    "model": ModelOptions,
    "tokenizer": TokenizerOptions,
    "data": DataOptions,
    "objective": ObjectiveOptions,
    "lora": LoraOptions,
    "training": TrainingOptions,
}


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes:
        name: Name for messages, such as that of its file.
        model: See `ModelOptions`.
        data: See `DataOptions`.
        training: See `TrainingOptions`.
        tokenizer: See `TokenizerOptions`; empty if the model has a tokenizer.
        objective: See `ObjectiveOptions`; empty for texts with labels.
        lora: See `LoraOptions`; empty to train all weights.
    """

    name: str
    model: ModelOptions
    data: DataOptions
    training: TrainingOptions
    tokenizer: TokenizerOptions = field(default_factory=lambda: TokenizerOptions())
    objective: ObjectiveOptions = field(default_factory=lambda: ObjectiveOptions())
    lora: LoraOptions = field(default_factory=lambda: LoraOptions())

    @classmethod
    def read(cls, path: str | os.PathLike[str], changes: Mapping[str, object] | None = None) -> Recipe:
        """Reads a recipe.

        Args:
            path: TOML file.
            changes: Values that replace those of the file, by `table.key`.

        Raises:
            InputError: the file cannot be read, a table or key is unknown, or a value is not accepted.
        """
        file = local_path(path, InputError)
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"A recipe in TOML was expected. Received: {file}: {error}") from error
        for name, value in (changes or {}).items():
            table, _, key = name.partition(".")
            content.setdefault(table, {})[key] = value
        return cls.create(file.stem, content)

    @classmethod
    def create(cls, name: str, content: Mapping[str, Any]) -> Recipe:
        """Checks the tables of a recipe.

        Raises:
            InputError: a table or key is unknown, a value is not accepted, or one that is needed is missing.
        """
        if unknown := [table for table in content if table not in _TABLES]:
            raise InputError(f"{name}: tables {', '.join(_TABLES)} were expected. Received: {', '.join(unknown)}")
        tables: dict[str, Any] = {
            table: checked(options, content.get(table, {}), f"the table [{table}] of {name}")
            for table, options in _TABLES.items()
            if table in content or table in ("model", "data", "training")
        }
        if ("source" in tables["model"]) == ("architecture" in tables["model"]):
            raise InputError(f"{name}: [model] needs either source or architecture. Received: {dict(tables['model'])}")
        if "architecture" in tables["model"] and "tokenizer" not in tables:
            raise InputError(f"{name}: a model that starts from random weights needs the table [tokenizer]")
        if "tasks" in tables["data"]:
            tables["data"]["tasks"] = _checked_tasks(name, tables)
        elif ignored := [key for key in _OF_TASKS if key in tables["data"]]:
            raise InputError(f"{name}: {', '.join(ignored)} are for [[data.tasks]]. Received: none of these")
        elif not tables["data"].get("train"):
            raise InputError(f"{name}: [data] needs train, a list of files of texts. Received: none")
        if "objective" in tables and "name" not in tables["objective"]:
            raise InputError(f"{name}: [objective] needs name, one of {', '.join(OBJECTIVES)}. Received: none")
        without_effect = [key for key in _LABELLED if tables["data"].get(key)]
        if "objective" in tables and without_effect:
            raise InputError(
                f"{name}: {', '.join(without_effect)} of [data] would have no effect, since an objective makes its own "
                "batches of texts without labels. Remove it from [data], or the table [objective]"
            )
        if "lora" in tables and tables["training"].get("monitor"):
            raise InputError(f"{name}: an adapter is saved after the last epoch. Expected: no monitor, or no [lora]")
        return cls(name, **tables)


_OF_TASKS = ("limit", "temperature", "size")
"""Keys of `[data]` for several tasks alone."""
_OF_FILES = ("train", "validation", "vectors", "text_column", "label_column", "prefix", "class_weights")
"""Keys of `[data]` for files without tasks."""


def _checked_tasks(name: str, tables: Mapping[str, Any]) -> list[TaskOptions]:
    """Returns the tables of tasks with their values in plain form.

    Raises:
        InputError: a value is not accepted, or would be ignored.
    """
    data = tables["data"]
    if ignored := [key for key in _OF_FILES if data.get(key)]:
        raise InputError(f"{name}: [data] with tasks has no {', '.join(ignored)}. Put it into [[data.tasks]], if there")
    if "objective" in tables or tables["training"]["evaluate"]:
        key = "[objective]" if "objective" in tables else "training.evaluate"
        raise InputError(f"{name}: several tasks have labels of their own. Expected: no {key}, or no [[data.tasks]]")
    tasks = [checked(TaskOptions, task, f"the table [[data.tasks]] of {name}") for task in data["tasks"]]
    if any("train" not in task for task in tasks):
        raise InputError(f"{name}: [[data.tasks]] needs train, a list of files of texts. Received: none")
    if any(key in task for task in tasks if "glue" in task for key in ("text_column", "label_column", "prefix")):
        raise InputError(f"{name}: a task with glue has the columns and the form of that task. Received: others, too")
    rates = ["rate" in task for task in tasks]
    if any(rates) and (not all(rates) or "limit" in data or "temperature" in data):
        raise InputError(f"{name}: rate was expected for all tasks, without limit and temperature, or for none of them")
    return tasks


def train(
    recipe: Recipe,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    picture: str | os.PathLike[str] | None = None,
    tensorboard: str | os.PathLike[str] | None = None,
    verbose: int | str = "auto",
) -> keras.callbacks.History:
    """Trains a model and saves it in Hugging Face's format, in float16, with its figures in `training.csv`.

    The state of the training is kept in a folder beside `out`, with the suffix `.training`, until the model is saved:
    after a kill, the same call continues where it was, with the same curve.

    Args:
        recipe: The recipe.
        data: Folder of its files.
        out: New folder for the model; for an adapter, `kf.load` loads it with its base model.
        picture: Picture of the curve, ending in `.png` or `.svg`, with the extra `viz`.
        tensorboard: Folder for TensorBoard, with the extra `train`.
        verbose: Output of `fit`.

    Returns:
        The history of `fit`: the losses and metrics of each epoch.

    Raises:
        InputError: a file of the recipe is missing or cannot be read, or the folder exists.
        CheckpointError: the state beside the folder is that of another recipe; or the disk is full, which leaves the
            state of the last save.
        TrainingError: the loss is not a finite number.
        MissingExtraError: matplotlib or TensorBoard is needed and not installed.
    """
    out, folder = local_path(out), local_path(data)
    if out.exists():
        raise InputError(f"A new folder was expected. Received: {out}, which exists")
    if tensorboard:
        require("tensorboard", "train")
    aside = out.with_name(f"{out.name}.training")
    settings: dict[str, Any] = dict(recipe.training)
    names = "epochs", "learning_rate", "optimizer", "seed", "evaluate"
    epochs, learning_rate, name, seed, evaluates = (settings.pop(key) for key in names)
    monitor, every = settings.pop("monitor", None), settings.pop("save_every", None)
    keras.utils.set_random_seed(seed)
    tasks = recipe.data.get("tasks", ())
    parts = [_task(recipe, folder, task, task["train"]) for task in tasks]
    texts = [text for part in parts for text in part] if tasks else _read(recipe, folder, recipe.data["train"])
    model = _model(recipe, folder, texts)
    _check_prefixes(recipe, model)
    train_data, *figures = _mixture(recipe, model, parts) if tasks else _dataset(recipe, model, texts)
    fitted, loss, metrics = trained(recipe.objective, model) if recipe.objective else (model, *figures)
    rates = optimizer(model, learning_rate, steps=epochs * len(train_data), name=name, **settings)
    fitted.compile(rates, loss, metrics=metrics)
    callbacks: list[keras.callbacks.Callback] = [StopOnNaN()]
    validation = None
    if held_out := _held_out(recipe, folder):
        validation = _dataset(recipe, model, held_out, shuffle=False)[0]
        callbacks += [Evaluate(held_out)] if evaluates else []
    kept = [SavePretrained(aside / "best", monitor, dtype="float16")] if monitor else []
    callbacks += kept
    callbacks += [Curve(picture, recipe.name)] if picture else []
    callbacks += [keras.callbacks.TensorBoard(str(tensorboard))] if tensorboard else []
    identity = {table: getattr(recipe, table) for table in _TABLES}
    callbacks.append(Resume(aside, every=every, dataset=train_data, callbacks=kept, recipe=identity))
    history = fitted.fit(train_data, validation_data=validation, epochs=epochs, callbacks=callbacks, verbose=verbose)
    with staging(out, "model", CheckpointError) as new:
        if kept:
            shutil.copytree(aside / "best", new, dirs_exist_ok=True)
        elif recipe.lora:
            model.save_adapter(new, dtype="float16", base_model=recipe.model["source"])
        else:
            model.save_pretrained(new, dtype="float16")
        _write_history(new / "training.csv", history.history)
        move_files(new, out)
    shutil.rmtree(aside)
    return history


def _check_prefixes(recipe: Recipe, model: PretrainedModel) -> None:
    """Refuses trainings after which a model would read prompts in other directions than it was trained to."""
    learns_prefixes = recipe.objective.get("name") == "prefix_lm" and not model.is_encoder_decoder
    if model.config.prefix_lm and not learns_prefixes:
        raise InputError(
            f"{recipe.name}: a prefix language model (prefix_lm) reads prompts in both directions. Expected: the "
            f"objective prefix_lm. Received: {recipe.objective.get('name', 'no objective')}"
        )
    if recipe.lora and learns_prefixes and not model.config.prefix_lm:
        raise InputError(
            f"{recipe.name}: an adapter does not make its base a prefix language model, so that it would read prompts "
            "causally. Expected: no [lora], or a source with prefix_lm. Received: [lora] and the objective prefix_lm"
        )


def _write_history(path: Path, history: Mapping[str, Sequence[float]]) -> None:
    """Writes the figures of each epoch as a table."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", *history])
        writer.writerows([epoch, *row] for epoch, row in enumerate(zip(*history.values(), strict=True), 1))


def _held_out(recipe: Recipe, folder: Path) -> list[Example]:
    """Reads the texts that are evaluated after each epoch."""
    if file := recipe.data.get("validation"):
        return _read(recipe, folder, [file], vectors=False)
    tasks = [task for task in recipe.data.get("tasks", ()) if "validation" in task]
    return [text for task in tasks for text in _task(recipe, folder, task, [task["validation"]])]


def _task(recipe: Recipe, folder: Path, task: TaskOptions, names: Sequence[str]) -> list[Example]:
    """Reads the texts of a task, with its prefix or in the form of T5."""
    named, glue = (task.get("text_column"), task.get("label_column")), task.get("glue")
    columns = glue_task(glue).columns if glue else None
    texts: list[Example] = []
    for name in names:
        read = read_examples(inside(folder, name), *named, columns=columns, skip_bad=recipe.data["skip_bad"])
        _warn_of_skipped(name, read)
        texts += read
    if glue:
        return text_to_text(texts, glue)
    prefix = task.get("prefix", "")
    return [replace(example, text=prefix + example.text) for example in texts]


def _warn_of_skipped(name: str, read: Examples) -> None:
    if read.skipped:
        warnings.warn(f"{len(read.skipped)} rows of {name} were skipped. The first: {read.skipped[0]}", stacklevel=4)


def _read(recipe: Recipe, folder: Path, names: Sequence[str], vectors: bool = True) -> list[Example]:
    """Reads the texts of files, with their vectors as labels if the recipe has some."""
    columns = recipe.data.get("text_column"), recipe.data.get("label_column")
    texts: list[Example] = []
    has_documents = bool(recipe.objective) and OBJECTIVES[recipe.objective["name"]].unit == "documents"
    for name in names:
        read = (read_documents if has_documents else read_examples)(
            inside(folder, name), *columns, skip_bad=recipe.data["skip_bad"]
        )
        texts += read
        _warn_of_skipped(name, read)
    if not vectors or not (files := recipe.data.get("vectors")):
        return texts
    arrays = np.concatenate([np.load(inside(folder, name), allow_pickle=False) for name in files])
    if len(arrays) != len(texts):
        raise InputError(f"A vector for each text was expected. Received: {len(texts)} texts, {len(arrays)} vectors")
    return [Example(example.text, vector) for example, vector in zip(texts, arrays, strict=True)]


def _model(recipe: Recipe, folder: Path, texts: Sequence[Example]) -> PretrainedModel:
    """Loads or creates the model of a recipe."""
    chosen: dict[str, Any] = dict(recipe.model)
    generation = chosen.pop("generation")
    model = _loaded(recipe, folder, chosen) if "source" in chosen else _built(recipe, chosen, texts)
    model.generation_config = model.generation_config.replace(**generation)
    if recipe.lora:
        rank = recipe.lora["rank"]
        modules = recipe.lora.get("target_modules", "all-linear")
        model.enable_lora(rank=rank, alpha=recipe.lora.get("alpha", 2.0 * rank), target_modules=modules)
    return model


def _loaded(recipe: Recipe, folder: Path, chosen: dict[str, Any]) -> PretrainedModel:
    """Loads the model of a source."""
    if config := chosen.pop("config"):
        raise InputError(f"{recipe.name}: the source has a configuration. Expected: no config. Received: {config}")
    source = chosen.pop("source")
    if (folder / source).exists():
        source = inside(folder, source)
    task = chosen.pop("task", None)
    if not recipe.objective:
        return load(source, task, **chosen)
    name = recipe.objective["name"]
    model = load(source, task, **chosen)
    if task is None and model.task not in OBJECTIVES[name].tasks:
        tasks = list(architecture(model.config.model_type).MODELS)
        model = load(source, usual_task(name, tasks), **chosen)
    extended = with_needed_tokens(name, model)
    if extended is not model and recipe.lora:
        raise InputError(
            f"{recipe.name}: the source lacks a token that {name} needs, whose new embedding an adapter does not have. "
            "Expected: no [lora]"
        )
    return extended


def _built(recipe: Recipe, chosen: dict[str, Any], texts: Sequence[Example]) -> PretrainedModel:
    """Creates a model with random weights and a vocabulary of the texts."""
    lines = (text for example in texts for text in (example.text, example.label) if isinstance(text, str))
    module, task = architecture(chosen["architecture"]), chosen.get("task")
    needed: dict[str, Any] = {}
    if recipe.objective:
        task = task or usual_task(recipe.objective["name"], list(module.MODELS))
        needed = needed_tokens(recipe.objective["name"])
    tokenizer = train_tokenizer(
        lines, **recipe.tokenizer, **needed, branch=describe(module).branch, max_length=recipe.data.get("max_length")
    )
    defaults = next(iter(module.MODELS.values())).backbone_type.config_type.create()
    settings: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, **_ids(defaults, tokenizer)}
    settings |= chosen.pop("config")
    if labels := chosen.pop("labels", None):
        settings["id2label"] = dict(enumerate(labels))
    if problem := chosen.pop("problem_type", None):
        settings["problem_type"] = problem
    model = build(chosen["architecture"], task, dtype=chosen.get("dtype"), **settings)
    tokenizer.keep_inputs(model.input_names)
    model.set_tokenizer(tokenizer)
    return model


def _ids(defaults: Config, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the ids of special tokens in a configuration, such as that of the start of a decoder.

    Where the default of a configuration is that of another id, such as of the end, it is that of the tokenizer.
    """
    names = "pad_token_id", "bos_token_id", "eos_token_id"
    own = {name: index for name in (*names, "sep_token_id") if (index := getattr(tokenizer, name)) is not None}
    settings = {name: own[name] for name in names if name in own and hasattr(defaults, name)}
    usual = {getattr(defaults, name, None): index for name, index in own.items()}
    for name, ids in defaults.token_ids.items():
        if name not in names and len(ids) == 1 and ids[0] in usual:
            settings[name] = usual[ids[0]]
    return settings


def _dataset(
    recipe: Recipe, model: PretrainedModel, texts: Sequence[Example], shuffle: bool = True
) -> tuple[keras.utils.PyDataset, Any, Any]:
    """Returns the batches of texts, with the loss and the metrics that suit them; `None` for an objective."""
    seed = recipe.training["seed"]
    if recipe.objective:
        size, limit = recipe.data["batch_size"], recipe.data.get("max_length")
        data = batches(recipe.objective, model, texts, batch_size=size, max_length=limit, seed=seed, shuffle=shuffle)
        return data, None, None
    settings = _settings(recipe, "batch_size", "max_length", "pad_to", "prefix", "pack", "class_weights")
    settings |= {"prefix": ""} if "tasks" in recipe.data else {}  # which is in the texts
    made = dataset(model, texts, seed=seed, shuffle=shuffle, **settings)
    return made, made.loss, made.metrics


def _mixture(
    recipe: Recipe, model: PretrainedModel, parts: Sequence[Sequence[Example]]
) -> tuple[keras.utils.PyDataset, Any, Any]:
    """Returns the batches of the texts of several tasks, with the loss and the metrics that suit them."""
    tasks = recipe.data["tasks"]
    written = [key for key in ("glue", "prefix") if any(key in task for task in tasks)]
    if written and model.task != "text2text-generation":
        raise InputError(
            f"{recipe.name}: {' and '.join(written)} of [[data.tasks]] are for text2text-generation. "
            f"Received: a model for {model.task}"
        )
    settings = _settings(recipe, "batch_size", "max_length", "pad_to", "pack", "limit", "temperature", "size")
    rates = [task["rate"] for task in tasks] if "rate" in tasks[0] else None
    made = mixture(model, parts, rates=rates, seed=recipe.training["seed"], **settings)
    return made, made.loss, made.metrics


def _settings(recipe: Recipe, *names: str) -> dict[str, Any]:
    """Returns the values of `[data]` that the recipe has."""
    return {name: recipe.data[name] for name in names if name in recipe.data}  # type: ignore[literal-required]

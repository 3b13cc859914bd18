"""Recipes: TOML files that say how a model is trained, for `kerasformer train`."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import keras
import numpy as np

from kerasformer.arguments import BOOLEAN, STRING, instance, integer, number, one_of, sequence
from kerasformer.errors import InputError
from kerasformer.evaluation.examples import Example, read_examples
from kerasformer.files.reading import local_path
from kerasformer.files.sources import inside
from kerasformer.models.loading import architecture, build, load
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.options import Option, checked
from kerasformer.training.datasets import Dataset, dataset
from kerasformer.training.optimizers import SCHEDULES, optimizer
from kerasformer.training.vocabularies import train_tokenizer

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


class DataOptions(TypedDict, total=False):
    """Table `[data]` of a recipe; files are relative to the folder of the data.

    Attributes:
        train: Files of texts, in the formats of `kerasformer eval`.
        validation: File of texts that are evaluated after each epoch.
        vectors: NumPy files `(N, D)` with the vector of each text of `train`, for sentence-similarity.
        text_column: Column of the texts.
        label_column: Column of the labels.
        batch_size: Number of texts of a batch.
        max_length: Maximum number of tokens of a text.
        pad_to: Lengths in tokens to which batches are padded.
        prefix: Text put before each text.
        pack: Whether texts are put one after another and cut into rows of `max_length` tokens.
    """

    train: Annotated[Sequence[str], Option(sequence(STRING, 1))]
    validation: Annotated[str, Option(STRING)]
    vectors: Annotated[Sequence[str], Option(sequence(STRING))]
    text_column: Annotated[str, Option(STRING)]
    label_column: Annotated[str, Option(STRING)]
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
    seed: Annotated[int, Option(integer(0), 0)]


_TABLES = {
    "model": ModelOptions,
    "tokenizer": TokenizerOptions,
    "data": DataOptions,
    "lora": LoraOptions,
    "training": TrainingOptions,
}


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes:
        name: Name for messages, such as that of its file.
        model: See `ModelOptions`.
        tokenizer: See `TokenizerOptions`; empty if the model has a tokenizer.
        data: See `DataOptions`.
        lora: See `LoraOptions`; empty to train all weights.
        training: See `TrainingOptions`.
    """

    name: str
    model: ModelOptions
    data: DataOptions
    training: TrainingOptions
    tokenizer: TokenizerOptions = field(default_factory=lambda: TokenizerOptions())
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
        if not tables["data"].get("train"):
            raise InputError(f"{name}: [data] needs train, a list of files of texts. Received: none")
        return cls(name, **tables)


def train(
    recipe: Recipe, data: str | os.PathLike[str], out: str | os.PathLike[str], *, verbose: int | str = "auto"
) -> keras.callbacks.History:
    """Trains a model and saves it in Hugging Face's format, in float16.

    Args:
        recipe: The recipe.
        data: Folder of its files.
        out: New folder for the model.
        verbose: Output of `fit`.

    Returns:
        The history of `fit`: the losses and metrics of each epoch.

    Raises:
        InputError: a file of the recipe is missing or cannot be read, or the folder exists.
    """
    out, folder = local_path(out), local_path(data)
    if out.exists():
        raise InputError(f"A new folder was expected. Received: {out}, which exists")
    keras.utils.set_random_seed(recipe.training["seed"])
    texts = _read(recipe, folder, recipe.data["train"])
    model = _model(recipe, folder, texts)
    train_data = _dataset(recipe, model, texts)
    validation = None
    if file := recipe.data.get("validation"):
        validation = _dataset(recipe, model, _read(recipe, folder, [file], vectors=False), shuffle=False)
    settings = dict(recipe.training)
    epochs, learning_rate, name = (settings.pop(key) for key in ("epochs", "learning_rate", "optimizer"))
    del settings["seed"]
    model.compile(
        optimizer(model, learning_rate, steps=epochs * len(train_data), name=name, **settings),
        train_data.loss,
        metrics=train_data.metrics,
    )
    history = model.fit(train_data, validation_data=validation, epochs=epochs, verbose=verbose)
    if recipe.lora:
        model.save_adapter(out)
    else:
        model.save_pretrained(out, dtype="float16")
    return history


def _read(recipe: Recipe, folder: Path, names: Sequence[str], vectors: bool = True) -> list[Example]:
    """Reads the texts of files, with their vectors as labels if the recipe has some."""
    columns = recipe.data.get("text_column"), recipe.data.get("label_column")
    texts = [example for name in names for example in read_examples(inside(folder, name), *columns)]
    if not vectors or not (files := recipe.data.get("vectors")):
        return texts
    arrays = np.concatenate([np.load(inside(folder, name), allow_pickle=False) for name in files])
    if len(arrays) != len(texts):
        raise InputError(f"A vector for each text was expected. Received: {len(texts)} texts, {len(arrays)} vectors")
    return [Example(example.text, vector) for example, vector in zip(texts, arrays, strict=True)]


def _model(recipe: Recipe, folder: Path, texts: Sequence[Example]) -> PretrainedModel:
    """Loads or creates the model of a recipe."""
    chosen: dict[str, Any] = dict(recipe.model)
    config, generation = chosen.pop("config"), chosen.pop("generation")
    if source := chosen.pop("source", None):
        if (folder / source).exists():
            source = inside(folder, source)
        if config:
            raise InputError(f"{recipe.name}: the source has a configuration. Expected: no config. Received: {config}")
        model = load(source, chosen.pop("task", None), **chosen)
    else:
        lines = (text for example in texts for text in (example.text, example.label) if isinstance(text, str))
        tokenizer = train_tokenizer(lines, **recipe.tokenizer, max_length=recipe.data.get("max_length"))
        ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        model_class = next(iter(architecture(chosen["architecture"]).MODELS.values()))
        known = {field.name for field in dataclasses.fields(model_class.backbone_type.config_type)}
        ids = {name: index for name, index in ids.items() if index is not None and name in known}
        settings = {**ids, "vocab_size": tokenizer.vocab_size, **config}
        labels = chosen.pop("labels", None)
        settings |= {"id2label": dict(enumerate(labels))} if labels else {}
        del chosen["new_head"]
        model = build(chosen.pop("architecture"), chosen.pop("task", None), **settings, **chosen)
        model.set_tokenizer(tokenizer)
    model.generation_config = model.generation_config.replace(**generation)
    if recipe.lora:
        rank = recipe.lora["rank"]
        modules = recipe.lora.get("target_modules", "all-linear")
        model.enable_lora(rank=rank, alpha=recipe.lora.get("alpha", 2.0 * rank), target_modules=modules)
    return model


def _dataset(recipe: Recipe, model: PretrainedModel, texts: Sequence[Example], **options: Any) -> Dataset:
    names = "batch_size", "max_length", "pad_to", "prefix", "pack"
    settings = {name: recipe.data[name] for name in names if name in recipe.data}  # type: ignore[literal-required]
    return dataset(model, texts, seed=recipe.training["seed"], **settings, **options)

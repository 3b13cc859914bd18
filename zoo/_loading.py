"""From a name or folder to a model: `load`, `build`, and the list of architectures."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from kerasformer import sources
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import InputError, SourceError, TokenizerError, UnsupportedConfigError
from kerasformer.zoo._config import generation_settings
from kerasformer.zoo._keras_hub import is_keras_hub, is_preset
from kerasformer.zoo._pretrained import HEAD, PretrainedModel, create
from kerasformer.zoo._tensors import open_tensors
from kerasformer.zoo._weights import load_weights

logger = logging.getLogger("kerasformer")

TASK_ALIASES = {"summarization": "text2text-generation", "translation": "text2text-generation"}
"""Tasks that are another task with a prefix before the text."""


@cache
def architectures() -> tuple[str, ...]:
    """All `model_type`s: the files of this folder without underscore."""
    folder = Path(__file__).parent
    names = (module.name for module in pkgutil.iter_modules([str(folder)]))
    return tuple(sorted(name for name in names if not name.startswith("_") and name != "presets"))


def architecture(model_type: str) -> ModuleType:
    """The file of an architecture.

    Raises:
        UnsupportedConfigError: no file has that name.
    """
    name = model_type.replace("-", "_")
    if name not in architectures():
        raise UnsupportedConfigError(
            f"This model_type is not implemented. Expected one of {', '.join(architectures())}. "
            f"Received: {model_type!r}"
        )
    return importlib.import_module(f"kerasformer.zoo.{name}")


def models() -> dict[str, tuple[str, ...]]:
    """The tasks of each architecture."""
    return {name: tuple(architecture(name).MODELS) for name in architectures()}


def build(model_type: str, task: str | None = None, *, dtype: Any = None, **settings: Any) -> PretrainedModel:
    """A model with random weights, from a configuration alone.

    Args:
        model_type: An architecture, such as `"gpt2"`.
        task: A task of it; the first one that generates or classifies by default.
        dtype: Keras dtype policy, such as `"mixed_bfloat16"`.
        settings: Fields of its configuration, such as `num_layers=4`.

    Raises:
        UnsupportedConfigError: an unknown architecture or setting.
        InputError: a task that the architecture does not have.
    """
    kinds = architecture(model_type).MODELS
    kind = _kind(kinds, model_type, task or _default_task(kinds))
    config = kind.backbone_type.config_type.create(**settings)
    model: PretrainedModel = create(kind, config, dtype)
    model.generation_config = GenerationConfig.from_dict({}, generation_settings(config.to_hf()))
    return model


def load(
    source: str | Path | Any,
    task: str | None = None,
    *,
    num_labels: int | None = None,
    id2label: Mapping[int, str] | None = None,
    dtype: Any = None,
    revision: str | None = None,
    token: str | None = None,
) -> PretrainedModel:
    """A model with the weights, tokenizer and generation settings of a checkpoint.

    Args:
        source: A preset, a folder in Hugging Face's format, or a hub id; or a task or backbone of KerasHub, or the
            folder of a preset of KerasHub.
        task: Hugging Face's name of a task; the one that the checkpoint was saved for by default.
        num_labels: Asks for a new, untrained head with so many classes.
        id2label: Names of the classes; asks for a new head too.
        dtype: Keras dtype policy, such as `"float16"` or `"mixed_bfloat16"`.
        revision: Branch, tag or commit on the hub.
        token: For private repositories.

    Returns:
        A `keras.Model`; `model.new_variables` names the variables of a head that was asked to be new.

    Raises:
        SourceError: nothing was found there, or a bundle.
        UnsupportedConfigError: an architecture, or a value of its configuration, that is not implemented.
        CheckpointError: weights that do not fit; one error lists all problems.
    """
    if is_keras_hub(source):
        from kerasformer.zoo._keras_hub_loading import from_keras_hub

        return from_keras_hub(source, task, num_labels=num_labels, id2label=id2label, dtype=dtype)
    folder = sources.resolve(source, revision=revision, token=token)
    if sources.kind(folder) == "bundle":
        raise SourceError(f"A checkpoint was expected. Received a bundle: {folder}. Open it with kerasformer.pipeline.")
    content = sources.read_json(folder / "config.json")
    if is_preset(content):
        from kerasformer.zoo._keras_hub_loading import load_preset

        return load_preset(folder, task, num_labels=num_labels, id2label=id2label, dtype=dtype)
    if "model_type" not in content:
        raise UnsupportedConfigError(f"config.json has no model_type. Received: {folder / 'config.json'}")
    kinds = architecture(str(content["model_type"])).MODELS
    kind = _kind(kinds, content["model_type"], task or _saved_task(kinds, content))
    config = kind.backbone_type.config_type.from_hf(_with_new_labels(content, kind, num_labels, id2label))
    file = open_tensors(folder)
    new = HEAD if num_labels is not None or id2label is not None else None
    name = str(source).rstrip("/").split("/")[-1]
    model: PretrainedModel = create(kind, config, dtype, build=False, name=name, **kind.parts(file))
    heads = {row.tensor for other in kinds.values() for row in other.head_table}
    fresh = load_weights(model, file, kind.backbone_type.names, heads, new)
    model.new_variables = tuple(fresh)
    if fresh:
        logger.warning("New and untrained, as asked: %s", ", ".join(fresh))
    model.generation_config = _generation_config(folder, content)
    model.tokenizer = _tokenizer(folder)
    return model


def _kind(kinds: Mapping[str, type[PretrainedModel]], model_type: str, task: str) -> type[PretrainedModel]:
    wanted = TASK_ALIASES.get(task, task)
    if wanted not in kinds:
        raise InputError(f"{model_type} has no such task. Expected one of {', '.join(kinds)}. Received: {task!r}")
    return kinds[wanted]


def _default_task(kinds: Mapping[str, Any]) -> str:
    preferred = ("text-generation", "text2text-generation", "fill-mask")
    return next((task for task in preferred if task in kinds), next(iter(kinds)))


def _saved_task(kinds: Mapping[str, type[PretrainedModel]], content: Mapping[str, Any]) -> str:
    """The task that the checkpoint was saved for."""
    saved = content.get("architectures") or []
    for task, kind in kinds.items():
        if kind.architecture in saved:
            return task
    if saved:
        known = ", ".join(f"{kind.architecture} ({task})" for task, kind in kinds.items())
        raise InputError(
            f"The checkpoint was saved for something that is not implemented; name one of its tasks. "
            f"Expected one of {known}. Received: architectures={saved}"
        )
    return _default_task(kinds)


def _with_new_labels(
    content: Mapping[str, Any], kind: type[PretrainedModel], num_labels: int | None, id2label: Mapping[int, str] | None
) -> Mapping[str, Any]:
    if num_labels is None and id2label is None:
        return content
    if not kind.has_labels:
        raise InputError(f"num_labels and id2label ask for a classification head, and {kind.task} has none.")
    labels = dict(id2label) if id2label is not None else {i: f"LABEL_{i}" for i in range(num_labels or 0)}
    if not labels or sorted(labels) != list(range(len(labels))) or num_labels not in (None, len(labels)):
        raise InputError(
            "id2label must name the classes 0, 1, 2 …, as many as num_labels. "
            f"Received: num_labels={num_labels}, id2label={id2label}"
        )
    return {**content, "id2label": labels}


def _generation_config(folder: Path, content: Mapping[str, Any]) -> GenerationConfig:
    settings = generation_settings(content)
    if (folder / "generation_config.json").exists():
        return GenerationConfig.load(folder, settings)
    return GenerationConfig.from_dict({}, settings)


def _tokenizer(folder: Path) -> Any:
    """The checkpoint's tokenizer, or `None` if it has no file of one."""
    from kerasformer.tokenization import load_tokenizer

    names = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json", "spiece.model")
    if not any((folder / name).exists() for name in names):
        return None
    try:
        return load_tokenizer(folder)
    except TokenizerError as error:
        raise TokenizerError(f"The checkpoint's tokenizer cannot be used: {error}") from error

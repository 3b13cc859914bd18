"""From a name or folder to a model: `load`, `build`, and the list of architectures."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from kerasformer import sources
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import (
    CheckpointError,
    InputError,
    KerasformerError,
    SourceError,
    UnsupportedConfigError,
    argument,
)
from kerasformer.files import read_json
from kerasformer.interop.keras_hub.names import is_keras_hub, is_preset
from kerasformer.models.config import Config
from kerasformer.models.head_request import HeadRequest
from kerasformer.models.pretrained import PretrainedModel, create
from kerasformer.models.tensor_files import TensorFile, open_tensors
from kerasformer.models.weight_table import build_within_memory, load_weights
from kerasformer.tasks import of_model
from kerasformer.tokenization.fitting import excess

logger = logging.getLogger("kerasformer")


@cache
def architectures() -> tuple[str, ...]:
    """All `model_type`s: the files of `kerasformer.zoo`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(sources.zoo_folder())])))


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
    """The tasks of each architecture, by its `model_type`."""
    return {_backbone(name).config_type.model_type: tuple(architecture(name).MODELS) for name in architectures()}


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
    kind = model_class(kinds, model_type, task or _default_task(kinds))
    config = kind.backbone_type.config_type.create(**settings)
    model: PretrainedModel = create(kind, config, dtype, build=False)
    build_within_memory(model)
    model.generation_config = GenerationConfig.from_dict({}, config.generation_settings())
    return model


def load(
    source: str | Path | Any,
    task: str | None = None,
    *,
    num_labels: int | None = None,
    id2label: Mapping[int, str] | None = None,
    labels: Sequence[str] | None = None,
    problem_type: str | None = None,
    new_head: bool = False,
    model_type: str | None = None,
    dtype: Any = None,
    revision: str | None = None,
    token: str | None = None,
) -> PretrainedModel:
    """A model with the weights, tokenizer and generation settings of a checkpoint.

    A checkpoint's own head is kept wherever its shapes fit. To fine-tune a pretrained encoder for a task of your own,
    ask for what the task needs, and the head starts untrained:

        zoo.load("bert-base-uncased", "text-classification", labels=["negative", "positive"])
        zoo.load("bert-base-uncased", "question-answering", new_head=True)

    Args:
        source: A preset, a folder in Hugging Face's format, or a hub id; or a task or backbone of KerasHub, or the
            folder of a preset of KerasHub.
        task: Hugging Face's name of a task; the one that the checkpoint was saved for by default.
        num_labels: Number of classes. A head of as many classes is kept; otherwise a new, untrained one starts.
        id2label: Names of the classes by number, likewise.
        labels: Names of the classes in order, likewise.
        problem_type: `"single_label_classification"`, `"multi_label_classification"` or `"regression"`: how the scores
            of the classes are trained and read.
        new_head: Starts an untrained head for any task, also where the checkpoint has one.
        model_type: The architecture, such as `"bert"`, where `config.json` names none or the wrong one.
        dtype: Keras dtype policy, such as `"float16"` or `"mixed_bfloat16"`.
        revision: Branch, tag or commit on the hub.
        token: For private repositories.

    Returns:
        A `keras.Model`; `model.new_variables` names the variables that start untrained. `model.tokenizer` is `None` if
        there is none, or if it cannot be read: the reason is logged.

    Raises:
        SourceError: nothing was found there, or a bundle.
        UnsupportedConfigError: an architecture, or a value of its configuration, that is not implemented.
        CheckpointError: weights that do not fit, or hold no finite numbers; one error lists all problems.
        InputError: a task that the architecture does not have, or arguments that contradict each other.
    """
    request = HeadRequest(num_labels, id2label, labels, problem_type, new_head)
    if is_keras_hub(source):
        from kerasformer.interop.keras_hub.conversion import from_keras_hub

        return from_keras_hub(source, task, request=request, dtype=dtype)
    folder = sources.resolve(source, revision=revision, token=token)
    if sources.kind(folder) == "bundle":
        raise SourceError(f"A checkpoint was expected. Received a bundle: {folder}. Open it with kerasformer.pipeline.")
    content = read_json(folder / "config.json")
    if is_preset(content):
        from kerasformer.interop.keras_hub.conversion import load_preset

        return load_preset(folder, task, request=request, dtype=dtype)
    file = open_tensors(folder)
    model_type = model_type or _model_type(content, file)
    kinds = architecture(model_type).MODELS
    kind = model_class(kinds, model_type, task or _saved_task(kinds, content, file))
    config = kind.backbone_type.config_type.from_hf(content)
    _check_layer_counts(config, file)
    config = request.applied(config, kind.task, kind.has_labels)
    name = str(source).rstrip("/").split("/")[-1]
    model: PretrainedModel = create(kind, config, dtype, build=False, name=name, **kind.parts(file))
    heads = {row.tensor for other in kinds.values() for row in other.head_table}
    start_head(model, load_weights(model, file, model.backbone.checkpoint_names(), heads, request.new), request)
    model.generation_config = _generation_config(folder, config, content)
    model.tokenizer = _tokenizer(folder, model_type)
    if told := excess(model.tokenizer, model.config.vocab_size):
        logger.warning(told)
    model.source = folder
    return model


def start_head(model: PretrainedModel, fresh: Sequence[str], request: HeadRequest) -> None:
    """Notes which variables of a model start untrained, and says so.

    Raises:
        InputError: a new head was asked for, and the model has none of its own.
    """
    if request.new_head and not fresh:
        raise InputError(
            f"new_head=True asks for a new head, and {model.task} of {model.config.model_type} has none of its own. "
            "Leave it out"
        )
    model.new_variables = tuple(fresh)
    if fresh:
        logger.warning("New and untrained, as asked: %s", ", ".join(fresh))


def _model_type(content: Mapping[str, Any], file: TensorFile) -> str:
    """The architecture that `config.json` names, or the one that its classes or the tensors belong to."""
    stated = content.get("model_type")
    if stated is not None:
        if not isinstance(stated, str):
            raise UnsupportedConfigError(f"model_type in config.json must be a text. Received: {stated!r}")
        return stated
    saved = _saved_classes(content)
    classes = {kind.architecture: name for name in models() for kind in architecture(name).MODELS.values()}
    found = [classes[each] for each in saved if each in classes]
    if not saved:
        found = [name for name in models() if _backbone(name).names.recognized(file)]
        if found:
            logger.warning("config.json has no model_type. Taken for %s, by the names of its tensors", found[0])
    if not found:
        raise UnsupportedConfigError(
            "config.json has no model_type, and neither its architectures nor the names of its tensors tell it. "
            f"Pass model_type=, one of {', '.join(architectures())}. "
            f"Received: architectures={saved}, tensors {', '.join(sorted(file)[:3])} …"
        )
    return found[0]


def _backbone(model_type: str) -> Any:
    return next(iter(architecture(model_type).MODELS.values())).backbone_type


def _saved_classes(content: Mapping[str, Any]) -> list[str]:
    saved = content.get("architectures") or []
    if not isinstance(saved, list) or not all(isinstance(name, str) for name in saved):
        raise UnsupportedConfigError(f"architectures in config.json must be a list of names. Received: {saved!r:.200}")
    return saved


def model_class(kinds: Mapping[str, type[PretrainedModel]], model_type: str, task: str) -> type[PretrainedModel]:
    """The class of an architecture for a task.

    Raises:
        InputError: the architecture has no such task.
    """
    wanted = of_model(task)
    if wanted not in kinds:
        raise InputError(f"{model_type} has no such task. Expected one of {', '.join(kinds)}. Received: {task!r}")
    return kinds[wanted]


def _default_task(kinds: Mapping[str, Any]) -> str:
    preferred = ("text-generation", "text2text-generation", "fill-mask")
    return next((task for task in preferred if task in kinds), next(iter(kinds)))


def _saved_task(kinds: Mapping[str, type[PretrainedModel]], content: Mapping[str, Any], file: TensorFile) -> str:
    """The task that the checkpoint was saved for."""
    saved = _saved_classes(content)
    for task, kind in kinds.items():
        if kind.architecture in saved:
            return task
    if saved:
        known = ", ".join(f"{kind.architecture} ({task})" for task, kind in kinds.items())
        raise InputError(
            f"The checkpoint was saved for something that is not implemented; name one of its tasks. "
            f"Expected one of {known}. Received: architectures={saved}"
        )
    return _task_by_head(kinds, set(file))


def _task_by_head(kinds: Mapping[str, type[PretrainedModel]], tensors: set[str]) -> str:
    """The task whose head is among the tensors; of older checkpoints, which do not say what they were saved for."""
    needed = {task: kind for task, kind in kinds.items() if kind.head_table and not kind.optional_head}
    heads = {task: {row.tensor for row in kind.head_table} for task, kind in needed.items()}
    held = {task: head for task, head in heads.items() if head <= tensors}
    found = [task for task, head in held.items() if not any(head < other for other in held.values())]
    default = _default_task(kinds)
    if default in held or (not found and default not in heads):
        return default
    if len(found) > 1:
        raise InputError(
            "config.json does not say which task the checkpoint was saved for, and its head fits several. "
            f"Pass {argument('task', ...)}, one of {', '.join(found)}"
        )
    return found[0] if found else next(task for task, kind in kinds.items() if kind.bare)


def _check_layer_counts(config: Config, file: TensorFile) -> None:
    """Refuses more layers than a file can hold, before they are made."""
    for name, count in config.layer_counts.items():
        if count > len(file):
            raise CheckpointError(
                f"{name} in config.json does not fit {file}: every layer has tensors of its own. "
                f"Expected at most {len(file)}, the number of all its tensors. Received: {count}"
            )


def _generation_config(folder: Path, config: Config, content: Mapping[str, Any]) -> GenerationConfig:
    if (folder / "generation_config.json").exists():
        return GenerationConfig.load(folder, config.generation_settings(content, forced=False))
    return GenerationConfig.from_dict({}, config.generation_settings(content))


def _tokenizer(folder: Path, model_type: str) -> Any:
    """The checkpoint's tokenizer, or `None` if it has no file of one, or none that can be read."""
    from kerasformer.tokenization import load_tokenizer

    names = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json", "spiece.model")
    if not any((folder / name).exists() for name in names):
        return None
    try:
        return load_tokenizer(folder, model_type=model_type)
    except KerasformerError as error:
        logger.warning("The model has no tokenizer, for the checkpoint's cannot be used: %s", error)
        return None

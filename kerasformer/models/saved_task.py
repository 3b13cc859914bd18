"""The architecture and the task that a checkpoint was saved for, by its `config.json` or else by its tensors."""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.basics.tasks import PRETRAINING
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.files.reading import JsonMapping
from kerasformer.files.tensors import TensorFile
from kerasformer.models.checkpoint import check_layer_counts, resolved
from kerasformer.models.config import Config
from kerasformer.models.creation import create
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.registry import ModelClasses, architecture, architectures, backbone_of, default_task, models


def model_type_of(content: JsonMapping) -> str:
    """Returns the architecture that `config.json` names, by `model_type` or by the class in `architectures`."""
    model_type = content.get("model_type")
    if model_type is not None:
        if not isinstance(model_type, str):
            raise UnsupportedConfigError(f"model_type in config.json must be a string. Received: {model_type!r}")
        return model_type
    saved = _saved_classes(content)
    classes = {task_class.architecture: name for name in models() for task_class in architecture(name).MODELS.values()}
    candidates = list(dict.fromkeys(classes[name] for name in saved if name in classes))
    if len(candidates) != 1:
        raise UnsupportedConfigError(
            "config.json has no model_type, and its architectures do not name one model. Pass model_type to "
            f"kerasformer.zoo.load, such as model_type={(candidates or ['bert'])[0]!r}, or add it to config.json. "
            f"Expected one of {', '.join(candidates or architectures())}. Received: architectures={saved}"
        )
    return candidates[0]


def text_part(content: JsonMapping) -> JsonMapping:
    """Returns the configuration of the text part of a model for images and texts; that of another model unchanged.

    Only texts are read. The tensors of the other parts have names that the architecture ignores.
    """
    part = content.get("text_config")
    model_type = part.get("model_type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or model_type not in architectures():
        return content
    config_type = backbone_of(architecture(model_type).MODELS).config_type
    if config_type.text_part_of != content.get("model_type"):
        return content
    shared = {name: content[name] for name in ("architectures", "tie_word_embeddings") if name in content}
    return {**part, **shared}


def configured_task(classes_by_task: ModelClasses, content: JsonMapping) -> str:
    """Returns the task that `config.json` names, by the class in `architectures`; otherwise the usual one."""
    return _named_task(classes_by_task, content) or default_task(classes_by_task)


def saved_task(classes_by_task: ModelClasses, content: JsonMapping, file: TensorFile) -> str:
    """Returns the task that `config.json` names, or without `architectures`, the one whose head the checkpoint has.

    Raises:
        InputError: the checkpoint is for an unsupported class, or its head for several tasks.
    """
    if task := _named_task(classes_by_task, content):
        return task
    if saved := _saved_classes(content):
        known = ", ".join(
            f"{task_class.architecture} ({task_class.task})" for task_class in dict.fromkeys(classes_by_task.values())
        )
        raise InputError(
            f"The checkpoint was saved for an unsupported class. Pass the task. Expected one of {known}. "
            f"Received: architectures={saved}"
        )
    return _task_by_tensors(classes_by_task, content, file)


def _named_task(classes_by_task: ModelClasses, content: JsonMapping) -> str | None:
    saved = _saved_classes(content)
    for task, task_class in classes_by_task.items():
        if task_class.architecture in saved or task_class.former_architecture in saved:
            return task
    return None


def _saved_classes(content: JsonMapping) -> list[str]:
    saved = content.get("architectures") or []
    if not isinstance(saved, list) or not all(isinstance(name, str) for name in saved):
        raise UnsupportedConfigError(f"architectures in config.json must be a list of names. Received: {saved!r:.200}")
    return saved


def _task_by_tensors(classes_by_task: ModelClasses, content: JsonMapping, file: TensorFile) -> str:
    """Returns the task with the largest head among those whose tensors are all in a checkpoint without `architectures`.

    Heads of pretraining count only if there is no other: a checkpoint with both heads of BERT's pretraining is for
    masked language modelling. If several heads are equal, the default task is preferred.
    """
    config = backbone_of(classes_by_task).config_type.from_hf(content)
    check_layer_counts(config, file)
    heads = {
        task: _saved_head(classes_by_task, task_class, config, file)
        for task, task_class in classes_by_task.items()
        if task == task_class.task
    }
    present = {task: head for task, head in heads.items() if head is not None}
    usual = {task: head for task, head in present.items() if task not in PRETRAINING}
    present = usual if any(usual.values()) else present
    candidates = [task for task, head in present.items() if not any(head < other for other in present.values())]
    default = default_task(classes_by_task)
    if default in candidates:
        return default
    if len(candidates) > 1:
        raise InputError(
            "config.json does not specify the task of the checkpoint, and its head matches several. "
            f"Pass task=…, one of {', '.join(candidates)}"
        )
    return (
        candidates[0] if candidates else next(task for task, task_class in classes_by_task.items() if task_class.bare)
    )


def _saved_head(
    classes_by_task: ModelClasses,
    task_class: type[PretrainedModel],
    config: Config,
    file: TensorFile,
) -> set[str] | None:
    """Returns the tensors of the head of a model; `None` if a checkpoint lacks tensors of the model.

    It is also `None` if the configuration excludes the task, as that of a bidirectional decoder excludes generation.
    """
    try:
        complete, file = resolved(classes_by_task, task_class, config, file)
        model: PretrainedModel = create(task_class, complete, build=False, **task_class.parts(file))
    except UnsupportedConfigError:
        return None
    head = {row.tensor for row in model.head_rows() if not row.optional}
    needed = {row.tensor for row in model.rows() if not (row.optional or row.copy)}
    return head if needed <= model.backbone.checkpoint_names().located(file, head).keys() else None

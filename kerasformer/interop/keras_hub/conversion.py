"""A model of KerasHub as one of ours, and back: configuration, weights, tokenizer, head."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import keras

from kerasformer import sources
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import CheckpointError, TokenizerError, UnsupportedConfigError, require
from kerasformer.interop.keras_hub import tokenizer_conversion as text
from kerasformer.interop.keras_hub.names import PACKAGES, HubNames, HubTask, HubWeights, KerasHub
from kerasformer.interop.keras_hub.tables import all_tables, find_table
from kerasformer.models import loading
from kerasformer.models.config import Config
from kerasformer.models.head_request import HeadRequest
from kerasformer.models.pretrained import PretrainedModel, create
from kerasformer.models.weight_table import load_weights, variables_by_path

logger = logging.getLogger("kerasformer")

# What a classifier's activation says of its labels; our models give the scores before it, and pipelines apply it.
_PROBLEMS = {
    "linear": None,
    "softmax": "single_label_classification",
    "sigmoid": "multi_label_classification",
}


class Found(NamedTuple):
    """The architecture of a model of KerasHub."""

    model_type: str
    module: ModuleType
    table: KerasHub
    task: HubTask | None


def from_keras_hub(
    source: Any,
    task: str | None = None,
    *,
    request: HeadRequest = HeadRequest(),  # noqa: B008  (frozen)
    dtype: Any = None,
    tokenizer: Any = None,
) -> PretrainedModel:
    """Our model with the weights, tokenizer and head of one of KerasHub.

    Args:
        source: A task or backbone of KerasHub.
        task: Ours; by default that of the class.
        request: What is asked of the head.
        dtype: Keras dtype policy.
        tokenizer: Of KerasHub, for a source without preprocessor.

    Raises:
        UnsupportedConfigError: an architecture or setting that is not implemented.
        CheckpointError: a task whose head the source lacks.
        TokenizerError: a tokenizer that cannot be carried over.
    """
    found = _find(source, task)
    kinds = found.module.MODELS
    wanted = task or (found.task.task if found.task is not None else found.table.default_task)
    kind = loading.model_class(kinds, found.model_type, wanted)
    preprocessor = getattr(source, "preprocessor", None)
    tokenizer = getattr(preprocessor, "tokenizer", None) if tokenizer is None else tokenizer
    config = _config(source, found, kind, tokenizer)
    config = request.applied(config, kind.task, kind.has_labels)
    hub_task = found.table.find(kind.task)
    parts = dict(hub_task.parts) if hub_task is not None else {}
    model: PretrainedModel = create(kind, config, dtype, build=False, name=source.name, **parts)
    rows = found.table.weight_table(model)
    weights = HubWeights(source, rows)
    weights.check_float()
    loading.start_head(model, load_weights(model, weights, HubNames(), (), request.new, rows), request)
    model.generation_config = GenerationConfig.from_dict({}, config.generation_settings())
    if tokenizer is not None:
        segments = "token_type_ids" in model.input_names
        model.tokenizer = text.from_keras_hub(tokenizer, preprocessor, segments, model.max_length)
    return model


def _find(source: Any, task: str | None) -> Found:
    """The architecture of a task or backbone.

    Raises:
        UnsupportedConfigError: there is none.
    """
    backbone = getattr(source, "backbone", source)
    tables = all_tables()
    for model_type, table in tables.items():
        if type(backbone).__name__ != table.backbone or not _own(backbone):
            continue
        hub_task = table.named(type(source).__name__) if _own(source) else None
        if source is not backbone and hub_task is None and task is None:
            names = ", ".join(each.name for each in table.tasks)
            raise UnsupportedConfigError(
                f"This task of KerasHub is not implemented. Expected one of {names}, or {table.backbone}. "
                f"Received: {type(source).__name__}. Give its backbone, or name a task"
            )
        return Found(model_type, loading.architecture(model_type), table, hub_task)
    raise UnsupportedConfigError(
        "This architecture of KerasHub is not implemented. Expected a backbone, or a task with one, of "
        f"{', '.join(table.backbone for table in tables.values())}. Received: {type(backbone).__name__}"
    )


def _own(value: Any) -> bool:
    """Whether a class is KerasHub's own: one derived from it may compute something else."""
    return type(value).__module__.split(".")[0] in PACKAGES


def _config(source: Any, found: Found, kind: type[PretrainedModel], tokenizer: Any) -> Config:
    backbone = getattr(source, "backbone", source)
    values = found.table.config_values(backbone)
    if values["hidden_dim"] % values["num_heads"] and "head_dim" not in values:
        raise UnsupportedConfigError(
            "num_heads must divide hidden_dim. "
            f"Received: num_heads={values['num_heads']}, hidden_dim={values['hidden_dim']}"
        )
    config_type: Any = kind.backbone_type.config_type
    if tokenizer is not None:
        values |= {name: getattr(tokenizer, theirs) for name, theirs in found.table.tokens.items()}
    else:
        values |= {name: None for name in found.table.tokens if _beyond(config_type, name, values["vocab_size"])}
    if found.task is not None and found.task.dropout is not None and found.task.task == kind.task:
        values |= _label_values(source, found.task, values["hidden_dim"])
    return config_type.create(**values)


def _beyond(config_type: Any, name: str, vocab_size: int) -> bool:
    """Whether the default id of a token lies outside the vocabulary."""
    default = config_type.__dataclass_fields__[name].default
    return default is not None and default >= vocab_size


def _label_values(source: Any, task: HubTask, hidden_dim: int) -> dict[str, Any]:
    """What a classifier says of its labels."""
    name = getattr(source.activation, "__name__", str(source.activation))
    if name not in _PROBLEMS:
        raise UnsupportedConfigError(
            f"A classifier's activation must be one of {', '.join(_PROBLEMS)}. Received: {name}"
        )
    if getattr(source, "hidden_dim", hidden_dim) != hidden_dim:
        raise UnsupportedConfigError(
            f"The dense layer of a classifier must have the size of the backbone, {hidden_dim}. "
            f"Received: hidden_dim={source.hidden_dim}"
        )
    labels = {index: f"LABEL_{index}" for index in range(source.num_classes)}
    return {"id2label": labels, "problem_type": _PROBLEMS[name], str(task.dropout): source.dropout}


def load_preset(folder: Path, task: str | None, **options: Any) -> PretrainedModel:
    """Our model from a local folder that KerasHub's `save_to_preset` wrote; arguments as of `from_keras_hub`.

    Raises:
        UnsupportedConfigError: a class that KerasHub does not have.
        CheckpointError: files of the preset are missing or damaged.
        MissingExtraError: KerasHub is not installed.
    """
    hub = require("keras_hub", "keras-hub")
    file = folder / "task.json"
    name = str(sources.read_json(file if file.exists() else folder / "config.json").get("class_name"))
    kind = getattr(hub.models, name, None)
    if kind is None:
        raise UnsupportedConfigError(f"keras_hub.models has no such class. Received: {name!r} in {folder}")
    tokenizer = None
    try:
        source = kind.from_preset(str(folder))
        if getattr(source, "preprocessor", None) is None and (folder / "tokenizer.json").exists():
            tokenizer = hub.tokenizers.Tokenizer.from_preset(str(folder))
    except Exception as error:  # whatever Keras and h5py raise on files that are missing or damaged
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"The preset of KerasHub cannot be opened. Expected what its save_to_preset writes, weights included, in "
            f"{folder}. Received: {reason:.300}"
        ) from error
    return from_keras_hub(source, task, tokenizer=tokenizer, **options)


def to_keras_hub(model: PretrainedModel, *, strict: bool = True) -> Any:
    """A task of KerasHub with the weights and tokenizer of a model of ours; its backbone where it has no such task.

    Args:
        model: Of an architecture that KerasHub has.
        strict: Refuses settings that KerasHub has no counterpart for; if false, they are named in a warning, and its
            answers differ. KerasHub's BERT, for one, has the tanh approximation of GELU alone.

    Returns:
        A `keras_hub.models.Task` that gives logits, or a `keras_hub.models.Backbone`.

    Raises:
        UnsupportedConfigError: KerasHub lacks the architecture or, if `strict`, a setting.
        MissingExtraError: KerasHub is not installed.
    """
    hub = require("keras_hub", "keras-hub")
    config: Any = model.config
    table = find_table(config.model_type.replace("-", "_"))
    if table is None:
        raise UnsupportedConfigError(f"KerasHub has no such architecture here. Received: {config.model_type}")
    hub_task = table.find(model.task)
    _check_differences(model, table, hub_task, strict)
    rows = table.weight_table(model)
    values = {row.tensor: variables_by_path(model)[row.variables[0]] for row in rows}
    with keras.StatelessScope():  # in this scope, variables wait for their values until it ends
        backbone = getattr(hub.models, table.backbone)(**table.arguments(config), dtype=model.dtype_policy.name)
        waiting = HubWeights(backbone, ())
        for name in [name for name in values if name.startswith("backbone.")]:
            waiting.variable(name)._initializer = partial(_value, values.pop(name))
    result = backbone
    if hub_task is not None:
        labels = {} if hub_task.dropout is None else _label_arguments(config, hub_task)
        result = getattr(hub.models, hub_task.name)(backbone, **labels)
        head = HubWeights(result, ())
        for name, value in values.items():
            head.variable(name).assign(value)
    if hub_task is not None and model.tokenizer is not None:
        result.preprocessor = _preprocessor(type(result).preprocessor_cls, model.tokenizer)
    elif hub_task is None and model.task != table.default_task:
        logger.warning("KerasHub has no task for %s: this is the backbone, without the head", model.task)
    return result


def _value(variable: Any, shape: Any, dtype: str) -> Any:
    """The value of a variable of ours, in the shape that KerasHub gives it."""
    return keras.ops.cast(keras.ops.reshape(variable.value, shape), dtype)


def _check_differences(model: PretrainedModel, table: KerasHub, hub_task: HubTask | None, strict: bool) -> None:
    found = table.differences(model.config)
    parts = {} if hub_task is None else hub_task.parts
    for name, expected in parts.items():
        received = getattr(model, name)
        if received != expected:
            found.append(f"{name} of the head: {expected!r} alone, received {received!r}")
    if found and strict:
        raise UnsupportedConfigError(
            f"KerasHub's {table.backbone} lacks settings of this model: {'; '.join(found)}. "
            "With strict=False it is made, and answers differently"
        )
    if found:
        logger.warning("KerasHub's %s will answer differently: %s", table.backbone, "; ".join(found))


def _label_arguments(config: Any, hub_task: HubTask) -> dict[str, Any]:
    """Arguments of a classifier."""
    dropout = getattr(config, str(hub_task.dropout))
    return {"num_classes": config.num_labels, "dropout": config.head_dropout if dropout is None else dropout}


def _preprocessor(kind: Any, tokenizer: Any) -> Any:
    """KerasHub's preprocessor around our tokenizer; `None`, with a warning, if it cannot be carried over."""
    try:
        theirs = text.to_keras_hub(tokenizer, kind.tokenizer_cls)
    except TokenizerError as error:
        logger.warning("The tokenizer is not carried over: %s", error)
        return None
    return kind(theirs, **text.preprocessor_arguments(tokenizer, kind))

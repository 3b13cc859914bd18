"""Conversion of models from and to KerasHub: configuration, weights, tokenizer, head."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import keras

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import CheckpointError, TokenizerError, UnsupportedConfigError
from kerasformer.extras import require
from kerasformer.files import CONVERTERS, sources
from kerasformer.generation import GenerationConfig
from kerasformer.layers import Tensor, merged_lora
from kerasformer.models import (
    Config,
    HeadRequest,
    PretrainedModel,
    create,
    deferred_variables,
    initialize_with,
    load_weights,
    numbered_labels,
    registry,
    variables_by_path,
)
from kerasformer.tools.interop.keras_hub import tokenizer_conversion as text
from kerasformer.tools.interop.keras_hub.tables import TABLES, HubArchitecture, HubTask
from kerasformer.tools.interop.keras_hub.weights import HubNames, HubWeights, hub_variable

logger = logging.getLogger("kerasformer")

# Problem type for the activation of a classifier; our models return logits, and pipelines apply the activation.
_PROBLEM_TYPES = {
    "linear": None,
    "softmax": "single_label_classification",
    "sigmoid": "multi_label_classification",
}

_CLASS_NAMES = "class_names"
"""Attribute with the names of the classes of a converted classifier, which KerasHub itself does not have."""


def from_model(
    source: keras.Model,
    task: str | None = None,
    *,
    request: HeadRequest = HeadRequest(),  # noqa: B008  (frozen)
    dtype: str | keras.DTypePolicy | None = None,
    tokenizer: keras.layers.Layer | None = None,
) -> PretrainedModel:
    """Converts a model of KerasHub, with its weights, tokenizer and head.

    Args:
        source: Task or backbone of KerasHub.
        task: Hugging Face task name; by default that of the class of `source`.
        request: Requested changes of the head.
        dtype: Keras dtype policy.
        tokenizer: Tokenizer of KerasHub, for a source without preprocessor.

    Raises:
        UnsupportedConfigError: the architecture or a setting is not supported.
        CheckpointError: the source has no head for the task.
        TokenizerError: the tokenizer cannot be converted.
    """
    model_type, table, hub_task = _architecture(source, task)
    if task is None:
        task = table.default_task if hub_task is None else hub_task.task
    model_class = registry.model_class(registry.architecture(model_type).MODELS, model_type, task)
    preprocessor = getattr(source, "preprocessor", None)
    tokenizer = getattr(preprocessor, "tokenizer", None) if tokenizer is None else tokenizer
    values = _config_values(source, table, model_class.backbone_type.config_type, tokenizer)
    if hub_task is not None and hub_task.dropout is not None and hub_task.task == model_class.task:
        values |= _label_values(source, hub_task.dropout, values["hidden_dim"])
    config: Any = model_class.backbone_type.config_type.create(**values)
    config = request.applied(config, model_class.task, model_class.has_labels)
    _check_float(source)
    head = table.find(model_class.task)
    parts = {**({} if head is None else head.parts), **model_class.options(task, config)}
    model: PretrainedModel = create(model_class, config, dtype, build=False, name=source.name, **parts)
    rows = table.weight_table(model)
    fresh = load_weights(model, HubWeights(source, rows), HubNames(), (), request.new, rows)
    request.note_untrained(model, fresh)
    model.generation_config = GenerationConfig.from_dict({}, config.generation_settings())
    if tokenizer is not None:
        segments = "token_type_ids" in model.input_names
        model.tokenizer = text.from_keras_hub(tokenizer, preprocessor, segments, model.max_length)
    return model


def _architecture(source: keras.Model, task: str | None) -> tuple[str, HubArchitecture, HubTask | None]:
    """Returns the `model_type`, the table and the task of a model; no task for a backbone.

    Raises:
        UnsupportedConfigError: the architecture or task is not supported.
    """
    backbone = getattr(source, "backbone", source)
    name, backbone_name = type(source).__name__, type(backbone).__name__
    for model_type, table in TABLES.items():
        if backbone_name != table.backbone or not _is_hub_class(type(backbone)):
            continue
        tasks = {hub_task.name: hub_task for hub_task in table.tasks if _is_hub_class(type(source))}
        if source is not backbone and name not in tasks and task is None:
            raise UnsupportedConfigError(
                "This task of KerasHub is not supported. Expected one of "
                f"{', '.join(hub_task.name for hub_task in table.tasks)}, or {table.backbone}. "
                f"Received: {name}. Pass its backbone, or specify a task"
            )
        return model_type, table, tasks.get(name)
    raise UnsupportedConfigError(
        "This architecture of KerasHub is not supported. Expected a model with one of the backbones "
        f"{', '.join(table.backbone for table in TABLES.values())}. Received: {backbone_name}"
    )


def _is_hub_class(cls: type) -> bool:
    """Returns whether a class is defined in KerasHub; a class derived from it may compute something else."""
    return cls.__module__.split(".")[0] in CONVERTERS


def _check_float(source: keras.Model) -> None:
    """Checks that a model is not quantized.

    Raises:
        UnsupportedConfigError: a weight has a type other than a float type.
    """
    for variable in source.weights:
        if not keras.backend.is_float_dtype(variable.dtype):
            raise UnsupportedConfigError(
                f"Weights of a float type were expected. Received: {variable.path} of {type(source).__name__}, of type "
                f"{variable.dtype}. Load the model before it is quantized, and quantize the export"
            )


def _config_values(
    source: keras.Model, table: HubArchitecture, config_type: type[Config], tokenizer: keras.layers.Layer
) -> Arguments:
    values = table.config_values(getattr(source, "backbone", source))
    if values["hidden_dim"] % values["num_heads"] and "head_dim" not in values:
        raise UnsupportedConfigError(
            "num_heads must divide hidden_dim. "
            f"Received: num_heads={values['num_heads']}, hidden_dim={values['hidden_dim']}"
        )
    if tokenizer is not None:
        return values | {ours: getattr(tokenizer, theirs) for ours, theirs in table.tokens.items()}
    return values | {name: None for name in table.tokens if _is_outside(config_type, name, values["vocab_size"])}


def _is_outside(config_type: Any, name: str, vocab_size: int) -> bool:
    """Returns whether the default id of a token is outside the vocabulary."""
    default = config_type.__dataclass_fields__[name].default
    return default is not None and default >= vocab_size


def _label_values(source: keras.Model, dropout: str, hidden_dim: int) -> Arguments:
    """Returns the configuration values of a classifier: labels, problem type and dropout."""
    name = getattr(source.activation, "__name__", str(source.activation))
    if name not in _PROBLEM_TYPES:
        raise UnsupportedConfigError(
            f"The activation of a classifier must be one of {', '.join(_PROBLEM_TYPES)}. Received: {name}"
        )
    if getattr(source, "hidden_dim", hidden_dim) != hidden_dim:
        raise UnsupportedConfigError(
            f"The dense layer of a classifier must have the size of the backbone, {hidden_dim}. "
            f"Received: hidden_dim={source.hidden_dim}"
        )
    names = getattr(source, _CLASS_NAMES, ())
    labels = dict(enumerate(names)) if len(names) == source.num_classes else numbered_labels(source.num_classes)
    return {"id2label": labels, "problem_type": _PROBLEM_TYPES[name], dropout: source.dropout}


def from_folder(folder: Path, task: str | None, **options: Any) -> PretrainedModel:
    """Loads a local folder written by KerasHub's `save_to_preset`.

    Args:
        folder: Folder of the preset.
        task: Hugging Face task name; by default that of the preset's class.
        options: Further arguments of `from_model`.

    Raises:
        UnsupportedConfigError: KerasHub has no such class.
        CheckpointError: files of the preset are missing or damaged.
        MissingExtraError: KerasHub is not installed.
    """
    hub = require("keras_hub", "keras-hub")
    file = "task.json" if (folder / "task.json").exists() else "config.json"
    name = str(sources.read_json(sources.inside(folder, file)).get("class_name"))
    hub_class = getattr(hub.models, name, None)
    if hub_class is None:
        raise UnsupportedConfigError(f"keras_hub.models has no such class. Received: {name!r} in {folder}")
    tokenizer = None
    try:
        source = hub_class.from_preset(str(folder))
        if getattr(source, "preprocessor", None) is None and (folder / "tokenizer.json").exists():
            tokenizer = hub.tokenizers.Tokenizer.from_preset(str(folder))
    except Exception as error:  # Keras and h5py raise various types for missing or damaged files
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"The preset of KerasHub cannot be opened. Expected: a folder written by save_to_preset, with weights. "
            f"Received: {folder}: {reason:.300}"
        ) from error
    return from_model(source, task, tokenizer=tokenizer, **options)


def to_keras_hub(model: PretrainedModel, *, strict: bool = True) -> keras.Model:
    """Converts a model to KerasHub, with its weights and tokenizer; to a backbone if KerasHub has no such task.

    Args:
        model: Model of an architecture that KerasHub supports.
        strict: Whether to raise an error for settings that KerasHub does not support. Otherwise they are logged as a
            warning, and outputs differ; KerasHub's BERT, for example, supports only the tanh approximation of GELU.

    Returns:
        A `keras_hub.models.Task` with logits as output, or a `keras_hub.models.Backbone`.

    Raises:
        UnsupportedConfigError: KerasHub lacks the architecture or, if `strict`, a setting.
        MissingExtraError: KerasHub is not installed.
    """
    hub = require("keras_hub", "keras-hub")
    config: Any = model.config
    table = TABLES.get(config.model_type)
    if table is None:
        raise UnsupportedConfigError(
            f"Models of this architecture cannot be converted to KerasHub. Expected one of {', '.join(TABLES)}. "
            f"Received: {config.model_type}. KerasHub may read it itself: save it with save_pretrained, and pass the "
            "folder to from_preset of KerasHub's class"
        )
    hub_task = table.find(model.task)
    _check_differences(model, table, hub_task, strict)
    variables = variables_by_path(model)
    values = {row.tensor: partial(_value, variables[row.variables[0]]) for row in table.weight_table(model)}
    with merged_lora(model):
        with deferred_variables():  # the backbone's variables are not initialized randomly before
            result = getattr(hub.models, table.backbone)(**table.arguments(config), dtype=model.dtype_policy.name)
            for name in [name for name in values if name.startswith("backbone.")]:
                initialize_with(hub_variable(result, name), values.pop(name))
        if hub_task is not None:
            labels = {} if hub_task.dropout is None else _label_arguments(config, hub_task.dropout)
            result = getattr(hub.models, hub_task.name)(result, **labels)
            if labels:
                setattr(result, _CLASS_NAMES, config.labels)
        for name, value in values.items():
            variable = hub_variable(result, name)
            variable.assign(value(variable.shape, variable.dtype))
    if hub_task is not None and model.tokenizer is not None:
        result.preprocessor = _preprocessor(type(result).preprocessor_cls, model.tokenizer)
    elif hub_task is None and model.task != table.default_task:
        logger.warning("KerasHub has no task for %s: the backbone is returned, without the head", model.task)
    return result


def _value(variable: keras.Variable, shape: tuple[int, ...], dtype: str) -> Tensor:
    """Returns the value of a variable in the shape of KerasHub."""
    return keras.ops.cast(keras.ops.reshape(variable.value, shape), dtype)


def _check_differences(model: PretrainedModel, table: HubArchitecture, hub_task: HubTask | None, strict: bool) -> None:
    differences = table.differences(model.config)
    if model.config.prefix_lm:
        differences.append("prefix_lm: only False, received True")
    parts = {} if hub_task is None else hub_task.parts
    for name, expected in parts.items():
        received = getattr(model, name)
        if received != expected:
            differences.append(f"{name} of the head: only {expected!r}, received {received!r}")
    if hub_task is not None:
        covered = {path for row in table.weight_table(model) for path in row.variables}
        outputs = [row.tensor for row in model.rows() if row.tied and not covered.issuperset(row.variables)]
        differences += [f"the output: only the token embeddings, received the matrix {name}" for name in outputs]
    if differences and strict:
        raise UnsupportedConfigError(
            f"KerasHub's {table.backbone} lacks settings of this model: {'; '.join(differences)}. "
            "Pass strict=False to convert it anyway, with different outputs"
        )
    if differences:
        logger.warning("The outputs of KerasHub's %s will differ: %s", table.backbone, "; ".join(differences))


def _label_arguments(config: Any, dropout: str) -> Arguments:
    value = getattr(config, dropout)
    return {"num_classes": config.num_labels, "dropout": config.head_dropout if value is None else value}


def _preprocessor(hub_class: type[keras.Model], tokenizer: keras.layers.Layer) -> keras.layers.Layer:
    """Returns a preprocessor with the converted tokenizer; `None`, with a warning, if it cannot be converted."""
    try:
        hub_tokenizer = text.to_keras_hub(tokenizer, hub_class.tokenizer_cls)
    except TokenizerError as error:
        logger.warning("The tokenizer is not converted: %s", error)
        return None
    return hub_class(hub_tokenizer, **text.preprocessor_arguments(tokenizer, hub_class))

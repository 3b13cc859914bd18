"""The list of architectures: those of `kerasformer.zoo`, and those that `register` adds."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from types import ModuleType

from kerasformer.basics.tasks import task_of_model, tasks_of_class
from kerasformer.bundle.architectures import DECODER, ENCODER, ENCODER_DECODER, Architecture, add, find, installed
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.files import sources
from kerasformer.models.backbone import Backbone
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.encoder import BidirectionalEncoder
from kerasformer.models.encoder_decoder import EncoderDecoder
from kerasformer.models.pretrained import PretrainedModel

ModelClasses = Mapping[str, type[PretrainedModel]]
"""The classes of an architecture by task."""


_BRANCHES = {BidirectionalEncoder: ENCODER, CausalDecoder: DECODER, EncoderDecoder: ENCODER_DECODER}
"""Kinds of architectures by the base classes of their backbones."""


_registered: dict[str, ModuleType] = {}
"""Modules of other packages by `model_type`."""


def architectures() -> tuple[str, ...]:
    """Returns the `model_type` of all architectures: those of `kerasformer.zoo` and those of other packages."""
    return tuple(models())


@cache
def zoo_modules() -> tuple[str, ...]:
    """Returns the names of the modules of `kerasformer.zoo`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(sources.zoo_folder())])))


def architecture(model_type: str) -> ModuleType:
    """Imports the module of an architecture.

    Raises:
        UnsupportedConfigError: the architecture is unsupported, or the package that adds it is faulty.
    """
    name = model_type.replace("-", "_")
    if name in zoo_modules():
        return importlib.import_module(f"kerasformer.zoo.{name}")
    if model_type not in _registered and model_type in installed():
        _register_installed(model_type)
    if model_type not in _registered:
        find(model_type)
    return _registered[model_type]


def models() -> dict[str, tuple[str, ...]]:
    """Returns the tasks of each architecture, by its `model_type`."""
    names = [backbone_of(architecture(name).MODELS).config_type.model_type for name in zoo_modules()]
    names += sorted({*_registered, *installed()} - {*names})
    return {name: tuple(architecture(name).MODELS) for name in names}


def model_class(classes_by_task: ModelClasses, model_type: str, task: str) -> type[PretrainedModel]:
    """Returns the class of an architecture for a task.

    Raises:
        InputError: the architecture does not support the task.
    """
    name = task_of_model(task)
    if name not in classes_by_task:
        raise InputError(
            f"{model_type} has no such task. Expected one of {', '.join(classes_by_task)}. Received: {task!r}"
        )
    return classes_by_task[name]


def default_task(classes_by_task: ModelClasses) -> str:
    """Returns the task if none is requested: generation or masked language modelling, if supported."""
    preferred = ("text-generation", "text2text-generation", "fill-mask")
    return next((task for task in preferred if task in classes_by_task), next(iter(classes_by_task)))


def backbone_of(classes_by_task: ModelClasses) -> type[Backbone]:
    """Returns the backbone of an architecture, which all of its classes have."""
    return next(iter(classes_by_task.values())).backbone_type


def register(module: ModuleType) -> str:
    """Adds an architecture of another package to those of `kerasformer.zoo`, for this process.

    `load`, `build` and `models` then know it by its `model_type`. An installed package can do without this call: an
    entry point of the group `kerasformer.architectures` has the `model_type` as its name and the module as its value,
    and is imported when the architecture is used:

        [project.entry-points."kerasformer.architectures"]
        my_model = "my_package.my_model"

    Args:
        module: A module like those of `kerasformer.zoo`, with the model classes by task in `MODELS`. The first line of
            its docstring is the name of the architecture, or `name: summary`.

    Returns:
        The `model_type` of the architecture.

    Raises:
        InputError: the module has no valid `MODELS`, or its `model_type` is that of another architecture.
    """
    backbone = _checked_backbone(module)
    model_type = str(backbone.config_type.model_type)
    existing = _registered.get(model_type)
    if existing is None and model_type.replace("-", "_") in zoo_modules():
        existing = architecture(model_type)
    if existing not in (None, module):
        raise InputError(
            f"model_type {model_type!r} of {module.__name__} is that of an architecture that exists already, in "
            f"{existing.__name__}. Expected: another model_type of {backbone.config_type.__name__}"
        )
    if existing is None:
        add(describe(module))
        _registered[model_type] = module
    return model_type


def describe(module: ModuleType) -> Architecture:
    """Returns what the docstring and the classes of an architecture's module say about it."""
    text = module.__doc__ or ""
    title, _, summary = (text.splitlines() or [""])[0].partition(": ")
    parent = re.search(r"^Derived from: `([\w-]+)`", text, re.MULTILINE)
    paper = re.search(r"^Paper: (.+?)\.(?:\s+Reference: .*)?$", text, re.MULTILINE | re.DOTALL)
    citation = " ".join(paper[1].split()) if paper else ""
    year = re.search(r"\b(?:19|20)\d\d\b", citation)
    backbone = backbone_of(module.MODELS)
    return Architecture(
        model_type=backbone.config_type.model_type,
        name=title or backbone.__name__,
        branch=next(branch for base, branch in _BRANCHES.items() if issubclass(backbone, base)),
        summary=summary.removesuffix("."),
        derived_from=parent[1] if parent else None,
        year=int(year[0]) if year else 0,
        paper=citation,
        tasks=tuple(module.MODELS),
    )


def _register_installed(model_type: str) -> None:
    """Imports and registers the architecture of an entry point."""
    point = installed()[model_type]
    package = point.dist.name if point.dist else "an unknown package"
    source = f"the entry point {point.name} = {point.value} of {package}"
    try:
        registered = register(point.load())
    except (ImportError, AttributeError, InputError) as error:
        raise UnsupportedConfigError(f"The architecture of {source} cannot be used. {error}") from error
    if registered != model_type:
        raise UnsupportedConfigError(
            f"The name of {source} must be the model_type of its module. Expected: {registered}. Received: {model_type}"
        )


def _checked_backbone(module: object) -> type[Backbone]:
    """Returns the backbone of an architecture's module; raises an error if `MODELS` is missing or invalid."""
    if not isinstance(module, ModuleType):
        raise InputError(f"A module with MODELS was expected, the model classes by task. Received: {module!r:.200}")
    classes_by_task = getattr(module, "MODELS", None)
    if not isinstance(classes_by_task, Mapping) or not classes_by_task:
        raise InputError(
            f"{module.__name__} must have MODELS, a dictionary of model classes by task, such as the result of "
            f"kerasformer.models.task_models.heads. Received: MODELS={classes_by_task!r:.200}"
        )
    for task, task_class in classes_by_task.items():
        if not (isinstance(task_class, type) and issubclass(task_class, PretrainedModel)):
            raise InputError(
                f"MODELS[{task!r}] of {module.__name__} must be a class derived from PretrainedModel. "
                f"Received: {task_class!r:.200}"
            )
        if getattr(task_class, "backbone_type", None) is None:
            raise InputError(
                f"{task_class.__name__}, MODELS[{task!r}] of {module.__name__}, has no backbone. Expected: a class "
                f"declared with backbone=…"
            )
        if task not in tasks_of_class(task_class.task):
            raise InputError(
                f"MODELS[{task!r}] of {module.__name__} must be a class for this task. "
                f"Received: {task_class.__name__}, for {task_class.task}"
            )
    backbones = {task_class.backbone_type for task_class in classes_by_task.values()}
    if len(backbones) != 1:
        names = ", ".join(sorted(backbone.__name__ for backbone in backbones))
        raise InputError(f"All classes in MODELS of {module.__name__} must have the same backbone. Received: {names}")
    backbone = backbones.pop()
    if not issubclass(backbone, tuple(_BRANCHES)):
        expected = ", ".join(base.__name__ for base in _BRANCHES)
        raise InputError(f"{backbone.__name__} of {module.__name__} must derive from one of {expected}")
    config_type = getattr(backbone, "config_type", None)
    model_type = getattr(config_type, "model_type", None)
    if not model_type or not isinstance(model_type, str):
        raise InputError(
            f"config_type of {backbone.__name__} in {module.__name__} must be a configuration with a model_type. "
            f"Received: {config_type!r}, model_type={model_type!r}"
        )
    return backbone

"""Opening of sources: Keras models and bundles are wrapped in engines with a common interface.

Called by `creation`, and by tools that run a model themselves.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from kerasformer import bundle
from kerasformer.basics.arguments import Arguments, check, instance
from kerasformer.basics.tasks import NEEDS, VARIANTS, task_of_model
from kerasformer.bundle import Manifest, ModelInfo
from kerasformer.engines import Forward, Step
from kerasformer.errors import InputError, TokenizerError
from kerasformer.extras import require
from kerasformer.files import live, sources
from kerasformer.tokenization import Tokenizer


class KerasModel(Protocol):
    """What pipelines use of a model of `kerasformer.zoo`; bundles run without Keras, so its class is not imported."""

    @property
    def generates(self) -> bool:
        """Whether the engine is a `Step`."""

    @property
    def task(self) -> str:
        """Hugging Face task name."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the checkpoint, if it has one."""

    def info(self) -> ModelInfo:
        """Returns the properties that a bundle records, too."""


Source: TypeAlias = "str | os.PathLike[str] | KerasModel"


@dataclass(frozen=True)
class Opened:
    """An opened source.

    Attributes:
        engine: `"keras"`, `"litert"`, `"onnx"`, `"tensorflow"` or `"numpy"`.
        model: Engine that runs the model.
        tokenizer: Tokenizer of the source.
        info: Properties of the model.
        task: Requested task, or that of the source.
    """

    engine: str
    model: Forward | Step
    tokenizer: Tokenizer
    info: ModelInfo
    task: str


def open_source(
    task: str | None,
    source: Source,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Opened:
    """Opens a model, checkpoint, preset, hub id or bundle.

    Args:
        task: Hugging Face task name; the task of the source if `None`.
        source: Model, checkpoint folder, GGUF file, preset, hub id or bundle.
        tokenizer: Tokenizer, or a source that contains one; defaults to that of `source`.
        options: Options of `runtime.open_engine`, for bundles only: `num_threads`, `cache_dir`, `accelerator`,
            `providers`.

    Raises:
        SourceError: the source was not found.
        InputError: the source is for another task, or an option for bundles was passed with a Keras model.
        TokenizerError: the source has no tokenizer.
    """
    if live.is_tokenizer(tokenizer):
        tokenizer = Tokenizer.load(tokenizer)
    kind = instance("a Tokenizer, a preset, a folder or a hub id, or None", Tokenizer, str, os.PathLike, type(None))
    tokenizer = check("tokenizer", tokenizer, kind)
    replacement = Tokenizer.load(tokenizer) if isinstance(tokenizer, str | os.PathLike) else tokenizer
    if not isinstance(source, str | os.PathLike):
        return _open_model(task, source, replacement, options)
    folder = sources.resolve(source)
    if sources.kind(folder) == "checkpoint":
        _check_no_options(options)
        return _open_model(task, _keras().load(folder, task), replacement, options)
    from kerasformer.engines import ENGINES, open_engine

    def load_bundle(folder: Path, manifest: Manifest) -> Opened:
        checked = _checked_task(task, manifest.info.task)
        model = open_engine(folder, manifest, **options)
        return Opened(ENGINES[manifest.format], model, replacement or Tokenizer.load(folder), manifest.info, checked)

    return bundle.load(folder, load_bundle)


def open_step(source: Any) -> tuple[Step, Tokenizer | None]:
    """Returns the engine and the tokenizer of a model that generates.

    Args:
        source: Engine, which has no tokenizer; pipeline; or any source of `open_source`.
    Raises:
        InputError: the model does not generate.
    """
    if isinstance(source, Step):
        return source, None
    opened = source if hasattr(source, "engine") else open_source(None, source)
    if not isinstance(opened.model, Step):
        raise InputError(f"A model that generates was expected. Received: {source!r}")
    return opened.model, opened.tokenizer


def open_reader(source: Any) -> tuple[Step, Tokenizer | None, ModelInfo | None]:
    """Returns engine, tokenizer and properties of a model that generates; a Keras model may lack a tokenizer.

    Raises:
        InputError: the model does not generate.
    """
    if getattr(source, "generates", False) and source.tokenizer is None:
        return _keras().engine(source), None, source.info()
    opened = source if isinstance(source, Step) or hasattr(source, "engine") else open_source(None, source)
    return *open_step(opened), getattr(opened, "info", None)


def _keras() -> ModuleType:
    """Returns the module that loads Keras models and makes engines of them.

    Raises:
        MissingExtraError: Keras is not installed.
    """
    require("keras", "tensorflow")
    return importlib.import_module("kerasformer.models.opening")


def _open_model(task: str | None, model: Any, tokenizer: Tokenizer | None, options: Arguments) -> Opened:
    engine: Forward | Step = _keras().engine(model)
    _check_no_options(options)
    tokenizer = tokenizer or model.tokenizer
    if tokenizer is None:
        raise TokenizerError(
            "This model has no tokenizer, which a pipeline needs. Pass tokenizer=, or set "
            "model.tokenizer = kerasformer.Tokenizer.load(folder)."
        )
    return Opened("keras", engine, tokenizer, model.info(), _checked_task(task, model.task))


def _check_no_options(options: Arguments) -> None:
    """Raises `InputError` for options of runtimes, which a Keras model does not have."""
    if received := ", ".join(f"{name}={value!r}" for name, value in options.items() if value is not None):
        raise InputError(
            "Options of a runtime are for bundles; a Keras model uses the settings of its backend. "
            f"Received: {received}"
        )


def _checked_task(task: str | None, model_task: str) -> str:
    if task is None or task == model_task or task_of_model(task) == task_of_model(model_task):
        return task or model_task
    if task == VARIANTS.get(model_task):
        return model_task
    needs = f"{task} needs {NEEDS[task]}. " if task in NEEDS else ""
    raise InputError(f"{needs}This source is for {model_task}. Received: task={task!r}")

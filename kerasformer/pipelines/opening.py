"""From what a user names to something that answers: a Keras model or a bundle in its runtime, all behind one face."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer import bundle, sources
from kerasformer.arguments import check, instance
from kerasformer.bundle import Manifest, ModelInfo
from kerasformer.decoding import Forward, Step
from kerasformer.errors import InputError, TokenizerError, argument, require
from kerasformer.tasks import of_model
from kerasformer.tokenization import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from kerasformer.zoo import PretrainedModel


@dataclass(frozen=True)
class Opened:
    """A source, ready to answer.

    Attributes:
        engine: `"keras"`, `"litert"`, `"onnx"` or `"tensorflow"`.
        model: What computes.
        tokenizer: Of the source.
        info: All else that a pipeline needs to know.
        task: That was asked for, or that of the source.
    """

    engine: str
    model: Forward | Step
    tokenizer: Tokenizer
    info: ModelInfo
    task: str


def open_source(
    task: str | None,
    source: str | os.PathLike[str] | PretrainedModel,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Opened:
    """Opens a model, checkpoint, preset, hub id or bundle.

    Args:
        task: Hugging Face's name; the source's own if `None`.
        source: What to open.
        tokenizer: Instead of the source's own; or where to find it.
        options: Of `runtime.open_engine`, for bundles alone: `num_threads`, `cache_dir`, `accelerator`, `providers`.

    Raises:
        SourceError: nothing was found there.
        InputError: the source is for another task, or an option of a bundle's runtime is given with Keras.
        TokenizerError: the source has no tokenizer.
    """
    kind = instance("a Tokenizer, a preset, a folder or a hub id, or None", Tokenizer, str, os.PathLike, type(None))
    given = check("tokenizer", tokenizer, kind)
    own = load_tokenizer(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(source, str | os.PathLike):
        return _open_model(task, source, own, options)
    folder = sources.resolve(source)
    if sources.kind(folder) == "checkpoint":
        _check_no_options(options)
        require("keras", "tensorflow")
        from kerasformer.zoo import load

        return _open_model(task, load(folder, task), own, options)
    from kerasformer.runtime import ENGINES, open_engine

    def load_bundle(folder: Path, manifest: Manifest) -> Opened:
        wanted = _checked_task(task, manifest.info.task)
        model = open_engine(folder, manifest, **options)
        return Opened(ENGINES[manifest.format], model, own or load_tokenizer(folder), manifest.info, wanted)

    return bundle.load(folder, load_bundle)


def open_step(source: Any) -> tuple[Step, Tokenizer | None]:
    """What generates, with its tokenizer: an engine as it is, a pipeline, or whatever `open_source` opens.

    Raises:
        InputError: it does not generate.
    """
    if isinstance(source, Step):
        return source, None
    opened = source if hasattr(source, "engine") else open_source(None, source)
    if not isinstance(opened.model, Step):
        raise InputError(f"A model that generates was expected. Received one that answers at once: {source!r}")
    return opened.model, opened.tokenizer


def open_reader(source: Any) -> tuple[Step, Tokenizer | None, ModelInfo | None]:
    """As `open_step`, with what is known of the model; one of the zoo needs no tokenizer, for it can be given ids.

    Raises:
        InputError: it does not generate.
    """
    if getattr(source, "generates", False) and source.tokenizer is None:
        from kerasformer.models.keras_engine import KerasStep

        return KerasStep(source), None, source.info()
    opened = source if isinstance(source, Step) or hasattr(source, "engine") else open_source(None, source)
    return *open_step(opened), getattr(opened, "info", None)


def _open_model(task: str | None, model: Any, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Opened:
    from kerasformer.models.keras_engine import KerasForward, KerasStep
    from kerasformer.zoo import PretrainedModel

    if not isinstance(model, PretrainedModel):
        raise InputError(
            f"A model of kerasformer.zoo, a folder, a preset or a hub id was expected. Received: {type(model).__name__}"
        )
    _check_no_options(options)
    tokenizer = tokenizer or model.tokenizer
    if tokenizer is None:
        raise TokenizerError(
            "This model has no tokenizer, and so reads no texts. Give tokenizer=, a folder that has one, or set "
            "model.tokenizer = kerasformer.tokenizer(folder)."
        )
    engine: Forward | Step = KerasStep(model) if model.generates else KerasForward(model)
    return Opened("keras", engine, tokenizer, model.info(), _checked_task(task, model.task))


def _check_no_options(options: dict[str, Any]) -> None:
    """A Keras model runs on its backend, which has settings of its own."""
    if given := ", ".join(f"{name}={value!r}" for name, value in options.items() if value is not None):
        raise InputError(
            f"Options of a runtime are for bundles; a Keras model has those of its backend. Received: {given}"
        )


def _checked_task(wanted: str | None, own: str) -> str:
    if wanted is None or wanted == own or of_model(wanted) == of_model(own):
        return wanted or own
    raise InputError(f"This source is for {own}. Received: {argument('task', wanted)}")

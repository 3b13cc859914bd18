"""The models of a server: any source that a pipeline opens."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from kerasformer.decoding import Step
from kerasformer.errors import InputError, TokenizerError
from kerasformer.files import sources
from kerasformer.files.publishing import SITE
from kerasformer.generation.token_bytes import TokenBytes, token_bytes_of
from kerasformer.pipelines import Pipeline, pipeline
from kerasformer.pipelines.feature_extraction import FeatureExtractionPipeline
from kerasformer.pipelines.generation_base import GenerationPipeline
from kerasformer.pipelines.sentence_similarity import SentenceSimilarityPipeline
from kerasformer.server.jobs import Jobs
from kerasformer.server.limits import Limits
from kerasformer.server.measurements import Measurements
from kerasformer.server.replies import ApiError
from kerasformer.server.shared_step import SharedStep, shared_step


class ServedModel:
    """A model that requests name.

    Args:
        name: Name of the model.
        pipe: Its pipeline, which no one else may use.
        limits: Limits of the server.
        measurements: Figures of the server.

    Attributes:
        name: Name of the model.
        pipe: Its pipeline.
        created: Time when it was opened, in seconds since 1970.
        jobs: Its requests.
    """

    def __init__(self, name: str, pipe: Any, limits: Limits, measurements: Measurements) -> None:
        self.name, self.pipe, self.created = name, pipe, int(time.time())
        self.jobs = Jobs(name, limits, measurements)
        self._shared: SharedStep | None = None
        if isinstance(pipe.model, Step):
            pipe.model = self._shared = shared_step(pipe.model, measurements.step_rows.labels(name).observe)

    @property
    def description(self) -> dict[str, object]:
        """Description of the model in the list of models."""
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "kerasformer"}

    @property
    def generates(self) -> bool:
        """Whether the model generates text."""
        return isinstance(self.pipe, GenerationPipeline)

    @property
    def embeds(self) -> bool:
        """Whether the model computes embeddings of texts."""
        return isinstance(self.pipe, SentenceSimilarityPipeline | FeatureExtractionPipeline)

    @cached_property
    def _token_bytes(self) -> TokenBytes | None:
        try:
            return token_bytes_of(self.pipe.tokenizer.writer)
        except TokenizerError:  # tokens that are no pieces of text, such as those of WordPiece
            return None

    def bytes_of(self, token: int) -> bytes:
        """Returns the bytes of a token; those of its name for a special token."""
        content = b"" if self._token_bytes is None else self._token_bytes.text(token)
        return content or (self.pipe.tokenizer.writer.id_to_token(token) or "").encode()

    def close(self) -> None:
        """Cancels all requests and ends all threads."""
        self.jobs.close()
        if self._shared is not None:
            self._shared.close()


class ServedModels:
    """The models of a server by name.

    Args:
        models: The models.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._models = {model.name: model for model in models}

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def find(self, name: str) -> ServedModel:
        """Returns a model.

        Raises:
            ApiError: there is no such model.
        """
        if name not in self._models:
            known = ", ".join(self._models)
            raise ApiError(
                404,
                f"The model '{name[:80]}' does not exist. Expected one of: {known}",
                param="model",
                code="model_not_found",
            )
        return self._models[name]


def open_models(
    models: Sequence[str | os.PathLike[str]], limits: Limits, measurements: Measurements, num_threads: int | None = None
) -> ServedModels:
    """Opens sources.

    Args:
        models: Presets, checkpoint folders, hub ids and bundles; `NAME=SOURCE` sets the name.
        limits: Limits of the server.
        measurements: Figures of the server.
        num_threads: Number of CPU threads of each bundle; the runtime's default if `None`.
    Raises:
        InputError: no source, or two with the same name.
        SourceError: a source was not found, or is a web page.
    """
    named = [name_of(model) for model in models]
    names = [name for name, _ in named]
    if not names:
        raise InputError("A server needs at least one model. Received: none")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            f"Each model needs its own name. Received: {', '.join(repeated)} several times. Pass NAME=SOURCE"
        )
    opened: list[ServedModel] = []
    try:
        for name, source in named:
            opened.append(ServedModel(name, _opened(source, num_threads), limits, measurements))
    except BaseException:
        for model in opened:
            model.close()
        raise
    return ServedModels(opened)


def name_of(model: str | os.PathLike[str]) -> tuple[str, str]:
    """Returns the name of a model and its source; by default, a folder is named after itself."""
    name, separator, source = os.fspath(model).rpartition("=")
    if separator and name and "/" not in name and not Path(os.fspath(model)).exists():
        return name, source
    source = os.fspath(model)
    return (Path(source).resolve().name if Path(source).exists() else source), source


def _opened(source: str, num_threads: int | None) -> Pipeline:
    if (Path(source) / SITE).is_file():
        raise InputError(
            f"{source} is a web page, which runs its models in the browser. Expected: a model. To look at the page: "
            f"kerasformer web {source} --serve"
        )
    is_checkpoint = sources.kind(sources.resolve(source)) == "checkpoint"
    return pipeline(source, num_threads=None if is_checkpoint else num_threads)

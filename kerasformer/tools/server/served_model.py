"""A model of a server: any source that a pipeline opens, with its requests and adapters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any

from kerasformer.bundle import Adapter
from kerasformer.engines import AdaptableEngine, Step
from kerasformer.errors import InputError, TokenizerError
from kerasformer.files import checkpoint_tensors, sources
from kerasformer.files.publishing import SITE
from kerasformer.generation import TokenBytes, token_bytes_of
from kerasformer.pipelines import (
    FeatureExtractionPipeline,
    GenerationPipeline,
    Opened,
    Pipeline,
    SentenceSimilarityPipeline,
    pipeline,
)
from kerasformer.tools.server.adapter_turns import AdapterTurns
from kerasformer.tools.server.jobs import Compute, Job, Jobs
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.shared_step import SharedStep, shared_step


@dataclass(eq=False)
class ServedModel:
    """A model that requests name, alone or with an adapter.

    Attributes:
        name: Name of the model, or of the adapter.
        pipe: Its pipeline.
        jobs: Its requests.
        adapted: The model with each of its adapters, by name.
        taking: Makes a computation wait until no request for another adapter runs; `None` without adapters.
    """

    name: str
    pipe: Any
    jobs: Jobs
    adapted: Mapping[str, ServedModel] = field(default_factory=dict)
    taking: Callable[[Compute], Compute] | None = None

    def start(self, compute: Compute, rows: int = 1, client: str = "") -> Job:
        """Starts a job; see `Jobs.start`. With adapters, it waits until no request for another adapter runs."""
        return self.jobs.start(compute if self.taking is None else self.taking(compute), rows, client)

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
        if isinstance(self.pipe.model, SharedStep):
            self.pipe.model.close()


def served(
    name: str, pipe: Any, limits: Limits, measurements: Measurements, adapters: Mapping[str, Adapter] | None = None
) -> ServedModel:
    """Returns a model for several requests at a time.

    Args:
        name: Name of the model.
        pipe: A pipeline, whose engine no one else may use.
        limits: Limits of the server.
        measurements: Figures of the server.
        adapters: Adapters of the model by name.
    Raises:
        InputError: the model runs no adapters.
        CheckpointError: an adapter belongs to another model.
    """
    jobs, turns = Jobs(name, limits, measurements), AdapterTurns(_adaptable(pipe), adapters) if adapters else None
    if isinstance(pipe.model, Step):
        step = shared_step(pipe.model, measurements.step_rows.labels(name).observe)
        pipe = type(pipe)(Opened(pipe.engine, step, pipe.tokenizer, pipe.info, pipe.task))
    if turns is None or adapters is None:
        return ServedModel(name, pipe, jobs)
    adapted = {each: ServedModel(each, pipe, jobs, taking=partial(turns.taking, each)) for each in adapters}
    return ServedModel(name, pipe, jobs, adapted, partial(turns.taking, None))


def _adaptable(pipe: Any) -> AdaptableEngine:
    if not isinstance(pipe.model, AdaptableEngine):
        raise InputError(
            f"{pipe.info.name} runs no adapters. Expected: a Keras model, or a TFLite or ONNX bundle that was exported "
            "with lora_rank=…. Received: a SavedModel"
        )
    return pipe.model


def name_of(model: str | os.PathLike[str]) -> tuple[str, str]:
    """Returns the name of a model and its source; by default, a folder is named after itself."""
    name, separator, source = os.fspath(model).rpartition("=")
    if separator and name and "/" not in name and not Path(os.fspath(model)).exists():
        return name, source
    source = os.fspath(model)
    return (Path(source).resolve().name if Path(source).exists() else source), source


def check_source(source: str) -> None:
    """Checks that a source is one.

    Raises:
        InputError: it is a web page.
        SourceError: it was not found.
    """
    if (Path(source) / SITE).is_file():
        raise InputError(
            f"{source} is a web page, which runs its models in the browser. Expected: a model. To look at the page: "
            f"kerasformer web {source} --serve"
        )
    sources.kind(sources.resolve(source))


def open_pipeline(source: str, num_threads: int | None) -> Pipeline:
    """Opens a source.

    Args:
        source: Preset, checkpoint folder, hub id or bundle.
        num_threads: Number of CPU threads of a bundle; the runtime's default if `None`.
    Raises:
        InputError, SourceError: see `pipeline`.
    """
    is_checkpoint = sources.kind(sources.resolve(source)) == "checkpoint"
    return pipeline(source, num_threads=None if is_checkpoint else num_threads)


def size_of(source: str) -> int:
    """Returns the bytes of the weights of a source: four for each weight of a Keras model, or the files of a bundle.

    Raises:
        SourceError: it was not found.
        CheckpointError: it has no weights.
    """
    folder = sources.resolve(source)
    if sources.kind(folder) == "checkpoint":
        tensors = checkpoint_tensors(folder)
        return sum(4 * prod(tensors.shape(name)) for name in tensors)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

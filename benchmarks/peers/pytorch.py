"""`transformers` on PyTorch in float32 and bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers import hugging_face
from benchmarks.peers.catalogue import Job
from kerasformer.bench.own_models import size_mb
from kerasformer.bench.question import Facts, Question, Tokens


class Model:
    """A model of `transformers`."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def prepare(self) -> None:
        """Does nothing: the checkpoint can be loaded directly."""

    def import_runtime(self) -> None:
        """See `Subject.import_runtime`."""
        import torch  # noqa: F401
        import transformers

        getattr(transformers, self._job.shape.kind)  # transformers imports models lazily

    def load(self, threads: int | None) -> Facts:
        """See `Subject.load`."""
        import torch
        import transformers

        if threads is not None:
            torch.set_num_threads(threads)
        shape, dtype = self._job.shape, torch.bfloat16 if self._job.variant.endswith("-bf16") else torch.float32
        kind = getattr(transformers, shape.kind)
        self._model: Any = kind.from_pretrained(self._job.checkpoint, dtype=dtype).eval()
        return Facts("pytorch", shape.kind, shape.generates, size_mb=size_mb(self._job.checkpoint))

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        """See `Subject.answer`."""
        return hugging_face.answer(self._model, question, on_token)

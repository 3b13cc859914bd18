"""`sentence-transformers` on PyTorch in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers.catalogue import Job
from benchmarks.shapes import VOCABULARY
from kerasformer.bench.own_models import size_mb
from kerasformer.bench.question import Facts, Question, Tokens


class Model:
    """A model of `sentence-transformers`."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def prepare(self) -> None:
        """Does nothing: the checkpoint can be loaded directly."""

    def import_runtime(self) -> None:
        """See `Subject.import_runtime`."""
        import sentence_transformers  # noqa: F401

    def load(self, threads: int | None) -> Facts:
        """See `Subject.load`."""
        import torch
        from sentence_transformers import SentenceTransformer

        if threads is not None:
            torch.set_num_threads(threads)
        self._model: Any = SentenceTransformer(str(self._job.checkpoint), device="cpu")
        return Facts("pytorch", self._job.shape.kind, False, size_mb=size_mb(self._job.checkpoint))

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        """See `Subject.answer`; texts are encoded in one call, with the default size of a batch."""
        import torch

        if question.texts:
            self._model.encode(list(question.texts), show_progress_bar=False)
            return Tokens(sum(len(ids) for ids in self._model.tokenizer(list(question.texts))["input_ids"]), 0)
        ids = torch.from_numpy(question.ids(VOCABULARY)).long()
        with torch.inference_mode():
            self._model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["sentence_embedding"].numpy()
        return Tokens(ids.numel(), 0)

"""`transformers` on PyTorch, float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers import hugging_face
from benchmarks.peers.catalogue import Place
from kerasformer.bench.own_models import size_mb
from kerasformer.bench.question import Facts, Question, Tokens


class Model:
    """A model of `transformers`."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def prepare(self) -> None:
        """It opens the checkpoint as it is."""

    def import_runtime(self) -> None:
        """See `Subject.import_runtime`."""
        import torch  # noqa: F401
        import transformers

        getattr(transformers, self._place.shape.kind)  # transformers imports models when they are asked for

    def load(self, threads: int | None) -> Facts:
        """See `Subject.load`."""
        import torch
        import transformers

        if threads is not None:
            torch.set_num_threads(threads)
        shape = self._place.shape
        self._model: Any = getattr(transformers, shape.kind).from_pretrained(self._place.checkpoint).eval()
        return Facts("pytorch", shape.kind, shape.generates, size_mb=size_mb(self._place.checkpoint))

    def answer(self, question: Question, told: Callable[[], Any]) -> Tokens:
        """See `Subject.answer`."""
        return hugging_face.answer(self._model, question, told)

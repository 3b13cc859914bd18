"""litert-torch (once ai-edge-torch): PyTorch models to LiteRT.

Its `convert` gives a file of fixed lengths without a cache, which is what an encoder needs. For models that generate it
has `litert_torch.generative`, with an exporter for checkpoints of Hugging Face.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.catalogue import Place
from benchmarks.peers.fixed_lengths import FixedLengths
from benchmarks.shapes import VOCABULARY
from kerasformer.bench.question import Facts, Question, Tokens


class Model:
    """A model of litert-torch."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def prepare(self) -> None:
        """Exports one file for each length."""
        if self._place.shape.generates:
            self._export_generating()
            return
        import litert_torch
        import torch
        import transformers

        model = getattr(transformers, self._place.shape.kind).from_pretrained(self._place.checkpoint).eval()
        for question in self._place.shape.questions:
            inputs = {name: torch.from_numpy(array).long() for name, array in _inputs(question).items()}
            path = self._place.folder / f"{question.read}.tflite"
            litert_torch.convert(_Logits(model), sample_kwargs=inputs).export(str(path))
            if self._place.variant.endswith("int8"):
                _quantize(path)

    def import_runtime(self) -> None:
        """See `Subject.import_runtime`."""
        import ai_edge_litert.compiled_model  # noqa: F401

    def load(self, threads: int | None) -> Facts:
        """See `Subject.load`."""
        shape = self._place.shape
        self._files = FixedLengths(self._place.folder, threads)
        # One file would be shipped.
        size = max(path.stat().st_size for path in self._place.folder.glob("*.tflite")) / 1e6
        return Facts("litert", shape.kind, shape.generates, size_mb=size)

    def answer(self, question: Question, told: Callable[[], Any]) -> Tokens:
        """See `Subject.answer`."""
        self._files.run(_inputs(question))
        return Tokens(question.read, 0)

    def _export_generating(self) -> None:
        """Its exporter for checkpoints of Hugging Face; what it raises is told in the table."""
        from litert_torch.generative.export_hf import export

        export.export(
            model=str(self._place.checkpoint),
            output_dir=str(self._place.folder),
            prefill_lengths=[self._place.shape.questions[0].read],
            cache_length=1024,
            bundle_litert_lm=False,
        )


def _Logits(model: Any) -> Any:
    """The model with one tensor as its answer."""
    import torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).logits

    return Logits().eval()


def _quantize(path: Any) -> None:
    """Dynamic int8 with the quantizer that litert-torch brings."""
    from ai_edge_quantizer import quantizer, recipe

    plain = path.with_suffix(".f32")
    shutil.move(path, plain)
    try:
        tool = quantizer.Quantizer(str(plain), recipe.dynamic_wi8_afp32())
        tool.quantize().export_model(str(path))
    finally:
        plain.unlink()


def _inputs(question: Question) -> dict[str, np.ndarray]:
    ids = question.ids(VOCABULARY)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}

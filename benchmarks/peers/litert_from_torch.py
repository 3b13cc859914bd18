"""litert-torch (formerly ai-edge-torch), which converts PyTorch models to LiteRT.

`convert` writes files of fixed lengths without a cache, as encoders need. For generative models,
`litert_torch.generative` has an exporter of Hugging Face checkpoints.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.catalogue import Job
from benchmarks.peers.fixed_lengths import FixedLengths
from benchmarks.shapes import VOCABULARY
from kerasformer.bench.question import Facts, Question, Tokens


class Model:
    """A model converted by litert-torch."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def prepare(self) -> None:
        """Exports one file for each length."""
        if self._job.shape.generates:
            self._export_generating()
            return
        import litert_torch
        import torch
        import transformers

        model = getattr(transformers, self._job.shape.kind).from_pretrained(self._job.checkpoint).eval()
        for question in self._job.shape.questions:
            inputs = {name: torch.from_numpy(array).long() for name, array in _inputs(question).items()}
            path = self._job.folder / f"{question.read}.tflite"
            litert_torch.convert(_Logits(model), sample_kwargs=inputs).export(str(path))
            if self._job.variant.endswith("int8"):
                _quantize(path)

    def import_runtime(self) -> None:
        """See `Subject.import_runtime`."""
        import ai_edge_litert.compiled_model  # noqa: F401

    def load(self, threads: int | None) -> Facts:
        """See `Subject.load`."""
        shape = self._job.shape
        self._files = FixedLengths(self._job.folder, threads)
        # An application would contain only one of the files.
        size = max(path.stat().st_size for path in self._job.folder.glob("*.tflite")) / 1e6
        return Facts("litert", shape.kind, shape.generates, size_mb=size)

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        """See `Subject.answer`."""
        self._files.run(_inputs(question))
        return Tokens(question.read, 0)

    def _export_generating(self) -> None:
        """Exports a generative model; an error is reported as the reason why the model is not supported."""
        from litert_torch.generative.export_hf import export

        export.export(
            model=str(self._job.checkpoint),
            output_dir=str(self._job.folder),
            prefill_lengths=[self._job.shape.questions[0].read],
            cache_length=1024,
            bundle_litert_lm=False,
        )


def _Logits(model: Any) -> Any:
    """Wraps a model so that it returns only the logits."""
    import torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).logits

    return Logits().eval()


def _quantize(path: Any) -> None:
    """Quantizes to dynamic int8 with ai-edge-quantizer, a dependency of litert-torch."""
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

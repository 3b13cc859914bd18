"""optimum's own export, on ONNX Runtime: float32; dynamic int8; graph optimizations and dynamic int8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers import hugging_face
from benchmarks.peers.catalogue import Place
from kerasformer.bench.question import Facts, Question, Tokens
from kerasformer.bench.sources import size_mb

_CLASSES = {
    "GPT2LMHeadModel": "ORTModelForCausalLM",
    "T5ForConditionalGeneration": "ORTModelForSeq2SeqLM",
    "BertForSequenceClassification": "ORTModelForSequenceClassification",
}


class Model:
    """A model of optimum."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def prepare(self) -> None:
        """Exports, and optimizes and quantizes as the variant says."""
        from optimum.onnxruntime import ORTOptimizer, ORTQuantizer
        from optimum.onnxruntime.configuration import AutoOptimizationConfig, AutoQuantizationConfig

        folder = self._place.folder
        exported = self._class.from_pretrained(self._place.checkpoint, export=True)
        plain = folder if self._place.variant == "optimum-f32" else folder / "f32"
        exported.save_pretrained(plain)
        del exported
        if plain == folder:
            return
        if "o2" in self._place.variant:
            optimizer = ORTOptimizer.from_pretrained(self._class.from_pretrained(plain))
            optimizer.optimize(save_dir=folder / "o2", optimization_config=AutoOptimizationConfig.O2())
            plain = folder / "o2"
        config = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=False)
        for file in sorted(plain.glob("*.onnx")):
            quantizer = ORTQuantizer.from_pretrained(plain, file_name=file.name)
            # Without a suffix the files keep the names that `from_pretrained` looks for.
            quantizer.quantize(save_dir=folder, quantization_config=config, file_suffix="")
        _keep_only_top_level(folder)

    def import_runtime(self) -> None:
        """See `Subject.import_runtime`."""
        import torch  # noqa: F401

        _ = self._class

    def load(self, threads: int | None) -> Facts:
        """See `Subject.load`."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = threads
        # Spinning threads would take time from whoever answers next.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        folder, shape = self._place.folder, self._place.shape
        self._model: Any = self._class.from_pretrained(folder, session_options=options)
        return Facts("onnxruntime", shape.kind, shape.generates, size_mb=size_mb(folder))

    def answer(self, question: Question, told: Callable[[], Any]) -> Tokens:
        """See `Subject.answer`."""
        return hugging_face.answer(self._model, question, told)

    @property
    def _class(self) -> Any:
        import optimum.onnxruntime

        return getattr(optimum.onnxruntime, _CLASSES[self._place.shape.kind])


def _keep_only_top_level(folder: Path) -> None:
    """Drops what the steps before the last one wrote: the size on disk is that of what is opened."""
    import shutil

    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)

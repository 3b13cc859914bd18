"""Export by optimum, run by ONNX Runtime: dynamic int8, and graph optimizations with dynamic int8."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers import hugging_face
from benchmarks.peers.catalogue import Variant
from kerasformer.tools.bench.own_models import size_mb
from kerasformer.tools.bench.question import Facts, Question, Tokens

_CLASSES = {
    "GPT2LMHeadModel": "ORTModelForCausalLM",
    "LlamaForCausalLM": "ORTModelForCausalLM",
    "Qwen2ForCausalLM": "ORTModelForCausalLM",
    "T5ForConditionalGeneration": "ORTModelForSeq2SeqLM",
    "BartForConditionalGeneration": "ORTModelForSeq2SeqLM",
    "MarianMTModel": "ORTModelForSeq2SeqLM",
    "BertForSequenceClassification": "ORTModelForSequenceClassification",
    "BertModel": "ORTModelForFeatureExtraction",
}


class Model(Variant):
    def prepare(self) -> None:
        """Exports the model, and optimizes and quantizes it depending on the variant."""
        folder, variant = self._job.folder, self._job.variant
        plain = folder / "f32"
        self._class.from_pretrained(self._job.checkpoint, export=True).save_pretrained(plain)
        if self._job.shape.package is not None:
            shutil.copytree(self._job.checkpoint, folder / "tokenizer", ignore=shutil.ignore_patterns("*.safetensors"))
        if variant == "optimum-int8":
            _quantize(plain, folder)
        else:
            self._optimize_and_quantize(plain, folder)
        _keep_only_top_level(folder)

    def _optimize_and_quantize(self, plain: Path, folder: Path) -> None:
        """Optimizes and quantizes without optimum's quantizer, which does not support the required option."""
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from optimum.onnxruntime import ORTOptimizer
        from optimum.onnxruntime.configuration import AutoOptimizationConfig

        optimizer = ORTOptimizer.from_pretrained(self._class.from_pretrained(plain))
        level = AutoOptimizationConfig.O3() if "-o3-" in self._job.variant else AutoOptimizationConfig.O2()
        optimizer.optimize(save_dir=folder / "optimized", optimization_config=level)
        (path,) = (folder / "optimized").glob("*.onnx")
        # The types of the outputs of fused operators cannot be inferred.
        options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(path, folder / "model.onnx", weight_type=QuantType.QInt8, extra_options=options)
        shutil.copy(plain / "config.json", folder)

    def import_runtime(self) -> None:
        import torch  # noqa: F401

        _ = self._class

    def load(self, threads: int | None) -> Facts:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = threads
        # Threads spin between operators, as by default. After an answer, they would slow down the next measurement.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        folder, shape = self._job.folder, self._job.shape
        self._model: Any = self._class.from_pretrained(folder, session_options=options)
        if shape.package is not None:
            import transformers

            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer")
        return self._facts("onnxruntime", size_mb(folder))

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        if self._job.shape.package is not None:
            return hugging_face.embeddings(self._states, question, self._tokenizer)
        return hugging_face.answer(self._model, question, on_token)

    def _states(self, ids: Any, mask: Any) -> Any:
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": mask * 0}
        return self._model(**inputs).last_hidden_state

    @property
    def _class(self) -> Any:
        import optimum.onnxruntime

        return getattr(optimum.onnxruntime, _CLASSES[self._job.shape.kind])


def _quantize(source: Path, target: Path) -> None:
    """Quantizes each file to dynamic int8 for processors with VNNI."""
    from optimum.onnxruntime import ORTQuantizer
    from optimum.onnxruntime.configuration import AutoQuantizationConfig

    config = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=False)
    for file in sorted(source.glob("*.onnx")):
        quantizer = ORTQuantizer.from_pretrained(source, file_name=file.name)
        # Without a suffix, the files keep the names that `from_pretrained` expects.
        quantizer.quantize(save_dir=target, quantization_config=config, file_suffix="")


def _keep_only_top_level(folder: Path) -> None:
    """Removes the files of intermediate steps, so that the size on disk is that of the loaded model."""
    for path in folder.iterdir():
        if path.is_dir() and path.name != "tokenizer":
            shutil.rmtree(path)

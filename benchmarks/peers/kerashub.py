"""KerasHub on TensorFlow, compiled with XLA, and its export of encoders to LiteRT.

The models have the same shapes as the checkpoints, with other random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.catalogue import Job, Variant
from benchmarks.shapes import VOCABULARY, Shape
from kerasformer.tools.bench.own_models import limit_tensorflow, size_mb
from kerasformer.tools.bench.question import Facts, Question, Tokens


class FixedLength:
    """A TFLite file of a fixed length, run by LiteRT's `CompiledModel`, its fastest API."""

    def __init__(self, file: Path, threads: int | None) -> None:
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.options import CpuOptions, Options

        settings = {} if threads is None else {"num_threads": threads}
        model: Any = CompiledModel.from_file(str(file), options=Options(cpu_options=CpuOptions(**settings)))
        ((self._signature, names),) = model.get_signature_list().items()
        self._model = model
        self._inputs = {n: model.create_input_buffer_by_name(self._signature, n) for n in names["inputs"]}
        self._outputs = {n: model.create_output_buffer_by_name(self._signature, n) for n in names["outputs"]}
        self._details = model.get_output_tensor_details(self._signature)
        self._types = {n: d["dtype"] for n, d in model.get_input_tensor_details(self._signature).items()}

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for name, buffer in self._inputs.items():
            buffer.write(np.ascontiguousarray(inputs[name], self._types[name]))
        self._model.run_by_name(self._signature, self._inputs, self._outputs)
        outputs = []
        for name, buffer in self._outputs.items():
            shape, dtype = self._details[name]["shape"], np.dtype(self._details[name]["dtype"])
            outputs.append(buffer.read(int(np.prod(shape)), dtype).reshape(shape))
        return outputs


class Model(Variant):
    """A KerasHub model, or its exported files."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._exported = "litert" in job.variant

    def prepare(self) -> None:
        """Exports one file for each length, because their shapes are fixed."""
        if not self._exported:
            return
        import tensorflow as tf

        settings = {"optimizations": [tf.lite.Optimize.DEFAULT]}  # int8
        model = _BUILDERS[self._job.shape.kind](self._job.shape)
        for question in self._job.shape.questions:
            specs = {name: tf.TensorSpec((1, question.read), "int32", name=name) for name in _inputs(np.zeros((1, 1)))}
            path = self._job.folder / f"{question.read}.tflite"
            model.export(str(path), format="litert", input_signature=[specs], verbose=False, **settings)

    def import_runtime(self) -> None:
        if self._exported:
            import ai_edge_litert.compiled_model  # noqa: F401
        else:
            import keras_hub.models  # noqa: F401

    def load(self, threads: int | None) -> Facts:
        shape = self._job.shape
        if self._exported:
            files = sorted(self._job.folder.glob("*.tflite"))
            self._files = {int(file.stem): FixedLength(file, threads) for file in files}
            # An application would contain only one of the files.
            return self._facts("litert", max(file.stat().st_size for file in files) / 1e6)
        if threads is not None:
            limit_tensorflow(threads)
        self._model = _BUILDERS[shape.kind](shape)
        settings = {"sampler": "greedy"} if shape.generates else {}
        self._model.compile(jit_compile=True, **settings)
        return self._facts("keras", size_mb(self._job.checkpoint))

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:  # which KerasHub does not call
        ids = question.ids(VOCABULARY)
        if self._exported:
            self._files[question.read].run(_inputs(ids))
            return Tokens(ids.size, 0)
        if not question.write:
            self._model.predict_on_batch(_inputs(ids))
            return Tokens(ids.size, 0)
        ones, width = np.ones_like(ids), ((0, 0), (0, question.write))
        if "T5" in self._job.shape.kind:
            inputs = {
                "encoder_token_ids": ids,
                "encoder_padding_mask": ones,
                "decoder_token_ids": np.zeros((len(ids), 1 + question.write), "int32"),
                "decoder_padding_mask": np.pad(np.ones((len(ids), 1), "int32"), width),
            }
            written = self._model.generate(inputs, stop_token_ids=None)["decoder_token_ids"]
            return Tokens(ids.size, len(ids) * (written.shape[1] - 1))
        inputs = {"token_ids": np.pad(ids, width), "padding_mask": np.pad(ones, width)}
        written = self._model.generate(inputs, stop_token_ids=None)["token_ids"]
        return Tokens(ids.size, len(ids) * (written.shape[1] - question.read))


def _inputs(ids: np.ndarray) -> dict[str, np.ndarray]:
    return {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}


def _gpt2(shape: Shape) -> Any:
    from keras_hub import models

    size = {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024} | shape.settings
    width = size["n_embd"]
    backbone = models.GPT2Backbone(
        50257, size["n_layer"], size["n_head"], width, 4 * width, max_sequence_length=size["n_positions"]
    )
    return models.GPT2CausalLM(backbone, preprocessor=None)


def _t5(shape: Shape) -> Any:
    from keras_hub import models

    size = {"num_layers": 6, "num_heads": 8, "d_model": 512, "d_kv": 64, "d_ff": 2048} | shape.settings
    backbone = models.T5Backbone(
        32128,
        size["num_layers"],
        size["num_heads"],
        size["d_model"],
        size["d_ff"],
        key_value_dim=size["d_kv"],
        use_gated_activation=False,
    )
    return models.T5Seq2SeqLM(backbone, preprocessor=None)


def _bert(shape: Shape) -> Any:
    from keras_hub import models

    names = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size")
    size = dict(zip(names, (12, 12, 768, 3072), strict=True)) | shape.settings
    backbone = models.BertBackbone(30522, *(size[name] for name in names))
    return models.BertTextClassifier(backbone, num_classes=2, preprocessor=None)


_BUILDERS: dict[str, Callable[[Shape], Any]] = {
    "GPT2LMHeadModel": _gpt2,
    "T5ForConditionalGeneration": _t5,
    "BertForSequenceClassification": _bert,
}

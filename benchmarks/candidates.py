"""What is compared: one class for each way to run a model, behind one method. Each runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.shapes import Case, Shape


class Candidate(Protocol):
    """A model that is open."""

    def answer(self, case: Case) -> int:
        """Answers once; greedy where it generates. Returns the number of tokens that it wrote."""
        ...


class Kerasformer:
    """Our model in Keras, or one of our bundles in its runtime.

    Args:
        shape: The model.
        folder: A checkpoint or a bundle.
        threads: CPU threads of the runtime; Keras takes TensorFlow's.
    """

    def __init__(self, shape: Shape, folder: Path, threads: int) -> None:
        self.shape = shape
        if (folder / "kerasformer.json").exists():
            from kerasformer.runtime import open_engine

            self.engine: Any = open_engine(folder, num_threads=threads)
            self.model = None
        else:
            _limit_tensorflow(threads)
            from kerasformer import zoo
            from kerasformer.zoo._engine import KerasForward

            self.model = zoo.load(folder)
            self.engine = None if self.model.generates else KerasForward(self.model)

    def answer(self, case: Case) -> int:
        """See `Candidate.answer`."""
        ids = self.shape.inputs(case)
        if not case.write:
            self.engine.run({"input_ids": ids})
            return 0
        lengths: dict[str, Any] = {"max_new_tokens": case.write, "min_new_tokens": case.write}
        if self.model is not None:
            return len(self.model.generate(ids, **lengths)[0])
        from kerasformer.decoding import GenerationConfig, generate

        start = 0 if self.engine.is_encoder_decoder else None
        config = GenerationConfig(**lengths, eos_token_id=(1,), decoder_start_token_id=start)
        return len(generate(self.engine, ids, None, config).sequences[0])


class Transformers:
    """`transformers` on PyTorch, float32."""

    def __init__(self, shape: Shape, folder: Path, threads: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.shape, self.torch = shape, torch
        self.model = getattr(transformers, shape.kind).from_pretrained(folder).eval()

    def answer(self, case: Case) -> int:
        """See `Candidate.answer`."""
        ids = self.torch.from_numpy(self.shape.inputs(case)).long()
        mask = self.torch.ones_like(ids)
        with self.torch.inference_mode():
            if not case.write:
                self.model(input_ids=ids, attention_mask=mask)
                return 0
            written = self.model.generate(
                ids,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=case.write,
                min_new_tokens=case.write,
                pad_token_id=0,
            )
        return written.shape[1] - (1 if self.model.config.is_encoder_decoder else case.read)


class KerasHub:
    """KerasHub on TensorFlow, compiled with XLA. Its weights are its own random ones, in the same shapes."""

    def __init__(self, shape: Shape, folder: Path, threads: int) -> None:
        _limit_tensorflow(threads)
        self.shape = shape
        self.model = _KERAS_HUB[shape.kind](shape)
        if any(case.write for case in shape.cases):
            self.model.compile(sampler="greedy", jit_compile=True)
        else:
            self.model.compile(jit_compile=True)

    def answer(self, case: Case) -> int:
        """See `Candidate.answer`."""
        ids = self.shape.inputs(case)
        ones = np.ones_like(ids)
        if not case.write:
            inputs = {"token_ids": ids, "padding_mask": ones, "segment_ids": np.zeros_like(ids)}
            self.model.predict_on_batch(inputs)
            return 0
        if "T5" in self.shape.kind:
            width = ((0, 0), (0, case.write))  # after the start token
            inputs = {
                "encoder_token_ids": ids,
                "encoder_padding_mask": ones,
                "decoder_token_ids": np.zeros((1, 1 + case.write), "int32"),
                "decoder_padding_mask": np.pad(np.ones((1, 1), "int32"), width),
            }
            written = self.model.generate(inputs, stop_token_ids=None)["decoder_token_ids"]
            return written.shape[1] - 1
        width = ((0, 0), (0, case.write))
        inputs = {"token_ids": np.pad(ids, width), "padding_mask": np.pad(ones, width)}
        return self.model.generate(inputs, stop_token_ids=None)["token_ids"].shape[1] - case.read


def _keras_hub_gpt2(shape: Shape) -> Any:
    from keras_hub import models

    size = {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024} | shape.settings
    backbone = models.GPT2Backbone(
        50257,
        size["n_layer"],
        size["n_head"],
        size["n_embd"],
        4 * size["n_embd"],
        max_sequence_length=size["n_positions"],
    )
    return models.GPT2CausalLM(backbone, preprocessor=None)


def _keras_hub_t5(shape: Shape) -> Any:
    from keras_hub import models

    backbone = models.T5Backbone(32128, 6, 8, 512, 2048, key_value_dim=64, use_gated_activation=False)
    return models.T5Seq2SeqLM(backbone, preprocessor=None)


def _keras_hub_bert(shape: Shape) -> Any:
    from keras_hub import models

    return models.BertTextClassifier(models.BertBackbone(30522, 12, 12, 768, 3072), num_classes=2, preprocessor=None)


_KERAS_HUB: dict[str, Callable[[Shape], Any]] = {
    "GPT2LMHeadModel": _keras_hub_gpt2,
    "T5ForConditionalGeneration": _keras_hub_t5,
    "BertForSequenceClassification": _keras_hub_bert,
}


def _limit_tensorflow(threads: int) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


CHECKPOINT = "checkpoint"
CANDIDATES: dict[str, tuple[type, str]] = {
    "transformers": (Transformers, CHECKPOINT),
    "keras-hub": (KerasHub, CHECKPOINT),
    "keras": (Kerasformer, CHECKPOINT),
    "tflite-none": (Kerasformer, "tflite-none"),
    "tflite-int8": (Kerasformer, "tflite-int8"),
    "onnx-none": (Kerasformer, "onnx-none"),
    "onnx-int8": (Kerasformer, "onnx-int8"),
}
"""By name: how to run it, and the folder, below that of its shape, that it opens."""

TITLES = {
    "transformers": "transformers, PyTorch f32",
    "keras-hub": "KerasHub f32",
    "keras": "kerasformer Keras f32",
    "tflite-none": "kerasformer LiteRT f32",
    "tflite-int8": "kerasformer LiteRT int8",
    "onnx-none": "kerasformer ONNX Runtime f32",
    "onnx-int8": "kerasformer ONNX Runtime int8",
}

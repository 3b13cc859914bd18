"""Bundles and Keras models as subjects of a measurement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer import bundle
from kerasformer.bundle import Manifest
from kerasformer.extras import require
from kerasformer.files import sources
from kerasformer.tools.bench.question import Facts, Question, Tokens

if TYPE_CHECKING:
    from kerasformer.tokenization import Tokenizer

_WEIGHTS = (".safetensors", ".tflite", ".onnx", ".onnx_data", ".bin", ".data", ".data-00000-of-00001")
# For each format that needs one, the module of its runtime and the extra that installs it.
_RUNTIMES = {
    "tflite": ("ai_edge_litert.compiled_model", "litert"),
    "onnx": ("onnxruntime", "onnx"),
    "saved-model": ("tensorflow", "tensorflow"),
}


def size_mb(folder: Path) -> float:
    """Returns the size of the weight files in a folder, or of a GGUF file, in 10^6 bytes."""
    if sources.is_foreign(folder):
        return folder.stat().st_size / 1e6
    return sum(path.stat().st_size for path in folder.rglob("*") if path.name.endswith(_WEIGHTS)) / 1e6


class Source:
    """A bundle in its runtime, or a checkpoint or preset in Keras; implements `Subject`.

    Args:
        source: Bundle, checkpoint folder, GGUF file, preset or hub id.

    Raises:
        SourceError: the source was not found.
    """

    def __init__(self, source: str) -> None:
        self._folder = sources.resolve(source)
        self._is_bundle = sources.kind(self._folder) == "bundle"
        self._tokenizer: Tokenizer | None = None

    def import_runtime(self) -> None:
        """Imports the runtime; see `Subject.import_runtime`."""
        from kerasformer import engines, generation, tokenization  # noqa: F401

        if not self._is_bundle:
            require("keras", "tensorflow")
            from kerasformer import zoo  # noqa: F401
        else:
            if (format := bundle.read(self._folder, check=False).format) in _RUNTIMES:
                require(*_RUNTIMES[format])

    def load(self, threads: int | None) -> Facts:
        """Loads the model; see `Subject.load`."""
        engine = self._load_bundle(threads) if self._is_bundle else self._load_keras(threads)
        generates = hasattr(self._engine, "start")
        longest, answer = self._info.max_length, None
        if generates and self._engine.is_encoder_decoder:
            longest, answer = self._encoder_capacity, self._engine.capacity
        elif generates:
            longest = self._engine.capacity
        return Facts(engine, self._info.task, generates, longest, answer, size_mb(self._folder))

    def answer(self, question: Question, on_token: Callable[[], object]) -> Tokens:
        """Runs the model; see `Subject.answer`."""
        if question.texts and self._info.embedding is not None:
            return self._embeddings(question.texts)
        inputs = self._texts(question.texts) if question.texts else {"input_ids": question.ids(self._vocab_size)}
        mask = inputs.get("attention_mask")
        read = int(inputs["input_ids"].size if mask is None else mask.sum())
        if not question.write:
            self._engine.run(inputs)
            return Tokens(read, 0)
        from kerasformer.generation import GenerationConfig, Steps, generate, prepare

        # Without an end token, so that every answer has exactly the requested length.
        config = GenerationConfig(
            max_new_tokens=question.write,
            decoder_start_token_id=self._info.start_token_id,
            num_beams=question.beams,
        )
        if question.beams > 1:
            rows = generate(self._engine, inputs["input_ids"], mask, config).sequences
            return Tokens(read, len(rows) * question.write)
        written = 0
        for tokens in Steps(prepare(self._engine, inputs["input_ids"], mask, config)):
            on_token()
            written += len(tokens)
        return Tokens(read, written)

    def _load_bundle(self, threads: int | None) -> str:
        from kerasformer.engines import ENGINES, open_engine

        def opened(folder: Path, manifest: Manifest) -> tuple[Manifest, Any]:
            return manifest, open_engine(folder, manifest, threads)

        manifest, self._engine = bundle.load(self._folder, opened)
        self._info = manifest.info
        self._encoder_capacity = manifest.encoder_capacity
        return ENGINES[manifest.format]

    def _load_keras(self, threads: int | None) -> str:
        import keras

        from kerasformer.models import KerasForward, KerasStep
        from kerasformer.zoo import load

        if threads is not None and keras.backend.backend() == "tensorflow":
            limit_tensorflow(threads)
        model = load(self._folder)
        self._engine = KerasStep(model) if model.generates else KerasForward(model)
        self._info = model.info()
        self._encoder_capacity = self._info.max_length
        return "keras"

    @property
    def _vocab_size(self) -> int:
        return self._info.vocab_size or int(getattr(self._engine, "vocab_size", 0))

    def _embeddings(self, texts: tuple[str, ...]) -> Tokens:
        """Computes embeddings as a program does, with the pipeline."""
        from kerasformer.pipelines import Opened, SentenceSimilarityPipeline

        tokenizer = self._loaded_tokenizer()
        opened = Opened("", self._engine, tokenizer, self._info, self._info.task)
        SentenceSimilarityPipeline(opened).encode(list(texts), prompt="", batch_size=len(texts))
        return Tokens(int(tokenizer(list(texts)).attention_mask.sum()), 0)

    def _loaded_tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            from kerasformer.tokenization import Tokenizer

            self._tokenizer = Tokenizer.load(self._folder)
        return self._tokenizer

    def _texts(self, texts: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Tokenizes texts; this is part of the measured time."""
        encoded = self._loaded_tokenizer()(list(texts), padding_side="right")
        if hasattr(self._engine, "start"):
            return {"input_ids": encoded.input_ids, "attention_mask": encoded.attention_mask}
        arrays = {**encoded.inputs, "token_type_ids": encoded.token_type_ids}
        return {name: arrays[name] for name in self._info.input_names if name in arrays}


def limit_tensorflow(threads: int) -> None:
    """Sets the number of CPU threads of TensorFlow; must be called before its first operation."""
    tensorflow = require("tensorflow", "tensorflow")
    tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
    tensorflow.config.threading.set_inter_op_parallelism_threads(threads)

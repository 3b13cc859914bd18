"""llama.cpp with weights in Q8_0 and Q4_0, through the C interface that llama-cpp-python declares.

The calls and settings are those of `llama-bench`: a prompt is one batch, a step is a batch of one token, keys and
values are float16, and flash attention is chosen by llama.cpp. Choosing the best token is part of the time, as in all
other libraries; `llama-bench` chooses none.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import Job
from benchmarks.shapes import VOCABULARY
from kerasformer.bench.question import Facts, Question, Tokens

_TYPES = {"llama.cpp-q8_0": "Q8_0", "llama.cpp-q4_0": "Q4_0"}
_CAPACITY = 1024
"""Slots of the cache, as in a kerasformer bundle by default."""


class Model:
    """A model of llama.cpp."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._file = job.folder / "model.gguf"

    def prepare(self) -> None:
        """Converts the checkpoint with llama.cpp's converter, and quantizes it."""
        plain = self._job.folder / "f16.gguf"
        _convert(self._job.checkpoint, plain)
        import llama_cpp

        settings = llama_cpp.llama_model_quantize_default_params()
        settings.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{_TYPES[self._job.variant]}")
        if llama_cpp.llama_model_quantize(bytes(plain), bytes(self._file), settings):
            raise RuntimeError(f"llama.cpp could not quantize {plain}")
        plain.unlink()

    def import_runtime(self) -> None:
        """See `Subject.import_runtime`."""
        import llama_cpp

        self._llama: Any = llama_cpp
        self._silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()

    def load(self, threads: int | None) -> Facts:
        """See `Subject.load`."""
        llama = self._llama
        self._model = llama.llama_model_load_from_file(bytes(self._file), llama.llama_model_default_params())
        settings = llama.llama_context_default_params()
        settings.n_ctx = settings.n_batch = _CAPACITY
        if threads is not None:
            settings.n_threads = settings.n_threads_batch = threads
        self._context = llama.llama_init_from_model(self._model, settings)
        if not self._model or not self._context:
            raise RuntimeError(f"llama.cpp could not load {self._file}")
        self._vocab_size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))
        shape = self._job.shape
        return Facts("llama.cpp", shape.kind, shape.generates, _CAPACITY, size_mb=self._file.stat().st_size / 1e6)

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        """See `Subject.answer`."""
        import numpy as np

        if question.batch > 1 or question.beams > 1:
            raise ValueError("llama.cpp is measured with one text and greedy search")
        llama, (prompt,) = self._llama, question.ids(VOCABULARY).tolist()
        llama.llama_memory_clear(llama.llama_get_memory(self._context), True)
        tokens = prompt
        for _ in range(question.write):
            ids = (llama.llama_token * len(tokens))(*tokens)
            if llama.llama_decode(self._context, llama.llama_batch_get_one(ids, len(tokens))):
                raise RuntimeError("llama_decode failed")
            logits = llama.llama_get_logits_ith(self._context, -1)
            tokens = [int(np.ctypeslib.as_array(logits, (self._vocab_size,)).argmax())]
            on_token()
        return Tokens(len(prompt), question.write)


def _convert(checkpoint: Path, target: Path) -> None:
    """Writes a GGUF file in float16, without a tokenizer, which checkpoints with random weights lack."""
    (converter,) = (Path(sys.prefix) / "source").glob("*/vendor/llama.cpp")
    # The converter uses the package gguf in this folder, which is newer than the one on PyPI.
    sys.path.insert(0, str(converter))
    conversion: Any = importlib.import_module("conversion")
    base: Any = importlib.import_module("conversion.base")
    gguf: Any = importlib.import_module("gguf")

    settings = base.ModelBase.load_hparams(checkpoint, False)
    settings.setdefault("n_ctx", settings.get("n_positions"))  # the name in older files of GPT-2
    kind = conversion.get_model_class(conversion.get_model_architecture(settings, base.ModelType.TEXT))

    class WithoutTokenizer(kind):  # type: ignore[misc]
        model_arch = kind.model_arch

        def set_vocab(self) -> None:
            self._set_vocab_none()
            self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])

    WithoutTokenizer(checkpoint, gguf.LlamaFileType.MOSTLY_F16, target, hparams=settings).write()

"""llama.cpp with weights in Q8_0 and Q4_0, through the C interface that llama-cpp-python declares.

The calls and settings are those of `llama-bench`: a prompt is one batch, a step is a batch of one token, keys and
values are float16, and flash attention is chosen by llama.cpp. Texts that run together are sequences of one batch, as
in its `batched-bench`. Choosing the best token is part of the time, as in all other libraries; `llama-bench` chooses
none.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.catalogue import Job, Variant
from benchmarks.shapes import VOCABULARY
from kerasformer.tools.bench.question import Facts, Question, Tokens

_CAPACITY = 1024
"""Slots of the cache of each text, as in a kerasformer bundle by default."""


class Model(Variant):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._file = job.folder / "model.gguf"
        self._type = "Q8_0" if "-q8_0" in job.variant else "Q4_0"
        self._contexts: dict[int, Any] = {}

    def prepare(self) -> None:
        """Converts the checkpoint with llama.cpp's converter, and quantizes it."""
        plain = self._job.folder / "f16.gguf"
        _convert(self._job.checkpoint, plain)
        import llama_cpp

        settings = llama_cpp.llama_model_quantize_default_params()
        settings.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{self._type}")
        if llama_cpp.llama_model_quantize(bytes(plain), bytes(self._file), settings):
            raise RuntimeError(f"llama.cpp could not quantize {plain}")
        plain.unlink()

    def import_runtime(self) -> None:
        import llama_cpp

        self._llama: Any = llama_cpp
        self._silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()

    def load(self, threads: int | None) -> Facts:
        llama = self._llama
        self._model = llama.llama_model_load_from_file(bytes(self._file), llama.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp could not load {self._file}")
        self._threads = threads
        self._context_of(1)
        self._vocab_size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))
        return self._facts("llama.cpp", self._file.stat().st_size / 1e6, _CAPACITY)

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        if question.beams > 1:
            raise ValueError("llama.cpp has no beam search")
        llama, context, rows = self._llama, self._context_of(question.batch), question.batch
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        ids = question.ids(VOCABULARY)
        batch, position = llama.llama_batch_init(ids.size, 0, 1), 0
        try:
            for _ in range(question.write):
                _fill(batch, ids, position)
                if llama.llama_decode(context, batch):
                    raise RuntimeError("llama_decode failed")
                position += ids.shape[1]
                last = [llama.llama_get_logits_ith(context, row) for row in range(-rows, 0)]
                ids = np.array([[np.ctypeslib.as_array(logits, (self._vocab_size,)).argmax()] for logits in last])
                on_token()
        finally:
            llama.llama_batch_free(batch)
        return Tokens(question.batch * question.read, question.batch * question.write)

    def _context_of(self, rows: int) -> Any:
        """Returns the context for this number of texts, each with a cache of its own."""
        if rows not in self._contexts:
            llama = self._llama
            settings = llama.llama_context_default_params()
            settings.n_ctx, settings.n_batch, settings.n_seq_max = rows * _CAPACITY, _CAPACITY, rows
            if self._threads is not None:
                settings.n_threads = settings.n_threads_batch = self._threads
            context = llama.llama_init_from_model(self._model, settings)
            if not context:
                raise RuntimeError(f"llama.cpp could not create a cache for {rows} texts of {_CAPACITY} tokens")
            self._contexts[rows] = context
        return self._contexts[rows]


def _fill(batch: Any, ids: np.ndarray, position: int) -> None:
    """Fills a batch with the next tokens `(B, T)` of all texts; the logits of the last token of each are computed."""
    rows, length = ids.shape
    batch.n_tokens = ids.size
    for index, (row, offset) in enumerate(np.ndindex(rows, length)):
        batch.token[index] = int(ids[row, offset])
        batch.pos[index], batch.n_seq_id[index], batch.seq_id[index][0] = position + offset, 1, row
        batch.logits[index] = offset == length - 1


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

"""CTranslate2 in int8: generator, translator, and encoder (without a classification head)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from benchmarks.peers import hugging_face
from benchmarks.peers.catalogue import Variant
from benchmarks.shapes import VOCABULARY
from kerasformer.tools.bench.own_models import size_mb
from kerasformer.tools.bench.question import Facts, Question, Tokens

_KINDS = {
    "GPT2LMHeadModel": "Generator",
    "T5ForConditionalGeneration": "Translator",
    "BartForConditionalGeneration": "Translator",
    "MarianMTModel": "Translator",
    "BertForSequenceClassification": "Encoder",
    "BertModel": "Encoder",
}


class Model(Variant):
    def prepare(self) -> None:
        """Converts the checkpoint, with a vocabulary in which each id is a word."""
        from ctranslate2.converters import TransformersConverter

        source = self._job.folder.with_name(f"{self._job.folder.name}-source")
        shutil.copytree(self._job.checkpoint, source, dirs_exist_ok=True)
        try:
            if self._job.shape.package is None:
                hugging_face.write_tokenizer(source)
            converter = TransformersConverter(str(source))
            converter.convert(str(self._job.folder), quantization="int8", force=True)
            if self._job.shape.package is not None:
                ignored = shutil.ignore_patterns("*.safetensors")
                shutil.copytree(source, self._job.folder / "tokenizer", ignore=ignored)
        finally:
            shutil.rmtree(source)

    def import_runtime(self) -> None:
        import ctranslate2  # noqa: F401

    def load(self, threads: int | None) -> Facts:
        import ctranslate2

        folder, shape = self._job.folder, self._job.shape
        kind = getattr(ctranslate2, _KINDS[shape.kind])
        self._model: Any = kind(str(folder), device="cpu", compute_type="int8", intra_threads=threads or 0)
        if shape.package is not None:
            import transformers

            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer")
        return self._facts("ctranslate2", size_mb(folder))

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        import numpy as np

        if self._job.shape.package is not None:
            return hugging_face.embeddings(self._states, question, self._tokenizer)
        ids = question.ids(VOCABULARY)
        if not question.write:
            output = self._model.forward_batch(ids.tolist())
            np.array(output.last_hidden_state)  # converted to NumPy, as by all other libraries
            return Tokens(ids.size, 0)
        words = [[hugging_face.word(token) for token in row] for row in ids.tolist()]
        last = question.batch - 1

        def step(result: Any) -> bool:
            if result.batch_id == last:
                on_token()
            return False

        if _KINDS[self._job.shape.kind] == "Translator":
            results = self._model.translate_batch(
                words,
                beam_size=question.beams,
                max_decoding_length=question.write,
                min_decoding_length=question.write,
                callback=step if question.beams == 1 else None,
            )
            written = [len(result.hypotheses[0]) for result in results]
        else:
            results = self._model.generate_batch(
                words,
                sampling_topk=1,
                max_length=question.write,
                min_length=question.write,
                include_prompt_in_result=False,
                callback=step,
            )
            written = [len(result.sequences_ids[0]) for result in results]
        return Tokens(ids.size, sum(written))

    def _states(self, ids: Any, mask: Any) -> Any:
        return self._model.forward_batch(ids.tolist()).last_hidden_state

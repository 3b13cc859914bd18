"""LiteRT-LM in int8 and int4, with our own TFLite files.

It reads text, and checkpoints with random weights lack a tokenizer: in the one written here, each id is a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import Job
from benchmarks.shapes import VOCABULARY
from kerasformer.bench.question import Facts, Question, Tokens

_END = 0
"""Token that ends a text, and is never generated."""


def write_file(bundle: Path, folder: Path) -> None:
    """Writes a `.litertlm` file with the graphs of a TFLite bundle, as `target="litert-lm"` does."""
    from kerasformer.bundle import read
    from kerasformer.decoding import GenerationConfig
    from kerasformer.export.targets.litert_lm import litertlm_file

    manifest = read(bundle, check=False)
    sizes: dict[str, Any] = {"capacity": manifest.capacity or 0, "vocab_size": manifest.info.vocab_size}
    settings = litertlm_file.metadata(GenerationConfig(suppress_tokens=(_END,)), start=None, ends=(_END,), **sizes)
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(json.dumps(_tokenizer(manifest.info.vocab_size)), encoding="utf-8")
    litertlm_file.write(folder / litertlm_file.NAME, settings, tokenizer, bundle / "model.tflite")


def _tokenizer(vocab_size: int) -> dict[str, Any]:
    """Returns the content of `tokenizer.json`, with a word for each id."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({_word(token): token for token in range(vocab_size)}, unk_token=_word(1)))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    return content


def _word(token: int) -> str:
    return f"w{token}"


class Model:
    """A model of LiteRT-LM."""

    def __init__(self, job: Job) -> None:
        self._file = job.folder / "model.litertlm"
        self._shape = job.shape

    def prepare(self) -> None:
        """Does nothing: `write_file` needs the environment of this package."""

    def import_runtime(self) -> None:
        """See `Subject.import_runtime`."""
        import litert_lm

        litert_lm.set_min_log_severity(litert_lm.LogSeverity.ERROR)

    def load(self, threads: int | None) -> Facts:
        """See `Subject.load`."""
        import litert_lm

        backend = litert_lm.Backend.CPU(thread_count=threads)
        self._engine: Any = litert_lm.Engine(str(self._file), backend=backend, cache_dir=":nocache")
        self._greedy = litert_lm.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0, seed=0)
        size_mb = self._file.stat().st_size / 1e6
        return Facts("LiteRT-LM", self._shape.kind, self._shape.generates, size_mb=size_mb)

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        """See `Subject.answer`."""
        if question.batch > 1 or question.beams > 1:
            raise ValueError("LiteRT-LM generates one text at a time, with greedy search")
        text = " ".join(map(_word, question.ids(VOCABULARY)[0].tolist()))
        settings = {"apply_prompt_template": False, "max_output_tokens": question.write}
        written = 0
        with self._engine.create_session(sampler_config=self._greedy, **settings) as session:
            session.run_prefill([text])
            for piece in session.run_decode_async():
                words = piece.texts[0].count("w") if piece.texts else 0
                for _ in range(words):
                    on_token()
                written += words
        return Tokens(question.read, written)

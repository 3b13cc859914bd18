"""LiteRT-LM with our own TFLite files.

It reads text, and checkpoints with random weights lack a tokenizer: in the one written here, each id is a word.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import Job
from benchmarks.shapes import VOCABULARY
from kerasformer.bench.other_engines import LitertLm
from kerasformer.bench.question import Question, Tokens

_END = 0
"""Token that ends a text, and is never generated."""


def write(bundle: Path) -> None:
    """Writes a `.litertlm` file with the graphs of a TFLite bundle, as `target="litert-lm"` does."""
    from kerasformer.bundle import read
    from kerasformer.decoding import GenerationConfig
    from kerasformer.export.targets.litert_lm import litertlm_file

    manifest = read(bundle, check=False)
    sizes: dict[str, Any] = {"capacity": manifest.capacity or 0, "vocab_size": manifest.info.vocab_size}
    settings = litertlm_file.metadata(GenerationConfig(suppress_tokens=(_END,)), start=None, ends=(_END,), **sizes)
    tokenizer = bundle / "words.json"
    tokenizer.write_text(json.dumps(_tokenizer(manifest.info.vocab_size)), encoding="utf-8")
    litertlm_file.write(bundle / litertlm_file.NAME, settings, tokenizer, bundle / "model.tflite")


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


class Model(LitertLm):
    """A bundle in LiteRT-LM, which reads ids as words."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.checkpoint)

    def answer(self, question: Question, on_token: Callable[[], object]) -> Tokens:
        texts = (" ".join(map(_word, row)) for row in question.ids(VOCABULARY).tolist())
        return super().answer(dataclasses.replace(question, texts=tuple(texts)), on_token)

"""onnxruntime-genai and LiteRT-LM with bundles of ours, which lack a tokenizer, since their weights are random."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import Job
from benchmarks.shapes import VOCABULARY
from kerasformer.tools.bench.other_engines import Genai, LitertLm
from kerasformer.tools.bench.question import Question, Subject, Tokens

_END = 0
"""Token that ends a text, and is never generated."""


def write_genai(bundle: Path) -> None:
    """Writes the configuration with which onnxruntime-genai runs an ONNX bundle, as `target="genai"` does."""
    from kerasformer.bundle import read
    from kerasformer.export.targets.genai import genai_config

    config = genai_config(read(bundle, check=False))
    (bundle / "genai_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_litert_lm(bundle: Path) -> None:
    """Writes a `.litertlm` file with the graphs of a TFLite bundle, as `target="litert-lm"` does.

    LiteRT-LM reads text: in the tokenizer of the file, each id is a word.
    """
    from kerasformer.bundle import read
    from kerasformer.export.targets.litert_lm import litertlm_file
    from kerasformer.generation import GenerationConfig

    manifest = read(bundle, check=False)
    sizes: dict[str, Any] = {"capacity": manifest.capacity or 0, "vocab_size": manifest.info.vocab_size}
    settings = litertlm_file.metadata(GenerationConfig(suppress_tokens=(_END,)), start=None, ends=(_END,), **sizes)
    tokenizer = bundle / "words.json"
    tokenizer.write_text(_words(manifest.info.vocab_size), encoding="utf-8")
    litertlm_file.write(bundle / litertlm_file.NAME, settings, tokenizer, bundle / "model.tflite")


WRITE = {"genai": write_genai, "litert-lm": write_litert_lm}
"""Functions that add the files of another engine to a bundle, by the name of its library."""


def _words(vocab_size: int) -> str:
    """Returns the content of `tokenizer.json`, with a word for each id."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({_word(token): token for token in range(vocab_size)}, unk_token=_word(1)))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return str(tokenizer.to_str())


def _word(token: int) -> str:
    return f"w{token}"


class _ReadingWords(LitertLm):
    def answer(self, question: Question, on_token: Callable[[], object]) -> Tokens:
        texts = (" ".join(map(_word, row)) for row in question.ids(VOCABULARY).tolist())
        return super().answer(dataclasses.replace(question, texts=tuple(texts)), on_token)


def Model(job: Job) -> Subject:  # noqa: N802
    return Genai(job.checkpoint) if job.variant.startswith("genai") else _ReadingWords(job.checkpoint)

"""The compared models: where they come from, and what is measured on which texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import kerasformer as kf
from benchmarks.cost import next_tokens
from benchmarks.cost.bundles import Candidate
from benchmarks.cost.embeddings import Embeddings
from benchmarks.cost.labels import Labels
from benchmarks.cost.text_to_text import TextToText
from kerasformer.evaluation import read_examples, read_parallel


@dataclass(frozen=True)
class Texts:
    """What the models read.

    Attributes:
        data: Folder of the texts.
        text: Text for `smollm2`; WikiText-2 by default.
        rows: Number of windows of a text.
        length: Tokens of a window.
        limit: Maximum number of texts of the other tasks; all by default.
        threads: Number of CPU threads.
    """

    data: Path
    text: Path | None
    rows: int
    length: int
    limit: int | None
    threads: int | None

    def read(self) -> str:
        """Returns the text for `smollm2`."""
        path = self.text or self.data / "wikitext2_valid_test" / "wiki.test.raw.gz"
        return next_tokens.read_text(path, 12 * self.length * self.rows)


class Measurement(Protocol):
    """What is measured on the bundles of one model.

    Attributes:
        columns: Titles of the columns of its table.
    """

    columns: Sequence[str]

    def cells(self, candidate: Candidate) -> list[str]:
        """Returns the row of a bundle."""
        ...


@dataclass(frozen=True)
class Model:
    """A model.

    Attributes:
        measurement: Creates the measurement, from the bundle in float32.
        preset: Whether the model ships with the package.
        options: Keywords of its export.
    """

    measurement: Callable[[Candidate, Texts], Measurement]
    preset: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def _smollm2(reference: Candidate, texts: Texts) -> Measurement:
    rows = next_tokens.windows(kf.Tokenizer.load(reference.folder), texts.read(), texts.length, texts.rows)
    return next_tokens.Comparison("text-generation", reference, rows, texts.threads)


def _stories(reference: Candidate, texts: Texts) -> Measurement:
    """Measures windows of the parts of books that `examples/presets/stories.py` holds out."""
    parts = read_examples(texts.data / "stories-dev.jsonl")
    tokenizer, each = kf.Tokenizer.load(reference.folder), math.ceil(texts.rows / len(parts))
    rows = [row for part in parts for row in next_tokens.windows(tokenizer, part.text, texts.length, each)]
    return next_tokens.Comparison("text-generation", reference, rows, texts.threads)


def _summaries(reference: Candidate, texts: Texts) -> Measurement:
    """Measures descriptions of packages that `examples/presets/summaries.py` holds out."""
    examples = read_examples(texts.data / "summaries-dev.jsonl")[: texts.limit]
    return TextToText("summarization", "rougeL", reference, examples, texts.threads)


def _translations(reference: Candidate, texts: Texts) -> Measurement:
    source, target = (texts.data / "multi30k" / f"test_2016_flickr.{language}.gz" for language in ("en", "de"))
    examples = read_parallel(source, [target])[: texts.limit]
    return TextToText("translation", "bleu", reference, examples, texts.threads)


MODELS = {
    "smollm2": Model(_smollm2),
    "story-gpt2": Model(_stories, preset=True),
    "minilm": Model(lambda reference, texts: Embeddings(reference, texts.data, texts.limit, texts.threads)),
    "sentiment-bert": Model(
        lambda reference, texts: Labels(reference, texts.data, texts.limit, texts.threads), preset=True
    ),
    "summarizer-t5": Model(_summaries, preset=True),
    "translator": Model(_translations, options={"task": "translation", "capacity": 64}),
}

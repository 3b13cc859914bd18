"""Divergence of the distributions of next tokens of a generating model from those of its bundle in float32.

Ids are read as a runtime reads them for a user: a prompt at once, and then one token after the other.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kerasformer as kf
from benchmarks.cost.bundles import Candidate

COLUMNS = ("KL", "99 % of KL", "same top token", "perplexity")


@dataclass(frozen=True)
class Row:
    """Ids that a model reads, and what follows.

    Attributes:
        prompt: Ids for `Step.start`, `(P,)`: of a decoder with the first token of `read`; of an encoder, its text.
        read: Ids that are read one at a time, `(T,)`.
        following: Id after each of them, `(T,)`.
    """

    prompt: np.ndarray
    read: np.ndarray
    following: np.ndarray


@dataclass(frozen=True)
class Figures:
    """Comparison with the model in float32.

    Attributes:
        divergence: Mean Kullback-Leibler divergence in nats.
        percentile: Its 99th percentile over the tokens.
        same: Share of tokens with the same most probable one.
        perplexity: Perplexity of the text.
    """

    divergence: float
    percentile: float
    same: float
    perplexity: float

    def cells(self, plain: Figures | None = None) -> list[str]:
        """Returns the cells of a table below `COLUMNS`; `plain` are the figures in float32."""
        perplexity = f"{self.perplexity:.2f}"
        if plain is None:
            return ["", "", "", perplexity]
        change = self.perplexity / plain.perplexity - 1
        figures = [f"{self.divergence:.4f}", f"{self.percentile:.3f}", f"{self.same:.1%}"]
        return [*figures, f"{perplexity} ({change:+.1%})"]


def read_text(path: Path, characters: int) -> str:
    """Returns the first characters of a plain or gzip-compressed file."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", "replace")[:characters]


def windows(tokenizer: Any, text: str, length: int, count: int) -> list[Row]:
    """Cuts a text into windows, of which the first half is the prompt, as `llama-perplexity` scores them.

    Args:
        tokenizer: Tokenizer of the model.
        text: The text.
        length: Tokens of a window.
        count: Maximum number of windows.
    """
    ids = np.array(tokenizer.encode(text), "int32")
    rows, half = ids[: len(ids) // length * length].reshape(-1, length)[:count], length // 2
    return [Row(row[: half + 1], row[half:-1], row[half + 1 :]) for row in rows]


def log_probabilities(engine: Any, rows: Sequence[Row]) -> np.ndarray:
    """Returns the log-probabilities of the next token after each token that is read one at a time, `(N, V)`."""
    logits = []
    for row in rows:
        state = engine.start(row.prompt[None], np.ones_like(row.prompt)[None])
        for token in row.read:
            scores, state = engine.step(np.array([[token]], "int32"), state)
            logits.append(scores[0, -1])
    return normalized(np.stack(logits))


def pairs(tokenizer: Any, texts: Sequence[tuple[str, str]], start: int, limit: int | None) -> list[Row]:
    """Returns what an encoder-decoder reads for texts and their references; longer texts are left out.

    Args:
        tokenizer: Tokenizer of the model.
        texts: Texts and references.
        start: Id that the decoder reads first.
        limit: Maximum number of tokens of a text.
    """
    rows = [[np.array(tokenizer.encode(text), "int32") for text in pair] for pair in texts]
    fitting = [(text, target) for text, target in rows if limit is None or len(text) <= limit]
    return [Row(text, np.append(np.int32(start), target[:-1]), target) for text, target in fitting]


def normalized(logits: np.ndarray) -> np.ndarray:
    """Returns log-probabilities."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Comparison:
    """Distributions of the bundle in float32 along some ids.

    Args:
        task: Task of the bundles.
        reference: The bundle in float32.
        rows: What is read.
        threads: Number of CPU threads.

    Attributes:
        plain: Figures of the bundle in float32.
    """

    columns = COLUMNS

    def __init__(self, task: str, reference: Candidate, rows: Sequence[Row], threads: int | None) -> None:
        self._task, self._rows, self._threads = task, rows, threads
        self._following = np.concatenate([row.following for row in rows])
        inputs = [(row.prompt.tolist(), row.read.tolist()) for row in rows]
        self._reference = reference.stored("log-probabilities", inputs, lambda: self._of(reference))
        self.plain = self._figures(self._reference)

    def figures(self, candidate: Candidate) -> Figures:
        """Returns the figures of a bundle."""
        return self._figures(self._of(candidate))

    def cells(self, candidate: Candidate) -> list[str]:
        """Returns the row of a table for a bundle."""
        return self.figures(candidate).cells(self.plain)

    def _of(self, candidate: Candidate) -> np.ndarray:
        pipe = kf.pipeline(candidate.folder, self._task, num_threads=self._threads)
        return log_probabilities(pipe.model, self._rows)

    def _figures(self, received: np.ndarray) -> Figures:
        expected = self._reference
        divergence = (np.exp(expected) * (expected - received)).sum(axis=-1, dtype="float64")
        same = expected.argmax(axis=-1) == received.argmax(axis=-1)
        losses = -received[np.arange(len(received)), self._following].astype("float64")
        values = divergence.mean(), np.percentile(divergence, 99), same.mean(), np.exp(losses.mean())
        return Figures(*map(float, values))

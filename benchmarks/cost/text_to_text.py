"""Summaries and translations by a model, and the divergence of the distributions along the references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import kerasformer as kf
from benchmarks.cost import next_tokens
from benchmarks.cost.bundles import Candidate
from kerasformer.evaluation import Example, TextEvaluation
from kerasformer.evaluation.text_evaluation import references

SCORED = 100
"""Number of references along which distributions are compared."""


class TextToText:
    """Generated texts.

    Args:
        task: `"summarization"` or `"translation"`.
        metric: Name of its metric.
        reference: The bundle in float32.
        examples: Texts with references.
        threads: Number of CPU threads.
    """

    beams = (1, 4)

    def __init__(
        self, task: str, metric: str, reference: Candidate, examples: Sequence[Example], threads: int | None
    ) -> None:
        self._evaluation = TextEvaluation(task, examples)
        self._task, self._metric, self._threads = task, metric, threads
        pipe: Any = kf.pipeline(reference.folder, task)
        prefix = next(iter(pipe.info.prefixes(task).values()), "")
        scored = examples[:SCORED]
        pairs = [(prefix + example.text, row[0]) for example, row in zip(scored, references(scored), strict=True)]
        start = pipe.generation_config.decoder_start_token_id
        rows = next_tokens.pairs(pipe.tokenizer, pairs, start, pipe.info.max_length)
        self._comparison = next_tokens.Comparison(task, reference, rows, threads)
        self.columns = (f"{metric}, greedy", f"{metric}, 4 beams", *next_tokens.COLUMNS)
        self._plain = self._scores(reference)

    def cells(self, candidate: Candidate) -> list[str]:
        """Returns the row of a table for a bundle."""
        scores = [
            f"{score:.2f} ({score - plain:+.2f})"
            for score, plain in zip(self._scores(candidate), self._plain, strict=True)
        ]
        return [*scores, *self._comparison.cells(candidate)]

    def _scores(self, candidate: Candidate) -> list[float]:
        """Returns the metric with greedy search and with beams, in points of 100."""
        pipe = kf.pipeline(candidate.folder, self._task, num_threads=self._threads)
        return [
            100 * self._evaluation.add_model(candidate.title, pipe, {"num_beams": beams}).figures[self._metric]
            for beams in self.beams
        ]

"""Accuracy of a classifier on labelled texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import kerasformer as kf
from benchmarks.cost.bundles import Candidate
from kerasformer.evaluation import read_examples


class Labels:
    """Classes of sentences (SST-2 dev).

    Args:
        reference: The bundle in float32.
        data: Folder of the texts.
        limit: Maximum number of sentences.
        threads: Number of CPU threads.
    """

    columns = ("accuracy", "same class", "KL")

    def __init__(self, reference: Candidate, data: Path, limit: int | None, threads: int | None) -> None:
        self._threads = threads
        self._examples = read_examples(data / "sst2/glue/dev.tsv.gz")[:limit]
        self._reference = self._of(reference)

    def cells(self, candidate: Candidate) -> list[str]:
        """Returns the row of a table for a bundle."""
        received, expected = self._of(candidate), self._reference
        right = np.array([int(str(example.label)) for example in self._examples])
        accuracies = [100 * np.mean(scores.argmax(axis=-1) == right) for scores in (received, expected)]
        divergence = (expected * np.log(expected / received)).sum(axis=-1).mean()
        same = np.mean(received.argmax(axis=-1) == expected.argmax(axis=-1))
        return [f"{accuracies[0]:.2f} ({accuracies[0] - accuracies[1]:+.2f})", f"{same:.1%}", f"{divergence:.1e}"]

    def _of(self, candidate: Candidate) -> np.ndarray:
        """Returns the probabilities of all classes, `(N, C)`."""
        pipe: Any = kf.pipeline(candidate.folder, "text-classification", num_threads=self._threads)
        answers = pipe([example.text for example in self._examples], top_k=None)
        ids = {label: index for index, label in enumerate(pipe.info.labels)}
        scores = np.zeros((len(answers), len(ids)))
        for row, answer in zip(scores, answers, strict=True):
            for each in answer:
                row[ids[each["label"]]] = each["score"]
        return scores

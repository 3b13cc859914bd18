"""Paraphrases and retrieval with the embeddings of a model, and of optimum's export of it."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

import kerasformer as kf
from benchmarks.cost.bundles import Candidate

BATCH = 8


class Embeddings:
    """Two tasks for embeddings.

    Paraphrases: the area under the ROC curve of the cosine similarity of pairs of sentences (MRPC). Retrieval: the
    summary of a paper as query, and the abstracts of all papers (SciTLDR).

    Args:
        reference: The bundle in float32.
        data: Folder of the texts.
        limit: Maximum number of pairs of each task.
        threads: Number of CPU threads.
    """

    columns = ("mean cosine to float32 (smallest)", "paraphrases, AUC", "retrieval, first", "retrieval, MRR of 10")

    def __init__(self, reference: Candidate, data: Path, limit: int | None, threads: int | None) -> None:
        self._threads = threads
        self._tokenizer = kf.Tokenizer.load(reference.folder)
        with gzip.open(data / "mrpc/msr-para-test.tsv.gz", "rt", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][1:][:limit]
        self._labels = np.array([row[0] == "1" for row in rows])
        with gzip.open(data / "scitldr_a/dev.jsonl.gz", "rt", encoding="utf-8") as file:
            papers = [json.loads(line) for line in file][:limit]
        parts = [row[3] for row in rows], [row[4] for row in rows]
        parts += [paper["target"][0] for paper in papers], [" ".join(paper["source"]) for paper in papers]
        self._texts = [text for part in parts for text in part]
        self._ends = np.cumsum([len(part) for part in parts])[:-1]
        self._reference = self._of(reference)

    def cells(self, candidate: Candidate) -> list[str]:
        """Returns the row of a table for a bundle."""
        return self._cells(self._of(candidate))

    def cells_of_optimum(self, file: Path) -> list[str]:
        """Returns the row of a table for an ONNX file by optimum."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads or 0
        session = onnxruntime.InferenceSession(file, options)
        names = [each.name for each in session.get_inputs()]

        def encode(texts: list[str]) -> np.ndarray:
            encoded: Any = self._tokenizer(texts, truncation=True)
            mask = np.asarray(encoded["attention_mask"], "int64")
            inputs = {name: np.asarray(encoded.get(name, mask * 0), "int64") for name in names}
            states = session.run(None, inputs)[0]
            return (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)

        return self._cells(self._encoded(encode))

    def _of(self, candidate: Candidate) -> np.ndarray:
        def compute() -> np.ndarray:
            pipe = kf.pipeline(candidate.folder, "sentence-similarity", num_threads=self._threads)
            return self._encoded(lambda texts: pipe.encode(texts, truncation=True, batch_size=BATCH))

        return candidate.stored("embeddings", self._texts, compute)

    def _encoded(self, encode: Callable[[list[str]], np.ndarray]) -> np.ndarray:
        """Returns vectors of length 1 of all texts, which are read in batches of similar length."""
        order = sorted(range(len(self._texts)), key=lambda index: len(self._texts[index]))
        parts = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        vectors = np.concatenate([encode([self._texts[index] for index in part]) for part in parts])[np.argsort(order)]
        return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))

    def _cells(self, vectors: np.ndarray) -> list[str]:
        cosines = (vectors * self._reference).sum(axis=-1)
        pairs = zip(self._figures(vectors), self._figures(self._reference), strict=True)
        figures = [f"{figure:.2f} ({figure - plain:+.2f})" for figure, plain in pairs]
        return [f"{cosines.mean():.4f} ({cosines.min():.3f})", *figures]

    def _figures(self, vectors: np.ndarray) -> tuple[float, float, float]:
        """Returns the figures of both tasks, in points of 100."""
        first, second, queries, papers = np.split(vectors, self._ends)
        ranks = rankdata((first * second).sum(axis=-1))
        positive, negative = self._labels.sum(), (~self._labels).sum()
        area = (ranks[self._labels].sum() - positive * (positive + 1) / 2) / (positive * negative)
        scores = queries @ papers.T
        places = 1 + (scores > np.diag(scores)[:, None]).sum(axis=-1)
        return 100 * area, 100 * np.mean(places == 1), 100 * np.mean(np.where(places <= 10, 1 / places, 0.0))

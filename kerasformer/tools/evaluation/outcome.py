"""What a model answered to the texts of an evaluation."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.tools.evaluation.classes import Classes, ClassScores, ConfusionMatrix
from kerasformer.tools.evaluation.metrics import pearson, spearman

NO_CLASS = "no class"
"""What an answer is counted as that names no class."""


@dataclass(frozen=True)
class Outcome:
    """Figures of a model, with its answer to each text.

    Attributes:
        figures: Scores by metric.
        answers: Answer to each text, as a text.
        losses: How wrong each answer is. Classification, choices and last words: negative log-likelihood of what is
            expected, in nats; perplexity: its mean over the tokens; regression and similarity: the squared error, for
            similarities that of the ranks, scaled to the range from 0 to 1; words, answers and masked words: 1 minus
            the score of the text. None for baselines and generated texts.
        expected: What is expected for each text, as a text; empty if it is a reference.
        confusion: Counts of the classes, for classifiers with one class for each text.
        classes: Scores of each class or type of entity.
    """

    figures: dict[str, float]
    answers: tuple[str, ...]
    losses: tuple[float, ...] = ()
    expected: tuple[str, ...] = ()
    confusion: ConfusionMatrix | None = None
    classes: tuple[ClassScores, ...] = ()


def of_classes(
    known: Classes,
    received: Sequence[int],
    expected: Sequence[int],
    losses: Sequence[float] = (),
    groups: Sequence[Hashable] = (),
) -> Outcome:
    """Returns the outcome of a classifier with one class for each text.

    Args:
        known: Classes of the model; a task of GLUE has its own metrics.
        received: Ids of the classes that the model chose.
        expected: Ids of the right classes.
        losses: Loss of each text; none for a baseline.
        groups: Question that each text belongs to; `exact_match` is the share of those of which all texts are right.
    """
    matrix = ConfusionMatrix.of(known.labels, received, expected)
    classes = matrix.classes()
    figures = {"accuracy": matrix.accuracy(), "f1": matrix.macro_f1(), "matthews": matrix.matthews()}
    if known.glue is not None:
        figures |= {"macro_f1": _macro_f1(matrix), "f1": _f1(matrix, known.find(known.glue.classes[1]))}
        figures |= {"exact_match": _exact_match(received, expected, groups)} if groups else {}
        figures = {name: figures[name] for name in known.glue.metrics}
    answers, right = (tuple(known.labels[index] for index in row) for row in (received, expected))
    return Outcome(figures, answers, tuple(losses), right, matrix, tuple(classes))


def _macro_f1(matrix: ConfusionMatrix) -> float:
    """Returns the mean F1 of the classes that occur, of which an answer without a class is none."""
    occurs = matrix.counts.sum(axis=0) + matrix.counts.sum(axis=1) > 0
    rows = zip(matrix.classes(), occurs, strict=True)
    return float(np.mean([row.f1 for row, seen in rows if seen and row.label != NO_CLASS]))


def _f1(matrix: ConfusionMatrix, index: int) -> float:
    """Returns the F1 of a class; an answer without a class counts as the wrong one of two, as T5's evaluation does."""
    counts = matrix.counts
    total = counts[:, index].sum() + counts[index].sum()
    if NO_CLASS in matrix.labels:
        total += np.delete(counts[:, matrix.labels.index(NO_CLASS)], index).sum()
    return float(2 * counts[index, index] / total) if total else 0.0


def _exact_match(received: Sequence[int], expected: Sequence[int], groups: Sequence[Hashable]) -> float:
    right: dict[Hashable, bool] = {}
    for group, *pair in zip(groups, received, expected, strict=True):
        right[group] = right.get(group, True) and pair[0] == pair[1]
    return sum(right.values()) / len(right)


def correlation(received: Sequence[float], expected: Sequence[float], losses: Sequence[float]) -> Outcome:
    """Returns the outcome of a model that predicts numbers."""
    figures = {"pearson": pearson(received, expected), "spearman": spearman(received, expected)}
    answers, right = (tuple(f"{value:.4g}" for value in row) for row in (received, expected))
    return Outcome(figures, answers, tuple(map(float, losses)), right)

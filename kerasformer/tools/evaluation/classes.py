"""The classes of a classifier: lookup by name or id, confusion matrix, and the scores of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kerasformer.errors import InputError
from kerasformer.pipelines import ClassName, Example
from kerasformer.tools.evaluation.glue import GlueTask
from kerasformer.tools.evaluation.metrics import Entity


@dataclass(frozen=True)
class ClassScores:
    """Scores of one class, between 0 and 1.

    Attributes:
        label: Name of the class.
        precision: Share of the texts that received this class to which it applies; 0 if there are none.
        recall: Share of the texts of this class that received it; 0 if there are none.
        f1: Harmonic mean of both.
        support: Number of texts of this class.
    """

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """How many texts of each class received which class.

    Attributes:
        labels: Names of the classes.
        counts: Number of texts, int64 `(C, C)`: rows are the expected classes, columns the received ones.
    """

    labels: tuple[str, ...]
    counts: np.ndarray

    @classmethod
    def of(cls, labels: Sequence[str], received: Sequence[int], expected: Sequence[int]) -> ConfusionMatrix:
        """Counts pairs of a received and an expected class, given as ids."""
        counts = np.zeros((len(labels), len(labels)), np.int64)
        np.add.at(counts, (np.asarray(expected), np.asarray(received)), 1)
        return cls(tuple(labels), counts)

    def classes(self) -> list[ClassScores]:
        """Returns the scores of each class."""
        right, received, expected = np.diag(self.counts), self.counts.sum(axis=0), self.counts.sum(axis=1)
        return [
            ClassScores(label, _share(r, a), _share(r, b), _share(2 * r, a + b), int(b))
            for label, r, a, b in zip(self.labels, right, received, expected, strict=True)
        ]

    def accuracy(self) -> float:
        """Returns the share of texts that received their class."""
        return _share(np.trace(self.counts), self.counts.sum())

    def macro_f1(self) -> float:
        """Returns the unweighted mean of the F1 scores of all classes that occur."""
        occurs = self.counts.sum(axis=0) + self.counts.sum(axis=1) > 0
        return float(np.mean([one.f1 for one, seen in zip(self.classes(), occurs, strict=True) if seen]))

    def matthews(self) -> float:
        """Returns the correlation of received and expected classes, from -1 to 1; 0 if either is constant.

        Reference: Matthews 1975; for several classes, Gorodkin 2004.
        """
        total, right = self.counts.sum(), np.trace(self.counts)
        received, expected = self.counts.sum(axis=0, dtype=float), self.counts.sum(axis=1, dtype=float)
        spread = (total**2 - received @ received) * (total**2 - expected @ expected)
        return float((right * total - received @ expected) / np.sqrt(spread)) if spread > 0 else 0.0

    def to_dict(self) -> dict[str, object]:
        """Returns the matrix and the scores of each class, for JSON."""
        return {
            "labels": list(self.labels),
            "confusion": self.counts.tolist(),
            "classes": [vars(one) for one in self.classes()],
        }

    def picture(self, path: str | Path, title: str = "", dark: bool = False) -> None:
        """Draws the matrix; see `kerasformer.tools.viz.draw_confusion`."""
        from kerasformer.tools.viz import draw_confusion

        draw_confusion([(title, self.labels, self.counts)], path, dark)


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def entity_scores(received: Sequence[set[Entity]], expected: Sequence[set[Entity]]) -> tuple[ClassScores, ...]:
    """Returns the scores of each type of entity, in alphabetical order, over all texts together."""
    found = [(index, *entity) for index, row in enumerate(received) for entity in row]
    right = [(index, *entity) for index, row in enumerate(expected) for entity in row]
    rows = []
    for kind in sorted({entity[1] for entity in (*found, *right)}):
        a, b = ({entity for entity in entities if entity[1] == kind} for entities in (found, right))
        shares = _share(len(a & b), len(a)), _share(len(a & b), len(b)), _share(2 * len(a & b), len(a) + len(b))
        rows.append(ClassScores(kind, *shares, len(b)))
    return tuple(rows)


class Classes:
    """Classes of a model, found by name or id.

    Args:
        labels: Names of the classes of the model.
        glue: Task of GLUE, whose names of classes the model may lack; then the ids of both are the same.
    """

    def __init__(self, labels: Sequence[str], glue: GlueTask | None = None) -> None:
        self.labels, self.glue = tuple(labels), glue
        self._ids = {label.lower(): index for index, label in enumerate(labels)}
        self._numbered = self.labels == tuple(f"LABEL_{index}" for index in range(len(self.labels)))
        if glue is not None and not {name.lower() for name in glue.classes} <= set(self._ids):
            self._ids = {name: index for index, name in enumerate(glue.classes)} | self._ids

    def find(self, label: object, example: Example | None = None) -> int:
        """Returns the id of a class.

        Args:
            label: Name or id.
            example: Text that has the label, whose location the error names.

        Raises:
            InputError: the model has no such class.
        """
        index = self._ids.get(str(label).strip().lower())
        if index is None and isinstance(label, ClassName) and self._numbered:
            index = label.id
        if index is None and str(label).strip().isdigit():
            index = int(str(label))
        if index is None or index >= len(self.labels):
            where = f" ({example.location})" if example is not None and example.location else ""
            raise InputError(
                f"A label must be one of {', '.join(self.labels)}, or its id. Received: {label!r:.80}{where}. If that "
                "is a text, specify the columns of texts and labels"
            )
        return index

"""Differences and agreement of an engine's answers with recorded ones: classes, decisions, numbers, vectors, spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.fidelity.answers import Arrays


@dataclass(frozen=True)
class Scores:
    """Comparison of answers with recorded ones.

    Attributes:
        largest: Maximum difference of a logit relative to `scale`, including made-up texts.
        errors: Absolute differences of all logits relative to `scale`.
        same: For each answer, whether it is the same.
        divergence: Kullback-Leibler divergence of each answer in nats; `None` if answers are not probabilities.
        scale: Largest absolute recorded logit.
        margins: For each recorded answer, its margin to the next one in logits; infinite if there is none.
        changes: Change of each margin in the engine's answers.
        cosines: Cosine similarity of each embedding; `None` if answers are not embeddings.
    """

    largest: float
    errors: np.ndarray
    same: np.ndarray
    divergence: np.ndarray | None
    scale: float
    margins: np.ndarray
    changes: np.ndarray
    cosines: np.ndarray | None = None


_LONGEST_SPAN = 15
"""Maximum length of an extracted answer in tokens, the default of the pipeline."""
_SAME_DIRECTION = 0.98
"""Cosine similarity from which two vectors count as the same answer."""


def compare_answers(
    recorded: Sequence[Arrays], received: Sequence[Arrays], kind: str, made_up: np.ndarray | None = None
) -> Scores:
    """Compares the answers to all texts; made-up texts count for the maximum error only."""
    scale = max(float(np.abs(row["values"]).max()) for row in recorded)
    largest, errors, same, divergences, margins, changes, cosines = [], [], [], [], [], [], []
    for row, (expected, answer) in enumerate(zip(recorded, received, strict=True)):
        differences = np.abs(answer["values"] - expected["values"]).ravel() / max(scale, 1e-9)
        largest.append(differences.max())
        if made_up is not None and made_up[row]:
            continue
        errors.append(differences)
        agreed, divergence, margin, change = _COMPARED[kind](expected, answer)
        same.append(np.ravel(agreed))
        margins.append(np.ravel(margin))
        changes.append(np.ravel(change))
        if divergence is not None:
            divergences.append(np.ravel(divergence))
        if kind == "embedding":
            cosines.append(np.ravel(_cosines(expected, answer)))
    return Scores(
        float(np.max(largest)),
        np.concatenate(errors),
        np.concatenate(same),
        np.concatenate(divergences) if divergences else None,
        scale,
        np.concatenate(margins),
        np.concatenate(changes),
        np.concatenate(cosines) if cosines else None,
    )


_Compared = tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray]
"""For each answer: whether it is the same, the divergence, the recorded margin, and the change of the margin."""


def _margins(expected: np.ndarray, answer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the margin between the recorded best of these values `(…, K)` and the next one, and its change."""
    if expected.shape[-1] < 2:
        return np.full(expected.shape[:-1], np.inf), np.zeros(expected.shape[:-1])
    margins = [values[..., 0].astype("float64") - values[..., 1] for values in (expected, answer)]
    return margins[0], margins[1] - margins[0]


def _compared_classes(expected: Arrays, answer: Arrays) -> _Compared:
    """Compares classes that exclude each other; classes that were not recorded are treated as one."""
    logs = [row["values"].astype("float64") - row["logsumexp"][..., None] for row in (expected, answer)]
    rest = [np.maximum(1 - np.exp(log).sum(axis=-1), 1e-9) for log in logs]
    divergence = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1) + rest[0] * np.log(rest[0] / rest[1])
    same = answer["best"] == expected["indices"][..., 0]
    return same, np.maximum(divergence, 0), *_margins(expected["values"], answer["values"])


def _compared_decisions(expected: Arrays, answer: Arrays) -> _Compared:
    """Compares independent classes: each is a yes-or-no decision with the threshold 0."""
    keras, ours = (row["values"].astype("float64") for row in (expected, answer))
    probability = 0.5 + 0.5 * np.tanh(0.5 * keras)
    # log p = -log(1 + exp(-x)) and log(1 - p) = -log(1 + exp(x))
    divergence = probability * (np.logaddexp(0, -ours) - np.logaddexp(0, -keras))
    divergence += (1 - probability) * (np.logaddexp(0, ours) - np.logaddexp(0, keras))
    change = np.where(keras > 0, ours - keras, keras - ours)
    return (ours > 0) == (keras > 0), np.maximum(divergence, 0), np.abs(keras), change


def _compared_numbers(expected: Arrays, answer: Arrays) -> _Compared:
    """Compares plain numbers, which agree if the index of the largest one is the same."""
    same = answer["best"] == expected["indices"][..., 0]
    return same, None, np.full(np.shape(same), np.inf), np.zeros(0)


def _compared_directions(expected: Arrays, answer: Arrays) -> _Compared:
    """Compares the directions of hidden states: of a text's mean vector or, in older bundles, of each token's."""
    same = _cosines(expected, answer) >= _SAME_DIRECTION
    return same, None, np.full(np.shape(same), np.inf), np.zeros(0)


def _cosines(expected: Arrays, answer: Arrays) -> np.ndarray:
    """Returns the cosine similarity of recorded and received vectors; that of two vectors of zeros is 1."""
    key = "mean" if "mean" in expected else "values"
    keras, ours = (row[key].astype("float64") for row in (expected, answer))
    norms = np.linalg.norm(keras, axis=-1) * np.linalg.norm(ours, axis=-1)
    products = (keras * ours).sum(axis=-1)
    return np.where(norms > 0, products / np.where(norms > 0, norms, 1.0), (keras == ours).all(axis=-1))


def compare_spans(
    answers: Sequence[Sequence[tuple[Arrays, Arrays]]], made_up: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compares the most probable spans.

    Returns:
        For each text, whether the span is the same, its recorded margin, and the change of the margin.
    """
    same, margins, changes = [], [], []
    for row, (start, end) in enumerate(zip(*answers, strict=True)):
        if made_up is not None and made_up[row]:
            continue
        indices = [part[0]["indices"] for part in (start, end)]
        expected, answer = (_spans(indices, [part[side]["values"] for part in (start, end)]) for side in (0, 1))
        recorded = all(part[1]["best"] in part[0]["indices"] for part in (start, end))
        same.append(bool(expected.argmax() == answer.argmax()) and recorded)
        first, second = np.argsort(-expected, kind="stable")[: min(2, len(expected))][[0, -1]]
        margin = expected[first] - expected[second] if np.isfinite(expected[second]) and first != second else np.inf
        margins.append(margin)
        changes.append(answer[first] - answer[second] - margin if np.isfinite(margin) else 0.0)
    return np.array(same), np.array(margins), np.array(changes)


def _spans(indices: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the scores of all pairs of start and end candidates; minus infinity for pairs that are not spans."""
    length = indices[1][None, :] - indices[0][:, None]
    total = values[0][:, None].astype("float64") + values[1][None, :]
    return np.where((length >= 0) & (length < _LONGEST_SPAN), total, -np.inf).ravel()


_COMPARED: dict[str, Callable[[Arrays, Arrays], _Compared]] = {
    "softmax": _compared_classes,
    "sigmoid": _compared_decisions,
    "none": _compared_numbers,
    "hidden": _compared_directions,
    "embedding": _compared_directions,
}

"""Differences and agreement of received answers with recorded ones: classes, decisions, numbers, directions, spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.fidelity.answers import Arrays


@dataclass(frozen=True)
class Scores:
    """Answers beside the recorded ones.

    Attributes:
        largest: The largest difference of a logit as a share of `scale`, of texts that are made up too.
        errors: Differences of logits as a share of `scale`.
        same: Of each answer, whether it is the same.
        divergence: Of each answer, in nats, or `None`.
        scale: The largest absolute recorded logit.
        margins: Of each recorded answer, how far it is from the next one, in logits; infinite where there is none.
        changes: How much nearer or farther that is in the engine's answer.
    """

    largest: float
    errors: np.ndarray
    same: np.ndarray
    divergence: np.ndarray | None
    scale: float
    margins: np.ndarray
    changes: np.ndarray


_LONGEST_SPAN = 15
"""Tokens of an answer in a text, as the pipeline has it."""


def compare_answers(
    recorded: Sequence[Arrays], received: Sequence[Arrays], kind: str, made_up: np.ndarray | None = None
) -> Scores:
    """Compares the answers of all texts; those that are made up count for the largest error alone."""
    scale = max(float(np.abs(row["values"]).max()) for row in recorded)
    largest, errors, same, divergences, margins, changes = [], [], [], [], [], []
    for row, (expected, own) in enumerate(zip(recorded, received, strict=True)):
        differences = np.abs(own["values"] - expected["values"]).ravel() / max(scale, 1e-9)
        largest.append(differences.max())
        if made_up is not None and made_up[row]:
            continue
        errors.append(differences)
        agreed, divergence, margin, change = _COMPARED[kind](expected, own)
        same.append(np.ravel(agreed))
        margins.append(np.ravel(margin))
        changes.append(np.ravel(change))
        if divergence is not None:
            divergences.append(np.ravel(divergence))
    return Scores(
        float(np.max(largest)),
        np.concatenate(errors),
        np.concatenate(same),
        np.concatenate(divergences) if divergences else None,
        scale,
        np.concatenate(margins),
        np.concatenate(changes),
    )


_Compared = tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray]
"""Of each answer: whether it is the same, the divergence, the recorded margin, and how the engine changes that."""


def _margins(expected: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far the recorded best of these values `(…, K)` is from the next one, and how the engine changes that."""
    if expected.shape[-1] < 2:
        return np.full(expected.shape[:-1], np.inf), np.zeros(expected.shape[:-1])
    margins = [values[..., 0].astype("float64") - values[..., 1] for values in (expected, own)]
    return margins[0], margins[1] - margins[0]


def _compared_classes(expected: Arrays, own: Arrays) -> _Compared:
    """Of classes one is right: the divergence takes rarer classes as one."""
    logs = [row["values"].astype("float64") - row["logsumexp"][..., None] for row in (expected, own)]
    rest = [np.maximum(1 - np.exp(log).sum(axis=-1), 1e-9) for log in logs]
    divergence = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1) + rest[0] * np.log(rest[0] / rest[1])
    same = own["best"] == expected["indices"][..., 0]
    return same, np.maximum(divergence, 0), *_margins(expected["values"], own["values"])


def _compared_decisions(expected: Arrays, own: Arrays) -> _Compared:
    """Each class is right or wrong: whether it is decided the same way, which a logit of 0 divides."""
    theirs, ours = (row["values"].astype("float64") for row in (expected, own))
    chance = 0.5 + 0.5 * np.tanh(0.5 * theirs)
    # log p = -log(1 + exp(-x)) and log(1 - p) = -log(1 + exp(x))
    divergence = chance * (np.logaddexp(0, -ours) - np.logaddexp(0, -theirs))
    divergence += (1 - chance) * (np.logaddexp(0, ours) - np.logaddexp(0, theirs))
    change = np.where(theirs > 0, ours - theirs, theirs - ours)
    return (ours > 0) == (theirs > 0), np.maximum(divergence, 0), np.abs(theirs), change


def _compared_numbers(expected: Arrays, own: Arrays) -> _Compared:
    """Plain numbers: their order is all that can agree."""
    same = own["best"] == expected["indices"][..., 0]
    return same, None, np.full(np.shape(same), np.inf), np.zeros(0)


def _compared_directions(expected: Arrays, own: Arrays) -> _Compared:
    """Hidden states: whether the text's vectors have nearly the same direction; in older bundles, each token's."""
    key = "mean" if "mean" in expected else "values"
    theirs, ours = expected[key], own[key]
    norms = np.linalg.norm(theirs, axis=-1) * np.linalg.norm(ours, axis=-1)
    same = (theirs * ours).sum(axis=-1) >= 0.98 * norms
    return same, None, np.full(np.shape(same), np.inf), np.zeros(0)


def compare_spans(
    answers: Sequence[Sequence[tuple[Arrays, Arrays]]], made_up: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each text, whether the most probable span is the same, its margin, and how the engine changes that.

    A span ends where it begins or later.
    """
    same, margins, changes = [], [], []
    for row, (start, end) in enumerate(zip(*answers, strict=True)):
        if made_up is not None and made_up[row]:
            continue
        indices = [part[0]["indices"] for part in (start, end)]
        expected, own = (_spans(indices, [part[who]["values"] for part in (start, end)]) for who in (0, 1))
        known = all(part[1]["best"] in part[0]["indices"] for part in (start, end))
        same.append(bool(expected.argmax() == own.argmax()) and known)
        first, second = np.argsort(-expected, kind="stable")[: min(2, len(expected))][[0, -1]]
        margin = expected[first] - expected[second] if np.isfinite(expected[second]) and first != second else np.inf
        margins.append(margin)
        changes.append(own[first] - own[second] - margin if np.isfinite(margin) else 0.0)
    return np.array(same), np.array(margins), np.array(changes)


def _spans(indices: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> np.ndarray:
    """Scores of all spans of these candidates for beginning and end; minus infinity for what is no span."""
    length = indices[1][None, :] - indices[0][:, None]
    total = values[0][:, None].astype("float64") + values[1][None, :]
    return np.where((length >= 0) & (length < _LONGEST_SPAN), total, -np.inf).ravel()


_COMPARED: dict[str, Any] = {
    "softmax": _compared_classes,
    "sigmoid": _compared_decisions,
    "none": _compared_numbers,
    "hidden": _compared_directions,
}

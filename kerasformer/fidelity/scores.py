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
    """

    largest: float
    errors: np.ndarray
    same: np.ndarray
    divergence: np.ndarray | None
    scale: float


_LONGEST_SPAN = 15
"""Tokens of an answer in a text, as the pipeline has it."""


def compare_answers(
    recorded: Sequence[Arrays], received: Sequence[Arrays], kind: str, made_up: np.ndarray | None = None
) -> Scores:
    """Compares the answers of all texts; those that are made up count for the largest error alone."""
    scale = max(float(np.abs(row["values"]).max()) for row in recorded)
    largest, errors, same, divergences = [], [], [], []
    for row, (expected, own) in enumerate(zip(recorded, received, strict=True)):
        differences = np.abs(own["values"] - expected["values"]).ravel() / max(scale, 1e-9)
        largest.append(differences.max())
        if made_up is not None and made_up[row]:
            continue
        errors.append(differences)
        agreed, divergence = _COMPARED[kind](expected, own)
        same.append(np.ravel(agreed))
        if divergence is not None:
            divergences.append(np.ravel(divergence))
    return Scores(
        float(np.max(largest)),
        np.concatenate(errors),
        np.concatenate(same),
        np.concatenate(divergences) if divergences else None,
        scale,
    )


def _compared_classes(expected: Arrays, own: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Of classes one is right: whether it is the same one, and the divergence, rarer classes as one."""
    logs = [row["values"].astype("float64") - row["logsumexp"][..., None] for row in (expected, own)]
    rest = [np.maximum(1 - np.exp(log).sum(axis=-1), 1e-9) for log in logs]
    divergence = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1) + rest[0] * np.log(rest[0] / rest[1])
    return own["best"] == expected["indices"][..., 0], np.maximum(divergence, 0)


def _compared_decisions(expected: Arrays, own: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Each class is right or wrong: whether it is decided the same way, and the divergence of that decision."""
    theirs, ours = (row["values"].astype("float64") for row in (expected, own))
    chance = 0.5 + 0.5 * np.tanh(0.5 * theirs)
    # log p = -log(1 + exp(-x)) and log(1 - p) = -log(1 + exp(x))
    divergence = chance * (np.logaddexp(0, -ours) - np.logaddexp(0, -theirs))
    divergence += (1 - chance) * (np.logaddexp(0, ours) - np.logaddexp(0, theirs))
    return (ours > 0) == (theirs > 0), np.maximum(divergence, 0)


def _compared_numbers(expected: Arrays, own: Arrays) -> tuple[np.ndarray, None]:
    """Plain numbers: their order is all that can agree."""
    return own["best"] == expected["indices"][..., 0], None


def _compared_directions(expected: Arrays, own: Arrays) -> tuple[np.ndarray, None]:
    """Hidden states: whether the text's vectors have nearly the same direction; in older bundles, each token's."""
    key = "mean" if "mean" in expected else "values"
    theirs, ours = expected[key], own[key]
    norms = np.linalg.norm(theirs, axis=-1) * np.linalg.norm(ours, axis=-1)
    return (theirs * ours).sum(axis=-1) >= 0.98 * norms, None


def same_spans(answers: Sequence[Sequence[tuple[Arrays, Arrays]]], made_up: np.ndarray | None) -> np.ndarray:
    """Of each text, whether the most probable span is the same: one that ends where it begins or later."""
    same = []
    for row, (start, end) in enumerate(zip(*answers, strict=True)):
        if made_up is not None and made_up[row]:
            continue
        indices = [part[0]["indices"] for part in (start, end)]
        expected, own = (_span(indices, [part[who]["values"] for part in (start, end)]) for who in (0, 1))
        known = all(part[1]["best"] in part[0]["indices"] for part in (start, end))
        same.append(expected == own and known)
    return np.array(same)


def _span(indices: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> tuple[int, int]:
    """Beginning and end of the best span among these candidates."""
    length = indices[1][None, :] - indices[0][:, None]
    total = np.where((length >= 0) & (length < _LONGEST_SPAN), values[0][:, None] + values[1][None, :], -np.inf)
    first, last = np.unravel_index(total.argmax(), total.shape)
    return int(indices[0][first]), int(indices[1][last])


_COMPARED: dict[str, Any] = {
    "softmax": _compared_classes,
    "sigmoid": _compared_decisions,
    "none": _compared_numbers,
    "hidden": _compared_directions,
}

"""How faithful an engine is: what the Keras model answered is recorded once, and any engine is compared with it later.

Recorded are the 64 largest logits of every answer with their logsumexp, and the tokens of greedy generation, so that a
bundle can be verified on the device, without Keras. Shape letters: `N` texts, `T` tokens, `V` scores of one answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kerasformer.decoding import Forward, Step
from kerasformer.errors import BundleError

TOP = 64
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Fidelity:
    """Figures of a comparison.

    Attributes:
        max_error: Largest difference of a recorded logit, as a share of the largest absolute one.
        mean_error: The mean difference, likewise.
        agreement: Share of answers whose most probable class or token is the same; for hidden states, whose cosine
            is at least 0.98.
        answers: Number of answers compared.
        generated: Share of the tokens of free greedy generation that are the same, or `None`.
    """

    max_error: float
    mean_error: float
    agreement: float
    answers: int
    generated: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields, for the manifest."""
        return asdict(self)

    def within(self, tolerance: float, min_agreement: float) -> bool:
        """Whether this is faithful enough; NaN never is."""
        return bool(self.max_error <= tolerance and self.agreement >= min_agreement)


def record_forward(engine: Forward, inputs: Arrays) -> dict[str, np.ndarray]:
    """References of an engine that answers at once.

    Args:
        engine: The model to be reproduced.
        inputs: `(N, T)` int32 arrays under their Hugging Face names.
    """
    outputs = _answers(engine, inputs)
    recorded = {f"input.{name}": array for name, array in inputs.items()}
    for name, array in outputs.items():
        recorded |= {f"output.{name}.{key}": value for key, value in _top(array).items()}
    return recorded


def record_step(engine: Step, inputs: np.ndarray, mask: np.ndarray, start: int | None, count: int) -> dict[str, Any]:
    """References of an engine that generates: `count` greedy tokens, and the logits of which each was chosen.

    Args:
        engine: The model to be reproduced.
        inputs: `(N, P)` int32 prompts, left-padded, or an encoder's inputs, right-padded.
        mask: `(N, P)` int32.
        start: First token of the decoder of an encoder-decoder.
        count: Tokens.
    """
    first = _first(inputs, start)
    logits, tokens = _greedy(engine, inputs, mask, first, count)
    recorded = {"input.input_ids": inputs, "input.attention_mask": mask, "input.first": first, "tokens": tokens}
    return recorded | {f"output.logits.{key}": value for key, value in _top(logits).items()}


def compare(engine: Forward | Step, references: Arrays) -> Fidelity:
    """Compares an engine with what was recorded.

    Raises:
        BundleError: the references are not those of such an engine.
    """
    try:
        if isinstance(engine, Step):
            return _compare_step(engine, references)
        return _compare_forward(engine, references)
    except KeyError as error:
        raise BundleError(
            f"The references do not fit this model. Expected an array {error}. Received: {', '.join(references)}"
        ) from error


def _compare_forward(engine: Forward, references: Arrays) -> Fidelity:
    inputs = {key.removeprefix("input."): array for key, array in references.items() if key.startswith("input.")}
    outputs = _answers(engine, inputs)
    names = sorted({key.split(".")[1] for key in references if key.startswith("output.")})
    scores = [_score(name, outputs[name], references, inputs["attention_mask"]) for name in names]
    errors, same = (np.concatenate([score[i].ravel() for score in scores]) for i in (0, 1))
    return Fidelity(float(errors.max()), float(errors.mean()), float(same.mean()), len(same))


def _compare_step(engine: Step, references: Arrays) -> Fidelity:
    inputs, mask, first, tokens = (
        references[key] for key in ("input.input_ids", "input.attention_mask", "input.first", "tokens")
    )
    logits = _forced(engine, inputs, mask, first, tokens)
    errors, same = _score("logits", logits, references, np.ones(tokens.shape, "int32"))
    _, free = _greedy(engine, inputs, mask, first, tokens.shape[1])
    agreement, generated = float(same.mean()), float((free == tokens).mean())
    return Fidelity(float(errors.max()), float(errors.mean()), agreement, same.size, generated)


def _answers(engine: Forward, inputs: Arrays) -> dict[str, np.ndarray]:
    """Outputs for texts one by one, without padding, as a phone would ask; put together and padded with zeros."""
    rows = []
    for row in range(len(inputs["input_ids"])):
        length = int(inputs["attention_mask"][row].sum())
        rows.append(engine.run({name: array[row : row + 1, :length] for name, array in inputs.items()}))
    return {name: _together([outputs[name] for outputs in rows]) for name in rows[0]}


def _together(rows: list[np.ndarray]) -> np.ndarray:
    """One array of all rows; where they have an entry for each token, short texts get copies of their least entry."""
    width = max(row.shape[1] for row in rows)
    padded = [
        np.pad(row, [(0, 0), (0, width - row.shape[1])] + [(0, 0)] * (row.ndim - 2), constant_values=row.min())
        for row in rows
    ]
    return np.concatenate(padded)


def _top(scores: np.ndarray) -> dict[str, np.ndarray]:
    """The largest entries of the last axis, their places, and the logsumexp of all."""
    count = min(TOP, scores.shape[-1])
    indices = np.argsort(-scores, axis=-1, kind="stable")[..., :count].astype("int32")
    highest = scores.max(axis=-1, keepdims=True)
    logsumexp = np.log(np.exp(scores - highest).sum(axis=-1)) + highest[..., 0]
    values = np.take_along_axis(scores, indices, axis=-1)
    return {"values": values.astype("float32"), "indices": indices, "logsumexp": logsumexp.astype("float32")}


def _score(name: str, array: np.ndarray, references: Arrays, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the recorded values as a share of the largest, and which answers are the same."""
    expected, indices = references[f"output.{name}.values"], references[f"output.{name}.indices"]
    received = np.take_along_axis(array, indices, axis=-1)
    same = array.argmax(axis=-1) == indices[..., 0]
    if name.endswith("hidden_state"):
        norms = np.linalg.norm(expected, axis=-1) * np.linalg.norm(received, axis=-1)
        same = (expected * received).sum(axis=-1) >= 0.98 * norms
    if expected.ndim == 3:  # an answer for each token: those of padding do not count
        real = mask > 0
        expected, received, same = expected[real], received[real], same[real]
    return np.abs(received - expected) / max(float(np.abs(expected).max()), 1e-9), same


def _first(inputs: np.ndarray, start: int | None) -> np.ndarray:
    return inputs[:, -1:] if start is None else np.full((len(inputs), 1), start, "int32")


def _greedy(
    engine: Step, inputs: np.ndarray, mask: np.ndarray, first: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """`(N, count, V)` logits and the `(N, count)` tokens that they choose; nothing ends it."""
    state = engine.start(inputs, mask)
    scores, chosen, tokens = [], [], first
    for _ in range(count):
        logits, state = engine.step(tokens, state)
        tokens = logits[:, -1].argmax(axis=-1)[:, None].astype("int32")
        scores.append(logits[:, -1])
        chosen.append(tokens)
    return np.stack(scores, axis=1), np.concatenate(chosen, axis=1)


def _forced(engine: Step, inputs: np.ndarray, mask: np.ndarray, first: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """`(N, T, V)` logits along given tokens: an early difference does not lead everything after it astray."""
    state = engine.start(inputs, mask)
    scores = []
    for column in np.concatenate([first, tokens[:, :-1]], axis=1).T:
        logits, state = engine.step(column[:, None].astype("int32"), state)
        scores.append(logits[:, -1])
    return np.stack(scores, axis=1)

"""Answers as arrays: the largest entries that are recorded of one, and the same entries of another engine's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kerasformer.bundle import SENTENCE_EMBEDDING
from kerasformer.errors import InputError

TOP = 64

Arrays = Mapping[str, np.ndarray]


def is_hidden_state(name: str) -> bool:
    """Whether an output holds vectors rather than scores."""
    return name.endswith("hidden_state") or name == SENTENCE_EMBEDDING


def mean_vector(states: np.ndarray) -> np.ndarray:
    """The vector `(E,)` of a text, of one for each token `(T, E)` or of that itself."""
    return states.mean(axis=0, dtype="float64").astype("float32") if states.ndim == 2 else states


def asked_positions(name: str, scores: np.ndarray, asked: np.ndarray | None, row: int) -> np.ndarray:
    """Of the scores of a text, those of the tokens that a user asks about; all of a text as a whole."""
    per_token = scores.ndim == 2 or name in ENDS_OF_SPANS
    return scores if asked is None or not per_token else scores[np.flatnonzero(asked[row])]


def single_texts(inputs: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """Texts one by one, without padding, as a phone would ask."""
    for row, length in enumerate(inputs["attention_mask"].sum(axis=1)):
        yield {name: array[row : row + 1, :length] for name, array in inputs.items()}


KEYS = ("values", "indices", "logsumexp")
ENDS_OF_SPANS = ("start_logits", "end_logits")


def largest_entries(scores: np.ndarray) -> dict[str, np.ndarray]:
    """The largest entries of the last axis, their places, and the logsumexp of all."""
    if not np.isfinite(scores).all():
        raise InputError(
            "The Keras model's own answers are not finite numbers. Expected logits without NaN and infinity. "
            "Check its weights"
        )
    count = min(TOP, scores.shape[-1])
    if count < scores.shape[-1]:
        largest = np.argpartition(-scores, count - 1, axis=-1)[..., :count]
        largest.sort(axis=-1)  # of equal scores the first is the answer, as `argmax` has it
    else:
        largest = np.broadcast_to(np.arange(count), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, largest, axis=-1), axis=-1, kind="stable")
    indices = np.take_along_axis(largest, order, axis=-1).astype("int32")
    values = np.take_along_axis(scores, indices, axis=-1).astype("float32")
    return {"values": values, "indices": indices, "logsumexp": logsumexp(scores)}


def received_entries(scores: np.ndarray, recorded: Arrays) -> dict[str, np.ndarray]:
    """An engine's scores `(…, V)` in the places that were recorded, the logsumexp of all, and the best place."""
    values = np.take_along_axis(scores, recorded["indices"], axis=-1)
    return {"values": values, "logsumexp": logsumexp(scores), "best": scores.argmax(axis=-1)}


def recorded_entries(references: Arrays, name: str, row: int) -> dict[str, np.ndarray]:
    """What was recorded of one text, without what fills up its arrays."""
    arrays = {key: references[f"output.{name}.{key}"][row] for key in KEYS}
    used = ~np.isnan(arrays["values"])
    tokens = used if used.ndim == 1 else used.any(axis=1)
    whole = {key: references[f"output.{name}.{key}"][row] for key in ("mean",) if f"output.{name}.{key}" in references}
    return {key: array[tokens] if array.ndim else array for key, array in arrays.items()} | whole


def stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
    """One array of rows of unequal sizes; floats are filled up with NaN."""
    shape = np.max([row.shape for row in rows], axis=0)
    filling = np.nan if rows[0].dtype.kind == "f" else 0
    stacked = np.full((len(rows), *shape), filling, rows[0].dtype)
    for index, row in enumerate(rows):
        place: tuple[Any, ...] = (index, *(slice(size) for size in row.shape))
        stacked[place] = row
    return stacked


def logsumexp(scores: np.ndarray) -> np.ndarray:
    """Of the last axis."""
    highest = scores.max(axis=-1, keepdims=True)
    total = np.exp(scores - highest).sum(axis=-1)
    return np.asarray(np.log(total) + highest[..., 0], "float32")


def scores_of(scores: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The scores `(N, V)` of one id `(N,)` each."""
    return np.take_along_axis(scores, ids[:, None], axis=-1)[:, 0]

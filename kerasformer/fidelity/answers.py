"""Arrays of answers: the largest entries, which are recorded, and the same entries from another engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kerasformer.bundle import SENTENCE_EMBEDDING
from kerasformer.errors import InputError

TOP = 64
"""Maximum number of entries that are recorded for an answer."""

Arrays = Mapping[str, np.ndarray]


def is_hidden_state(name: str) -> bool:
    """Returns whether an output contains hidden states or embeddings rather than scores."""
    return name.endswith("hidden_state") or name == SENTENCE_EMBEDDING


def mean_vector(states: np.ndarray) -> np.ndarray:
    """Returns the mean vector `(E,)` of token vectors `(T, E)`; a single vector `(E,)` is returned unchanged."""
    return states.mean(axis=0, dtype="float64").astype("float32") if states.ndim == 2 else states


def asked_positions(name: str, scores: np.ndarray, asked: np.ndarray | None, row: int) -> np.ndarray:
    """Returns the scores of the tokens in `asked`; all of them if it is `None` or the output is not per token."""
    per_token = scores.ndim == 2 or name in ENDS_OF_SPANS
    return scores if asked is None or not per_token else scores[np.flatnonzero(asked[row])]


def single_texts(inputs: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """Yields the texts one by one, without padding."""
    for row, length in enumerate(inputs["attention_mask"].sum(axis=1)):
        yield {name: array[row : row + 1, :length] for name, array in inputs.items()}


KEYS = ("values", "indices", "logsumexp")
ENDS_OF_SPANS = ("start_logits", "end_logits")


def largest_entries(scores: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the largest entries of the last axis, their indices, and the logsumexp of all entries.

    Raises:
        InputError: the scores are not finite.
    """
    if not np.isfinite(scores).all():
        raise InputError(
            "The outputs of the Keras model contain NaN or infinity. Expected: finite logits. Check its weights"
        )
    count = min(TOP, scores.shape[-1])
    if count < scores.shape[-1]:
        largest = np.argpartition(-scores, count - 1, axis=-1)[..., :count]
        largest.sort(axis=-1)  # of equal scores the first one is the answer, as in `argmax`
    else:
        largest = np.broadcast_to(np.arange(count), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, largest, axis=-1), axis=-1, kind="stable")
    indices = np.take_along_axis(largest, order, axis=-1).astype("int32")
    values = np.take_along_axis(scores, indices, axis=-1).astype("float32")
    return {"values": values, "indices": indices, "logsumexp": logsumexp(scores)}


def received_entries(scores: np.ndarray, recorded: Arrays) -> dict[str, np.ndarray]:
    """Returns an engine's scores `(…, V)` at the recorded indices, the logsumexp of all, and the index of the best."""
    values = np.take_along_axis(scores, recorded["indices"], axis=-1)
    return {"values": values, "logsumexp": logsumexp(scores), "best": scores.argmax(axis=-1)}


def recorded_entries(references: Arrays, name: str, row: int) -> dict[str, np.ndarray]:
    """Returns the recorded entries of a text, without padding."""
    arrays = {key: references[f"output.{name}.{key}"][row] for key in KEYS}
    used = ~np.isnan(arrays["values"])
    tokens = used if used.ndim == 1 else used.any(axis=1)
    mean = {key: references[f"output.{name}.{key}"][row] for key in ("mean",) if f"output.{name}.{key}" in references}
    return {key: array[tokens] if array.ndim else array for key, array in arrays.items()} | mean


def stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks arrays of different sizes; floats are padded with NaN, integers with 0."""
    shape = np.max([row.shape for row in rows], axis=0)
    padding = np.nan if rows[0].dtype.kind == "f" else 0
    stacked = np.full((len(rows), *shape), padding, rows[0].dtype)
    for index, row in enumerate(rows):
        region: tuple[int | slice, ...] = (index, *(slice(size) for size in row.shape))
        stacked[region] = row
    return stacked


def logsumexp(scores: np.ndarray) -> np.ndarray:
    """Returns the logarithm of the sum of exponentials over the last axis."""
    highest = scores.max(axis=-1, keepdims=True)
    total = np.exp(scores - highest).sum(axis=-1)
    return np.asarray(np.log(total) + highest[..., 0], "float32")


def scores_of(scores: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Selects one score per row: `(N,)` from scores `(N, V)` and ids `(N,)`."""
    return np.take_along_axis(scores, ids[:, None], axis=-1)[:, 0]

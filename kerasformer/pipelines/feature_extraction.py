"""Vectors of tokens and of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from kerasformer.errors import InputError
from kerasformer.pipelines._base import Pipeline, batches, listed

_POOLINGS = (None, "mean", "cls")


class FeatureExtraction(Pipeline):
    """Hidden states of the last layer, for each token or pooled into one vector of a text."""

    def __call__(
        self,
        inputs: str | Sequence[str],
        *,
        pooling: Literal["mean", "cls"] | None = None,
        normalize: bool = False,
        batch_size: int = 8,
        truncation: bool = False,
    ) -> np.ndarray | list[np.ndarray]:
        """Computes vectors.

        Args:
            inputs: A text or a list.
            pooling: `"mean"` of a text's tokens, or the first one (`"cls"`); `None` gives all.
            normalize: Scales each vector to length 1.
            batch_size: Texts that go through the model at once.
            truncation: Cuts texts that are too long, with a warning, where otherwise there is an error.

        Returns:
            float32. Pooled: `(E,)` for a text, `(N, E)` for a list. Otherwise `(T, E)` for a text, a list of them for
            a list, special tokens included and padding not.

        Raises:
            CapacityError: a text is too long.
            InputError: no text, or an unknown pooling.
        """
        if pooling not in _POOLINGS:
            raise InputError(f"pooling must be one of {_POOLINGS}. Received: {pooling!r}")
        texts, single = listed(inputs)
        rows: list[np.ndarray] = []
        for part in batches(texts, batch_size):
            encoded = self._encode(part, truncation)
            states = self._run(encoded)["last_hidden_state"]
            real = encoded.attention_mask > 0
            rows += [_pooled(state[mask], pooling) for state, mask in zip(states, real, strict=True)]
        if normalize:
            rows = [row / np.maximum(np.linalg.norm(row, axis=-1, keepdims=True), 1e-12) for row in rows]
        if single:
            return rows[0]
        return rows if pooling is None else np.stack(rows)


def _pooled(states: np.ndarray, pooling: str | None) -> np.ndarray:
    if pooling is None:
        return states
    pooled: np.ndarray = states.mean(axis=0) if pooling == "mean" else states[0]
    return pooled

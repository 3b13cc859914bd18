"""Vectors of tokens and of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from kerasformer.arguments import BOOLEAN, check, one_of
from kerasformer.bundle import SENTENCE_EMBEDDING
from kerasformer.errors import InputError
from kerasformer.pipelines._base import Pipeline, batches, listed


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
            pooling: `"mean"` of a text's tokens, or the first one (`"cls"`); `None` gives all. A bundle that gives
                one vector of a text, the mean, has no others.
            normalize: Scales each vector to length 1.
            batch_size: Texts that go through the model at once.
            truncation: Cuts texts that are too long, with a warning, where otherwise there is an error.

        Returns:
            float32. Pooled: `(E,)` for a text, `(N, E)` for a list. Otherwise `(T, E)` for a text, a list of them for
            a list, special tokens included and padding not.

        Raises:
            CapacityError: a text is too long.
            InputError: no text, an unknown pooling, or one that a bundle has not.
        """
        pooling = check("pooling", pooling, one_of("mean", "cls", None))
        normalize = check("normalize", normalize, BOOLEAN)
        texts, single = listed(inputs)
        rows: list[np.ndarray] = []
        for part in batches(texts, batch_size):
            encoded = self._encode(part, truncation)
            outputs = self._run(encoded)
            if SENTENCE_EMBEDDING in outputs:
                pooling = _as_mean(pooling)
                rows += list(outputs[SENTENCE_EMBEDDING])
                continue
            real = encoded.attention_mask > 0
            states = zip(outputs["last_hidden_state"], real, strict=True)
            rows += [_pooled(state[mask], pooling) for state, mask in states]
        if normalize:
            rows = [row / np.maximum(np.linalg.norm(row, axis=-1, keepdims=True), 1e-12) for row in rows]
        if single:
            return rows[0]
        return rows if pooling is None else np.stack(rows)


def _as_mean(pooling: str | None) -> Literal["mean"]:
    """The pooling of a bundle that has the mean alone."""
    if pooling not in (None, "mean"):
        raise InputError(f"This bundle gives the mean of a text's tokens alone. Received: pooling={pooling!r}")
    return "mean"


def _pooled(states: np.ndarray, pooling: str | None) -> np.ndarray:
    if pooling is None:
        return states
    pooled: np.ndarray = states.mean(axis=0) if pooling == "mean" else states[0]
    return pooled

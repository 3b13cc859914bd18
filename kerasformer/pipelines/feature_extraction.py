"""Vectors of tokens and of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kerasformer.arguments import BOOLEAN, check, one_of
from kerasformer.bundle import SENTENCE_EMBEDDING
from kerasformer.errors import InputError
from kerasformer.pipelines.base import Pipeline, Reading
from kerasformer.pipelines.chunks import averaged, best_places, rows_of
from kerasformer.pipelines.inputs import answered, read_inputs, read_text
from kerasformer.tokenization import Encoding


class FeatureExtractionPipeline(Pipeline):
    """Hidden states of the last layer, for each token or pooled into one vector of a text."""

    def __call__(
        self,
        inputs: Any,
        *,
        pooling: Literal["mean", "cls"] | None = None,
        normalize: bool = False,
        batch_size: int = 8,
        truncation: bool = False,
        window: int | None = None,
        stride: int | None = None,
        progress: bool = False,
    ) -> Any:
        """Computes vectors.

        Args:
            inputs: A text, a list or an array of texts, or an iterable, read as its results are.
            pooling: `"mean"` of a text's tokens, or the first one (`"cls"`); `None` gives all. A bundle that gives
                one vector of a text, the mean, has no others.
            normalize: Scales each vector to length 1.
            batch_size: Texts, or windows of a long text, that go through the model at once.
            truncation: Reads the beginning alone of a text that is longer than the model, with a warning. Otherwise
                it is read in windows: each token's vector comes from the window that shows most around it, and a
                pooled vector is the mean of the windows' own, each counting as its tokens.
            window: Tokens of a window, special tokens included; the model's length by default.
            stride: Tokens that neighbouring windows share; a quarter of a window by default.
            progress: Shows a bar on standard error.

        Returns:
            float32. Pooled: `(E,)` for a text, `(N, E)` for a list. Otherwise `(T, E)` for a text, a list of them for
            a list, special tokens included and padding not. For an iterable, an iterator of what a text gives.

        Raises:
            InputError: no text, an unknown pooling, or one that a bundle has not.
        """
        pooling = check("pooling", pooling, one_of("mean", "cls", None))
        normalize = check("normalize", normalize, BOOLEAN)
        given, reading = read_inputs(inputs, read_text), Reading(truncation, window, stride)

        def answer(part: Sequence[str]) -> list[np.ndarray]:
            encoded = self._encode(part, reading)
            vectors = _vectors(self._run(encoded, batch_size), encoded, pooling)
            return [_unit(vector) for vector in vectors] if normalize else vectors

        found = answered(given, answer, batch_size=batch_size, progress=progress, label=self.task)
        if given.form != "list" or not found:
            return found
        return np.stack(found) if found[0].ndim == 1 else found


def _vectors(outputs: dict[str, np.ndarray], encoded: Encoding, pooling: str | None) -> list[np.ndarray]:
    """Of each text `(T, E)`, or `(E,)` if pooled."""
    if SENTENCE_EMBEDDING in outputs:
        _check_mean(pooling)
        return averaged(outputs[SENTENCE_EMBEDDING], encoded)
    states = outputs["last_hidden_state"]
    if pooling is None:
        return [states[best_places(encoded, rows)] for rows in rows_of(encoded)]
    if pooling == "cls":
        return averaged(states[:, 0], encoded)
    real = encoded.attention_mask > 0
    means = [row[mask].mean(axis=0) for row, mask in zip(states, real, strict=True)]
    return averaged(np.stack(means), encoded)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Of length 1."""
    scaled: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return scaled


def _check_mean(pooling: str | None) -> None:
    """Refuses what a bundle cannot give that has the mean alone."""
    if pooling not in (None, "mean"):
        raise InputError(f"This bundle gives the mean of a text's tokens alone. Received: pooling={pooling!r}")

"""Feature extraction: vectors of tokens and of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, check, one_of
from kerasformer.bundle import SENTENCE_EMBEDDING
from kerasformer.errors import InputError
from kerasformer.pipelines.base import LengthOptions, Pipeline
from kerasformer.pipelines.chunks import best_locations, combined, rows_of
from kerasformer.pipelines.inputs import map_inputs, read_inputs, read_text
from kerasformer.pipelines.vectors import unit
from kerasformer.tokenization import Encoding


class FeatureExtractionPipeline(Pipeline):
    """Computes hidden states of the last layer, for each token or pooled to one vector per text."""

    def __call__(
        self,
        inputs: object,
        *,
        pooling: Literal["mean", "cls"] | None = None,
        normalize: bool = False,
        batch_size: int = 8,
        truncation: bool = False,
        chunk_length: int | None = None,
        stride: int | None = None,
        progress: bool = False,
    ) -> Any:
        """Computes vectors.

        Args:
            inputs: A text, a list or an array of texts, or another iterable, which is read lazily.
            pooling: `"mean"` of the tokens' vectors, or `"cls"`, the vector of the first token; `None` for the vectors
                of all tokens. A bundle with built-in mean pooling supports only `"mean"` and `None`, which mean the
                same.
            normalize: Whether to scale each vector to length 1.
            batch_size: Number of texts, or chunks of long texts, in one call of the model.
            truncation: Whether to truncate a text that exceeds the model's maximum length, with a warning. Otherwise it
                is split into chunks: the vector of a token is taken from the chunk with the most context around it, and
                pooled vectors are averaged over the chunks, weighted by their numbers of tokens.
            chunk_length: Length of a chunk in tokens, including special tokens; the model's maximum length by default.
            stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk by default.
            progress: Whether to show a progress bar on standard error.

        Returns:
            float32 arrays. With pooling, `(E,)` for a text and `(N, E)` for a list. Otherwise `(T, E)` for a text and a
            list of such arrays for a list, with special tokens and without padding. For another iterable, an iterator
            of the results for single texts.

        Raises:
            InputError: the input is not a text, or the pooling is unknown or not supported by the bundle.
        """
        pooling = check("pooling", pooling, one_of("mean", "cls", None))
        normalize = check("normalize", normalize, BOOLEAN)
        checked, options = read_inputs(inputs, read_text), LengthOptions(truncation, chunk_length, stride)

        def answer(part: Sequence[str]) -> list[np.ndarray]:
            encoded = self._encode(part, options)
            vectors = _vectors(self._run(encoded, batch_size), encoded, pooling)
            return [unit(vector) for vector in vectors] if normalize else vectors

        results = map_inputs(checked, answer, batch_size=batch_size, progress=progress, label=self.task)
        if checked.form != "list" or not results:
            return results
        return np.stack(results) if results[0].ndim == 1 else results


def _vectors(outputs: dict[str, np.ndarray], encoded: Encoding, pooling: str | None) -> list[np.ndarray]:
    """Returns, for each text, vectors `(T, E)`, or `(E,)` with pooling."""
    if SENTENCE_EMBEDDING in outputs:
        _check_mean(pooling)
        return combined(outputs[SENTENCE_EMBEDDING], encoded)
    states = outputs["last_hidden_state"]
    if pooling is None:
        return [states[best_locations(encoded, rows)] for rows in rows_of(encoded)]
    real = encoded.attention_mask > 0  # in no column of a text without tokens, whose vector is 0
    if pooling == "cls":
        return combined(np.where(real.any(axis=1, keepdims=True), states[:, 0], np.float32(0)), encoded)
    means = [row[mask].sum(axis=0) / max(1, int(mask.sum())) for row, mask in zip(states, real, strict=True)]
    return combined(np.stack(means), encoded)


def _check_mean(pooling: str | None) -> None:
    """Raises `InputError` for a pooling that a bundle with built-in mean pooling does not support."""
    if pooling not in (None, "mean"):
        raise InputError(
            f"This bundle computes the mean of the token vectors. Expected: pooling='mean' or None. "
            f"Received: pooling={pooling!r}"
        )

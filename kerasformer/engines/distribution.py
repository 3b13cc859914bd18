"""Conversion of logits to probabilities."""

from __future__ import annotations

from math import isfinite

import numpy as np

from kerasformer.errors import GenerationError


def check_finite(logits: np.ndarray) -> np.ndarray:
    """Checks that a token can be chosen in each row of logits `(R, V)`.

    Returns:
        The greatest logit of each row, `(R,)`.

    Raises:
        GenerationError: the greatest logit of a row is not finite.
    """
    greatest = logits.max(axis=1)
    check_greatest(greatest)
    return greatest


def check_greatest(greatest: np.ndarray) -> None:
    """Checks the greatest logit of each row, `(R,)`; see `check_finite`."""
    if not all(map(isfinite, greatest.tolist())):
        raise GenerationError(
            "no token can be chosen. Expected a finite greatest logit in each row. "
            f"Received: {greatest[~np.isfinite(greatest)][0]}. "
            "Check that the rules (suppress_tokens, ...) allow at least one token and that the model's weights "
            "contain no NaN."
        )


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities over the last axis; -inf becomes 0."""
    powers = logits - logits.max(axis=-1, keepdims=True)
    np.exp(powers, out=powers)
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns log-probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted

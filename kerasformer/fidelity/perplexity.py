"""Negative log likelihoods of the tokens of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerasformer.decoding import Step
from kerasformer.fidelity.answers import logsumexp, scores_of


def losses(engine: Step, texts: Sequence[Sequence[int] | np.ndarray]) -> list[np.ndarray]:
    """Negative log likelihoods in nats of all tokens of each text but its first, read one by one as in generation.

    Args:
        engine: A decoder.
        texts: Ids, at least two each; they are read side by side.
    """
    lengths = [len(text) for text in texts]
    ids = np.zeros((len(texts), max(lengths)), "int32")
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    state = engine.start(ids[:, :1], np.ones((len(ids), 1), "int32"))
    columns = []
    for place in range(max(lengths) - 1):
        logits, state = engine.step(ids[:, place : place + 1], state)
        columns.append(logsumexp(logits[:, -1]) - scores_of(logits[:, -1], ids[:, place + 1]))
    return [row[: length - 1] for row, length in zip(np.stack(columns, axis=1), lengths, strict=True)]

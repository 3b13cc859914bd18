"""Negative log-likelihoods of the tokens of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerasformer.decoding import Step
from kerasformer.decoding.arrays import token_array
from kerasformer.fidelity.answers import logsumexp, scores_of


def losses(engine: Step, texts: Sequence[Sequence[int] | np.ndarray]) -> list[np.ndarray]:
    """Returns the negative log-likelihoods, in nats, of all tokens of each text except the first.

    Tokens are processed one by one, as in generation.

    Args:
        engine: Engine of a decoder-only model.
        texts: Token ids of each text, at least two; all texts are processed as one batch.
    """
    lengths = [len(text) for text in texts]
    ids = np.zeros((len(texts), max(lengths)), "int32")
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    ids = token_array("texts", ids, engine.vocab_size)
    state = engine.start(ids[:, :1], np.ones((len(ids), 1), "int32"))
    columns = []
    for position in range(max(lengths) - 1):
        logits, state = engine.step(ids[:, position : position + 1], state)
        columns.append(logsumexp(logits[:, -1]) - scores_of(logits[:, -1], ids[:, position + 1]))
    return [row[: length - 1] for row, length in zip(np.stack(columns, axis=1), lengths, strict=True)]

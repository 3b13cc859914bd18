"""Log-probabilities of given texts by a toy; `tests/core/engines` compares those of the engines."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.engines.distribution import log_softmax
from kerasformer.engines.likelihood import log_probabilities
from kerasformer.errors import GenerationError
from tests.core.generation.engines import Toy

PROMPTS, TARGETS = np.array([[3, 1], [2, 7]], np.int32), [np.array([5, 6, 4]), np.array([8])]


def read(engine: Toy) -> list[np.ndarray]:
    return log_probabilities(engine, engine.start(PROMPTS, np.ones_like(PROMPTS)), PROMPTS[:, -1], TARGETS)


def test_each_token_is_given_those_before_it() -> None:
    engine = Toy()
    for logs, prompt, target in zip(read(engine), PROMPTS, TARGETS, strict=True):
        row = np.concatenate([prompt, target])
        logits = np.stack([engine.of(row[:end]) for end in range(len(prompt), len(row))])
        np.testing.assert_allclose(logs, log_softmax(logits)[np.arange(len(target)), target], rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_of_one_text_are_not_finite(value: float) -> None:
    engine = Toy(of=lambda row: np.full(12, value if row[-1] == 7 else 0.0))
    with pytest.raises(GenerationError, match=f"must be finite. Received: {value}"):
        read(engine)

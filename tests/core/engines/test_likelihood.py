"""Log-probabilities of texts are the same on every engine, with one or several tokens per step."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from kerasformer.engines import Step
from kerasformer.engines.likelihood import log_probabilities
from tests.core.engines.test_steps import KINDS, ROWS, VOCAB, grid_of

LENGTHS = (23, 9, 16)


class Single:
    """Engine limited to steps of one token."""

    step_lengths = (1,)

    def __init__(self, step: Step) -> None:
        self.start, self.step, self.vocab_size = step.start, step.step, step.vocab_size


def read(step: Any, encoder_decoder: bool) -> np.ndarray:
    """Returns the log-probabilities of ragged texts, concatenated."""
    random = np.random.default_rng(3)
    heads = random.integers(2, VOCAB, (len(LENGTHS), 4), "int32")
    targets = [random.integers(2, VOCAB, length, "int32") for length in LENGTHS]
    first = np.zeros(len(LENGTHS), np.int32) if encoder_decoder else heads[:, -1]
    return np.concatenate(log_probabilities(step, step.start(heads, np.ones_like(heads)), first, targets))


@cache
def by_keras(kind: str) -> np.ndarray:
    step = ROWS["keras"].opened(kind)
    return read(Single(step), step.is_encoder_decoder)


@pytest.mark.parametrize(
    ("name", "kind"), grid_of((name, kind) for name in ROWS if "int8" not in name for kind in KINDS)
)
@pytest.mark.grid
def test_log_probabilities_are_equal_on_every_engine(name: str, kind: str) -> None:
    step = ROWS[name].opened(kind)
    expected = by_keras(kind)
    assert len(expected) == sum(LENGTHS) and expected.std() > 0.1
    np.testing.assert_allclose(read(step, step.is_encoder_decoder), expected, atol=2e-5)
    np.testing.assert_allclose(read(Single(step), step.is_encoder_decoder), expected, atol=2e-5)

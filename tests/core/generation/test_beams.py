"""Beam search on a toy; `grid.py` compares it with `transformers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer.errors import GenerationError
from kerasformer.generation import GenerationConfig, generate
from tests.core.generation.engines import Toy

IDS = np.array([[3, 1], [2, 0], [4, 4]])
MASK = np.array([[1, 1], [1, 0], [1, 1]])


@pytest.mark.parametrize("settings", [{}, {"early_stopping": True}, {"do_sample": True, "seed": 2}], ids=str)
def test_a_prompt_is_the_same_alone_or_in_a_batch(settings: dict[str, Any]) -> None:
    config = GenerationConfig(num_beams=3, max_new_tokens=12, eos_token_id=(2, 5), **settings)
    engine = Toy()
    together = generate(engine, IDS, MASK, config)
    assert min(engine.batches) < max(engine.batches) == 9  # rows of closed prompts were dropped
    for row in range(3):
        alone = generate(Toy(), IDS[row : row + 1], MASK[row : row + 1], config)
        assert alone.sequences[0].tolist() == together.sequences[row].tolist()


@pytest.mark.parametrize(("early_stopping", "best"), [(True, [2, 0]), (False, [2, 0]), ("never", [1] * 10)], ids=str)
def test_a_search_that_never_stops_early_finds_long_texts(early_stopping: Any, best: list[int]) -> None:
    """Of the texts `0`, `2 0` and `1 1 1 …`, the last is the least probable, but has the best average of a token."""
    first, then = np.log([0.5, 0.05, 0.45, 1e-9]), 30.0 * np.eye(4)[[0, 1, 0, 3]]
    engine = Toy(4, of=lambda row: first if len(row) == 1 else then[row[-1]])
    config = GenerationConfig(num_beams=2, max_new_tokens=10, eos_token_id=0, early_stopping=early_stopping)
    assert generate(engine, np.array([[3]]), config=config).sequences[0].tolist() == best


def test_rows_are_reordered_only_when_parents_change() -> None:
    # Token 1 can only follow itself in the first beam, so from the second step on each beam continues itself.
    engine = Toy(4, of=lambda row: np.array([-50.0, 0.0, -1.0, -50.0]) if len(row) == 1 else 30.0 * np.eye(4)[row[-1]])
    generate(engine, np.array([[3]]), config=GenerationConfig(num_beams=2, max_new_tokens=6))
    assert engine.reorders == 2  # the expansion to two beams, and their split after the first step


def test_logits_without_a_finite_maximum_raise() -> None:
    broken = Toy(4, of=lambda row: np.full(4, np.nan))
    with pytest.raises(GenerationError, match="Received: nan"):
        generate(broken, IDS[:1, 1:], config=GenerationConfig(num_beams=2))

"""Beam search compared with exhaustive search; `grid.py` compares it with `transformers`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from kerasformer.engines.distribution import log_softmax
from kerasformer.errors import GenerationError
from kerasformer.generation import GenerationConfig, generate
from tests.core.generation.engines import Toy

IDS = np.array([[3, 1], [2, 0], [4, 4]])
MASK = np.array([[1, 1], [1, 0], [1, 1]])


def test_enough_beams_find_the_best_sequence() -> None:
    engine, length = Toy(vocab_size=5), 3
    output = generate(engine, IDS[:1], config=GenerationConfig(num_beams=25, max_new_tokens=length))

    def score(tokens: tuple[int, ...]) -> float:
        row = np.array([*IDS[0], *tokens])
        positions = range(2, 2 + length)
        return sum(float(log_softmax(np.asarray(engine.of(row[:end]))[None])[0, row[end]]) for end in positions)

    best = max(itertools.product(range(5), repeat=length), key=score)
    assert output.sequences[0].tolist() == list(best)
    np.testing.assert_allclose(output.sequence_scores, [score(best) / length], rtol=1e-5)


def test_more_beams_find_equal_or_better_sequences() -> None:
    prompts = np.arange(12)[:, None]
    scores = [
        generate(Toy(), prompts, config=GenerationConfig(num_beams=n, max_new_tokens=6)).sequence_scores
        for n in (2, 60)
    ]
    assert (scores[1] >= scores[0] - 1e-6).all() and (scores[1] > scores[0] + 1e-6).any()


def test_results_are_sorted_by_score() -> None:
    config = GenerationConfig(num_beams=4, num_return_sequences=3, max_new_tokens=5, eos_token_id=(2, 5))
    output = generate(Toy(), IDS, MASK, config)
    assert len(output.sequences) == len(output.finish_reasons) == 9
    assert output.sequence_scores is not None and output.sequence_scores.dtype == np.float32
    assert (np.diff(output.sequence_scores.reshape(3, 3), axis=1) <= 0).all()
    for sequence, reason in zip(output.sequences, output.finish_reasons, strict=True):
        assert (reason == "eos") == (sequence[-1] in (2, 5))
        assert not set(sequence[:-1].tolist()) & {2, 5}


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


def test_more_beams_than_sequences() -> None:
    """Each possible sequence is returned once; the rest is empty."""
    config = GenerationConfig(num_beams=5, num_return_sequences=5, max_new_tokens=2, eos_token_id=0)
    with pytest.warns(UserWarning, match="2 of 5 sequences are empty"):
        output = generate(Toy(2), np.array([[1]]), config=config)
    assert output.finish_reasons.count("none") == 2
    assert sorted(sequence.tolist() for sequence in output.sequences) == [[], [], [0], [1, 0], [1, 1]]


def test_logits_without_a_finite_maximum_raise() -> None:
    broken = Toy(4, of=lambda row: np.full(4, np.nan))
    with pytest.raises(GenerationError, match="Received: nan"):
        generate(broken, IDS[:1, 1:], config=GenerationConfig(num_beams=2))
    with pytest.raises(GenerationError, match="Received: -inf"):
        generate(Toy(4), IDS[:1, 1:], config=GenerationConfig(num_beams=2, suppress_tokens=range(4)))

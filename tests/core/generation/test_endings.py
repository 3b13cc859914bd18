"""Finish reasons, which are the same for all methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kerasformer.errors import CapacityError, GenerationError
from kerasformer.generation import Controls, GenerationConfig, generate, preparation
from tests.core.generation.engines import Toy, tokens_of

IDS, MASK = np.array([[3, 1, 4], [2, 0, 0]]), np.array([[1, 1, 1], [1, 0, 0]])

METHODS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "samples": {"do_sample": True, "seed": 2, "num_return_sequences": 3},
    "beams": {"num_beams": 3, "num_return_sequences": 3},
    "sampled beams": {"num_beams": 3, "do_sample": True, "seed": 2},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
}


def after(count: int) -> Callable[[], bool]:
    """Returns a function that returns true from its `count`-th call on."""
    calls = iter(range(1, 1000))
    return lambda: next(calls) >= count


@pytest.mark.parametrize("method", METHODS)
def test_capacity(method: str) -> None:
    with pytest.warns(UserWarning, match="the cache is full"):
        output = generate(Toy(capacity=7), IDS, MASK, GenerationConfig(max_new_tokens=10**12, **METHODS[method]))
    assert set(output.finish_reasons) == {"capacity"}
    assert {len(sequence) for sequence in output.sequences} == {4}


class Clocked(Toy):
    """A toy with simulated time: reading the prompt takes ten seconds, and each step one second."""

    now = 0.0

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> Any:
        self.now += 10
        return super().start(inputs, mask)

    def step(self, tokens: np.ndarray, state: Any) -> Any:
        self.now += 1
        return super().step(tokens, state)


@pytest.mark.parametrize(("limit", "length"), [(5, 1), (12.5, 3)])
@pytest.mark.parametrize("method", METHODS)
def test_time_includes_reading_the_prompt(
    monkeypatch: pytest.MonkeyPatch, method: str, limit: float, length: int
) -> None:
    engine = Clocked()
    monkeypatch.setattr(preparation.time, "monotonic", lambda: engine.now)
    config = GenerationConfig(max_new_tokens=8, max_time=limit, **METHODS[method])
    output = generate(engine, IDS[:1], MASK[:1], config)
    assert set(output.finish_reasons) == {"time"}
    assert {len(sequence) for sequence in output.sequences} == {length}


def test_interrupted_beam_search_returns_the_best_hypotheses() -> None:
    config = GenerationConfig(num_beams=3, num_return_sequences=3, eos_token_id=(2, 5), max_new_tokens=9)
    cut = generate(Toy(), IDS, MASK, config, Controls(cancelled=after(4)))
    short = generate(Toy(), IDS, MASK, config.replace(max_new_tokens=4))
    assert [s.tolist() for s in cut.sequences] == [s.tolist() for s in short.sequences]
    assert set(cut.finish_reasons) == {"eos", "cancelled"}
    np.testing.assert_array_equal(cut.sequence_scores, short.sequence_scores)


def only(*tokens: int) -> Callable[..., np.ndarray]:
    """Returns a rule that allows these tokens, and none after token 0, like a grammar."""

    def rule(history: Any, logits: np.ndarray) -> np.ndarray:
        allowed = np.full_like(logits, -np.inf)
        for row in range(len(logits)):
            allowed[row, [] if 0 in history.new(row) else list(tokens)] = 0
        return logits + allowed

    return rule


@pytest.mark.parametrize("method", ["greedy", "samples"])
def test_rules_are_not_applied_to_rows_that_have_ended(method: str) -> None:
    engine = Toy(12, of=lambda row: 50 * np.eye(12)[0 if row[0] == 2 else 1])  # the second row ends at once
    config = GenerationConfig(max_new_tokens=4, eos_token_id=0, **METHODS[method])
    output = generate(engine, IDS[[0, 0, 1]], MASK[[0, 0, 1]], config, Controls(rules=(only(0, 1),)))
    assert set(output.finish_reasons) == {"length", "eos"}


def test_beam_search_with_fewer_hypotheses_than_beams() -> None:
    """Two hypotheses for four beams: both are returned, and the others are empty."""
    config = GenerationConfig(num_beams=4, num_return_sequences=4, max_new_tokens=5, eos_token_id=(0, 1))
    engine = Toy()
    with pytest.warns(UserWarning, match="4 of 8 sequences are empty"):
        output = generate(engine, IDS, MASK, config, Controls(rules=(only(0, 1),)))
    assert len(engine.batches) == 1
    assert [sorted(s.tolist() for s in output.sequences[i : i + 4]) for i in (0, 4)] == [[[], [], [0], [1]]] * 2
    assert output.sequence_scores is not None and (output.sequence_scores[[2, 3, 6, 7]] == -1e9).all()


@pytest.mark.parametrize("method", METHODS)
def test_no_token_left(method: str) -> None:
    config = GenerationConfig(max_new_tokens=4, suppress_tokens=range(12), **METHODS[method])
    with pytest.raises(GenerationError, match="no token can be chosen. .* Received: -inf"):
        generate(Toy(), IDS, MASK, config)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("capacity", "settings", "error", "message"),
    [
        (3, {}, CapacityError, "leaves no room for a new token. Expected at most 2 tokens. Received: 3"),
        (2, {"max_new_tokens": 1}, CapacityError, "Expected at most 1 tokens. Received: 3"),
        (9, {"max_length": 3}, GenerationError, "must exceed its length. Received: max_length=3 for a prompt of 3"),
        (9, {"forced_eos_token_id": 12}, GenerationError, r"from 0 to 11. Received: \[12\]"),
    ],
)
def test_invalid_lengths(
    method: str, capacity: int, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    config = GenerationConfig(**METHODS[method], **settings)
    with pytest.raises(error, match=message):
        generate(Toy(capacity=capacity), IDS, MASK, config)
    if config.num_beams == 1 and config.num_return_sequences == 1:
        with pytest.raises(error, match=message):
            tokens_of(Toy(capacity=capacity), IDS, MASK, config)


@pytest.mark.parametrize("penalty", [99.0, -99.0])
def test_a_length_penalty_that_overflows(penalty: float) -> None:
    config = GenerationConfig(num_beams=2, length_penalty=penalty, max_new_tokens=6)
    with pytest.raises(GenerationError, match=f"from -38.6 to 38.6. Received: {penalty}"):
        generate(Toy(), IDS, MASK, config)


@pytest.mark.parametrize("filters", [{}, {"top_k": 2}, {"typical_p": 0.5}], ids=str)
@pytest.mark.parametrize("vocab_size", [2, 4, 7])
def test_sampled_beams_without_continuation(vocab_size: int, filters: dict[str, Any]) -> None:
    """As no token may occur twice, some hypotheses have no continuation in the end."""
    config = GenerationConfig(
        num_beams=3, do_sample=True, seed=1, max_new_tokens=6, eos_token_id=0, no_repeat_ngram_size=1, **filters
    )
    output = generate(Toy(vocab_size), np.array([[vocab_size - 1]]), config=config)
    assert output.finish_reasons == ["eos"]
    assert len(set(output.sequences[0].tolist())) == len(output.sequences[0])

"""Speculative decoding: tokens do not depend on the guesses, and rejected guesses cost little."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kerasformer.errors import GenerationError
from kerasformer.generation import Controls, GenerationConfig, GenerationOutput, generate
from kerasformer.generation.draft_length import TOKEN_COST, DraftLength
from kerasformer.generation.history import History
from kerasformer.generation.samplers import softmax
from kerasformer.generation.speculation import Assistant, ChooseToken, PromptLookup
from tests.core.generation.engines import Recomputing, Rows, Toy, tokens_of

IDS = np.array([[3, 4, 5, 3, 4, 8, 3], [6, 0, 0, 0, 0, 0, 0], [7, 8, 7, 8, 0, 0, 0]])
MASK = np.array([[1] * 7, [1] + [0] * 6, [1] * 4 + [0] * 3])
LENGTHS = [(1, 3), (1, 4, 8), (1, 8), tuple(range(1, 65))]


class MultiToken:
    """Wraps an engine so that a step can read several tokens, with the given step lengths."""

    def __init__(self, engine: Recomputing, lengths: Sequence[int]) -> None:
        self.engine, self.step_lengths, self.received_lengths = engine, tuple(lengths), []
        self.is_encoder_decoder, self.capacity = engine.is_encoder_decoder, engine.capacity
        self.vocab_size = engine.vocab_size
        self.start, self.reorder, self.fork = engine.start, engine.reorder, engine.fork

    def step(self, tokens: np.ndarray, state: Rows) -> tuple[np.ndarray, Rows]:
        assert tokens.shape[1] in self.step_lengths and tokens.max() < self.vocab_size
        self.received_lengths.append(tokens.shape[1])
        parts = []
        for column in np.split(tokens, tokens.shape[1], axis=1):
            logits, state = self.engine.step(column, state)
            parts.append(logits)
        return np.concatenate(parts, axis=1), state

    def rewind(self, state: Rows, count: int) -> Rows:
        assert 0 < count <= state.ids.shape[1]
        return self.engine.rewind(state, count)


class Joint(MultiToken):
    """Reads the next tokens of texts with separate states in one step."""

    def __init__(self, engine: Recomputing, lengths: Sequence[int]) -> None:
        super().__init__(engine, lengths)
        self.together: list[int] = []

    def step_together(self, texts: Sequence[tuple[np.ndarray, Rows]]) -> list[tuple[np.ndarray, Rows]]:
        self.together.append(len(texts))
        return [self.engine.step(tokens, state) for tokens, state in texts]


class ToyEncoderDecoder(Toy):
    """A toy encoder-decoder whose start token is 0 and whose logits depend on the encoder input."""

    is_encoder_decoder = True

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> Rows:
        empty = np.zeros((len(inputs), 0), np.int32)
        return Rows(empty, empty, (inputs * mask).sum(axis=1))

    def logits(self, rows: Rows) -> np.ndarray:
        return super().logits(rows) + np.roll(self.table[0], 1)[rows.extra % self.vocab_size][:, None]


def toy(seed: int = 0, noise: float = 0.0, vocab_size: int = 12, kind: type[Toy] = Toy, capacity: int = 64) -> Toy:
    """Returns a toy that depends on `seed`; `noise` changes its logits, for assistants that disagree."""
    engine = kind(vocab_size, capacity)
    engine.table = 2 * np.random.default_rng(seed).normal(size=engine.table.shape).astype(np.float32)
    engine.table += noise * np.random.default_rng(99).normal(size=engine.table.shape).astype(np.float32)
    return engine


class RandomDrafter:
    """A drafter that guesses random tokens, including tokens outside the vocabulary."""

    cost, expected_acceptance = 0.0, 0.9

    def __init__(self, *_: Any) -> None:
        self.random = np.random.default_rng(0)

    def start(self, prompt: np.ndarray, choose: ChooseToken) -> None:
        pass

    def guess(self, tokens: np.ndarray, count: int) -> list[int]:
        return self.random.integers(0, 14, self.random.integers(0, count + 1)).tolist()


def results(output: GenerationOutput) -> tuple[list[list[int]], list[str]]:
    return [sequence.tolist() for sequence in output.sequences], output.finish_reasons


SETTINGS: list[dict[str, Any]] = [
    {"max_new_tokens": 30},
    {"max_new_tokens": 30, "eos_token_id": (1, 2)},
    {"max_new_tokens": 1},
    {"max_new_tokens": 25, "no_repeat_ngram_size": 3, "repetition_penalty": 1.2},
    {"max_new_tokens": 20, "min_new_tokens": 9, "eos_token_id": 3, "forced_eos_token_id": 3},
    {"max_new_tokens": 25, "seed": 5},
    {"max_new_tokens": 25, "seed": 6, "top_k": 3, "temperature": 0.7, "eos_token_id": 7},
    {"max_new_tokens": 12, "seed": 7, "num_return_sequences": 3},
]
DRAFTERS = ["lookup", "random", "same model", "other model"]


def speculative(
    drafter: str, kind: type[Toy], monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns settings and controls of a run with a drafter."""
    if drafter in ("lookup", "random"):
        if drafter == "random":
            monkeypatch.setattr("kerasformer.generation.preparation.PromptLookup", RandomDrafter)
        return {"prompt_lookup_num_tokens": 7}, {}
    assistant = toy(noise=drafter == "other model", kind=kind)
    return {"num_assistant_tokens": 6}, {"assistant": MultiToken(assistant, (1, 3))}


@pytest.mark.parametrize(
    "kind", [Toy, pytest.param(ToyEncoderDecoder, marks=pytest.mark.grid)], ids=["decoder", "encoder-decoder"]
)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_tokens_are_those_of_a_plain_run(settings, drafter, kind, monkeypatch) -> None:
    config = GenerationConfig(**settings, **({"decoder_start_token_id": 0} if kind is ToyEncoderDecoder else {}))
    extra, controls = speculative(drafter, kind, monkeypatch)
    stops = [None, lambda tokens: len(tokens) > 2 and tokens[-1] == tokens[-3]]
    for lengths, stop in itertools.product(LENGTHS, stops):
        plain = generate(toy(kind=kind), IDS, MASK, config, Controls(stop=stop, output_scores=True))
        engine = MultiToken(toy(kind=kind), lengths)
        ahead = generate(
            engine, IDS, MASK, config.replace(**extra), Controls(stop=stop, output_scores=True, **controls)
        )
        assert results(ahead) == results(plain)
        for ours, theirs in zip(ahead.scores or [], plain.scores or [], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert ahead.speculation is not None and ahead.speculation.steps == len(engine.received_lengths)
        assert ahead.speculation.steps + ahead.speculation.accepted == sum(map(len, plain.sequences))
        if drafter == "same model" and sum(map(len, plain.sequences)) > 30 and lengths != (1, 8):
            assert ahead.speculation.tokens_per_step > 1.2
            if stop is None and "eos_token_id" not in settings:  # an end leaves unchecked guesses
                assert ahead.speculation.acceptance == 1


@pytest.mark.parametrize("kind", [Toy, ToyEncoderDecoder], ids=["decoder", "encoder-decoder"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("settings", [SETTINGS[1], SETTINGS[3], SETTINGS[6], SETTINGS[7]], ids=str)
def test_rows_guess_side_by_side(settings, drafter, kind, monkeypatch) -> None:
    config = GenerationConfig(**settings, decoder_start_token_id=0)
    extra, controls = speculative(drafter, kind, monkeypatch)
    monkeypatch.setattr(DraftLength, "_plain", 1.0)  # otherwise few guesses would pay off beside other texts
    plain = generate(toy(kind=kind), IDS, MASK, config)
    engine = Joint(toy(kind=kind), (1, 2, 4, 8))
    ahead = generate(engine, IDS, MASK, config.replace(**extra), Controls(**controls))
    assert results(ahead) == results(plain)
    assert ahead.speculation is not None
    assert ahead.speculation.steps == len(engine.received_lengths) + sum(engine.together)
    assert ahead.speculation.steps + ahead.speculation.accepted == sum(map(len, plain.sequences))
    if drafter == "same model" and ahead.speculation.steps > 9:
        assert ahead.speculation.accepted


def test_many_rows_make_no_guesses() -> None:
    """A step of all rows takes less time than a step for each of them, even if all guesses are accepted."""
    engine = Joint(toy(), (1, 4, 8))
    config = GenerationConfig(max_new_tokens=20, num_assistant_tokens=7)
    output = generate(engine, np.repeat(IDS[:1], 12, axis=0), None, config, Controls(assistant=toy()))
    assert not output.speculation.guessed and engine.together == [12] * 20


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda lengths: f"{len(lengths)}-{lengths[-1]}")
@pytest.mark.parametrize("capacity", [9, 10, 13, 20])
def test_a_full_cache(capacity, lengths, drafter, monkeypatch) -> None:
    extra, controls = speculative(drafter, Toy, monkeypatch)
    config = GenerationConfig(max_new_tokens=30)
    with pytest.warns(UserWarning, match="the cache is full"):
        plain = generate(toy(capacity=capacity), IDS, MASK, config)
    with pytest.warns(UserWarning, match="the cache is full"):
        engine = MultiToken(toy(capacity=capacity), lengths)
        ahead = generate(engine, IDS, MASK, config.replace(**extra), Controls(**controls))
    assert results(ahead) == results(plain) and set(plain.finish_reasons) == {"capacity"}


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("negative", [None, [[9, 8, 7, 6, 5, 4, 3, 2, 1, 2]]], ids=str)
@pytest.mark.parametrize("kind", [Toy, ToyEncoderDecoder], ids=["decoder", "encoder-decoder"])
def test_with_guidance(drafter, negative, kind, monkeypatch) -> None:
    """Also if a long negative prompt fills the cache."""
    extra, controls = speculative(drafter, kind, monkeypatch)
    config = GenerationConfig(max_new_tokens=11, guidance_scale=1.5, decoder_start_token_id=0)
    controls["negative_ids"] = None if negative is None else np.array(negative)
    plain = generate(toy(kind=kind, capacity=21), IDS, MASK, config, Controls(negative_ids=controls["negative_ids"]))
    engine = MultiToken(toy(kind=kind, capacity=21), (1, 4, 8))
    assert results(generate(engine, IDS, MASK, config.replace(**extra), Controls(**controls))) == results(plain)


def test_the_stream_yields_the_same_tokens() -> None:
    config = GenerationConfig(max_new_tokens=20, seed=3, eos_token_id=1, pad_token_id=11)
    ahead = config.replace(prompt_lookup_num_tokens=4)
    for ids, mask in ((IDS, MASK), (IDS[:1], MASK[:1])):
        plain, pieces = (list(tokens_of(MultiToken(toy(), (1, 4)), ids, mask, each)) for each in (config, ahead))
        np.testing.assert_array_equal(pieces, plain)


def test_a_stream_of_one_row_computes_tokens_on_request() -> None:
    engine = MultiToken(toy(), (1, 4))
    pieces = tokens_of(engine, IDS[:1], None, GenerationConfig(max_new_tokens=20, prompt_lookup_num_tokens=3))
    next(pieces)
    assert len(engine.received_lengths) == 1


def test_an_engine_with_steps_of_one_token_makes_no_guesses() -> None:
    output = generate(toy(), IDS[:1], None, GenerationConfig(prompt_lookup_num_tokens=4))
    assert output.speculation is not None and (
        output.speculation.steps,
        output.speculation.guessed,
    ) == (20, 0)


@pytest.mark.parametrize("settings", [{"seed": 1}, {"seed": 1, "top_k": 4, "temperature": 0.8}, {}], ids=str)
def test_an_assistant_samples_with_the_numbers_of_the_loop(settings) -> None:
    """A good assistant is accepted more often than the most probable token would be."""
    config = GenerationConfig(max_new_tokens=50, num_return_sequences=16 if settings else 1, **settings)
    output = generate(
        MultiToken(toy(), range(1, 9)), IDS[:1], None, config, Controls(assistant=toy(noise=0.1), output_scores=True)
    )
    assert output.speculation is not None
    best = np.mean([softmax(scores).max(axis=1).mean() for scores in output.scores or []])
    assert output.speculation.acceptance > (best + 0.1 if settings else 0.85)


def test_a_bad_assistant_is_soon_disabled() -> None:
    assistant = MultiToken(toy(seed=8, vocab_size=200), (1, 2, 4))
    output = generate(
        MultiToken(toy(vocab_size=200, capacity=128), range(1, 9)),
        IDS[:1], None, GenerationConfig(max_new_tokens=100, seed=1), Controls(assistant=assistant),
    )  # fmt: skip
    assert output.speculation is not None and output.speculation.acceptance < 0.05
    assert output.speculation.guessed < 30
    # It reads several tokens at once to catch up.
    assert sum(assistant.received_lengths) < 200 and max(assistant.received_lengths) > 1


@pytest.mark.parametrize("kind", [Toy, ToyEncoderDecoder], ids=["decoder", "encoder-decoder"])
def test_an_assistant_does_not_depend_on_earlier_guesses(kind) -> None:
    """An assistant that was used for other texts makes the same guesses as a new one."""
    random, prompt = np.random.default_rng(2), np.array([3, 4, 5], np.int32)
    used = Assistant(MultiToken(toy(kind=kind), (1, 3)))
    used.start(prompt, greedy)
    start = [0] if kind is ToyEncoderDecoder else prompt.tolist()
    for _ in range(30):
        tokens = np.array([*start, *random.integers(0, 3, random.integers(0, 5))], np.int32)
        fresh = Assistant(toy(kind=kind))
        fresh.start(prompt, greedy)
        assert used.guess(tokens, 3) == fresh.guess(tokens, 3)


def greedy(tokens: np.ndarray, logits: np.ndarray) -> int:
    return int(logits[0].argmax())


def test_rules_are_not_applied_after_an_end() -> None:
    """A grammar does not allow any token there."""
    config = GenerationConfig(max_new_tokens=30, eos_token_id=3)
    texts = []

    def rule(history: History, logits: np.ndarray) -> np.ndarray:
        texts.extend(history.new(row) for row in range(len(logits)))
        return logits

    generate(MultiToken(toy(), (1, 4, 8)), IDS, MASK, config, Controls(assistant=toy(), rules=(rule,)))
    assert len(texts) > 10 and not np.isin(np.concatenate(texts), config.eos_token_id).any()


@pytest.mark.parametrize(
    ("prompt", "tokens", "expected"),
    [
        ([1, 2, 3, 4, 9, 2, 3, 7], [2, 3], [4, 9, 2]),  # the first occurrence, as in the reference implementation
        ([1, 2, 3, 4, 9, 2, 3, 7], [9, 2, 3], [7]),  # the longest match, wherever it is
        ([1, 2], [7], []),
        ([5, 5, 5], [5], [5]),
        ([256, 1, 7], [65536], []),  # its bytes occur across two tokens
        ([0, 256, 65536, 9], [65536], [9]),
        ([7, 1, 2, 3, 4, 5, 6], [7], [1, 2, 3]),
    ],
    ids=str,
)
def test_lookup(prompt, tokens, expected) -> None:
    drafter = PromptLookup(max_ngram=3)
    drafter.start(np.array(prompt), lambda *_: None)
    assert drafter.guess(np.array(tokens, np.int32), 3)[: len(expected)] == expected
    assert bool(drafter.guess(np.array(tokens, np.int32), 3)) == bool(expected)
    # A decoder's tokens include the prompt.
    assert drafter.guess(np.array(prompt + tokens, np.int32), 3)[: len(expected)] == expected


@pytest.mark.parametrize("lengths", [tuple(range(1, 12)), (1, 4, 8)], ids=["any", "some"])
@pytest.mark.parametrize("drafter", [PromptLookup, Assistant])
def test_rejected_guesses_cost_at_most_a_twentieth_of_a_text_of_sixty_tokens(drafter, lengths) -> None:
    draft_length, time = DraftLength(lengths, drafter.cost, drafter.expected_acceptance), 0.0
    guessed = 0
    for steps in range(1, 400):
        draft_length.decay()
        count = draft_length.guesses(7)
        guessed += count
        draft_length.record_step(count)
        time += 1 + TOKEN_COST * (draft_length.length(count) - 1) + drafter.cost * count
        if count:
            draft_length.record_guess(False)
        if steps >= 60:
            assert time <= 1.05 * steps, steps
    assert guessed > 3  # it tries again


@pytest.mark.parametrize(
    ("settings", "controls", "message"),
    [
        ({"num_beams": 2}, {}, "do not support beam search"),
        ({}, {"assistant": toy()}, "both"),
        (
            {"prompt_lookup_num_tokens": 0},
            {"assistant": toy(vocab_size=13)},
            "Expected: a decoder with 12 tokens. Received: a decoder with 13",
        ),
        (
            {"prompt_lookup_num_tokens": 0},
            {"assistant": toy(kind=ToyEncoderDecoder)},
            "Received: an encoder-decoder",
        ),
    ],
    ids=["beams", "two", "vocabulary", "kind"],
)
def test_invalid_combinations(settings, controls, message) -> None:
    with pytest.raises(GenerationError, match=message):
        config = GenerationConfig(**{"prompt_lookup_num_tokens": 3, **settings})
        generate(MultiToken(toy(), (1, 4)), IDS, MASK, config, Controls(**controls))

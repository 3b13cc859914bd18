"""Speculation: tokens are those of a run without it, whatever is guessed; and guesses that fail cost little."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kerasformer.decoding import Controls, GenerationConfig, GenerationOutput, generate, stream
from kerasformer.decoding.draft_length import DraftLength
from kerasformer.decoding.history import History
from kerasformer.decoding.samplers import sampling_of, softmax
from kerasformer.decoding.speculation import Assistant, ChooseToken, PromptLookup
from kerasformer.errors import GenerationError
from tests.decoding.engines import Recomputing, Rows, Toy
from tests.decoding.test_samplers import chi_square_tail

IDS = np.array([[3, 4, 5, 3, 4, 8, 3], [6, 0, 0, 0, 0, 0, 0], [7, 8, 7, 8, 0, 0, 0]])
MASK = np.array([[1] * 7, [1] + [0] * 6, [1] * 4 + [0] * 3])
LENGTHS = [(1, 3), (1, 4, 8), (1, 8), tuple(range(1, 65))]


class Windows:
    """An engine that reads several tokens in a step, in windows of some lengths alone."""

    def __init__(self, engine: Recomputing, lengths: Sequence[int]) -> None:
        self.engine, self.step_lengths, self.widths = engine, tuple(lengths), []
        self.is_encoder_decoder, self.capacity = engine.is_encoder_decoder, engine.capacity
        self.vocab_size = engine.vocab_size
        self.start, self.reorder, self.fork = engine.start, engine.reorder, engine.fork

    def step(self, tokens: np.ndarray, state: Rows) -> tuple[np.ndarray, Rows]:
        assert tokens.shape[1] in self.step_lengths and tokens.max() < self.vocab_size
        self.widths.append(tokens.shape[1])
        parts = []
        for column in np.split(tokens, tokens.shape[1], axis=1):
            logits, state = self.engine.step(column, state)
            parts.append(logits)
        return np.concatenate(parts, axis=1), state

    def rewind(self, state: Rows, count: int) -> Rows:
        assert 0 < count <= state.ids.shape[1]
        return self.engine.rewind(state, count)


class Answering(Toy):
    """A toy encoder-decoder: the decoder begins with 0, and its logits depend on the text that was encoded."""

    is_encoder_decoder = True

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> Rows:
        nothing = np.zeros((len(inputs), 0), np.int32)
        return Rows(nothing, nothing, (inputs * mask).sum(axis=1))

    def logits(self, rows: Rows) -> np.ndarray:
        return super().logits(rows) + np.roll(self.table[0], 1)[rows.extra % self.vocab_size][:, None]


def toy(seed: int = 0, noise: float = 0.0, vocab_size: int = 12, kind: type[Toy] = Toy, capacity: int = 64) -> Toy:
    """One of a family of toys; `noise` makes it say what that toy would not."""
    engine = kind(vocab_size, capacity)
    engine.table = 2 * np.random.default_rng(seed).normal(size=engine.table.shape).astype(np.float32)
    engine.table += noise * np.random.default_rng(99).normal(size=engine.table.shape).astype(np.float32)
    return engine


class Liar:
    """A drafter that guesses anything, also tokens that no vocabulary has."""

    cost, hope = 0.0, 0.9

    def __init__(self, *_: Any) -> None:
        self.random = np.random.default_rng(0)

    def begin(self, prompt: np.ndarray, choose: ChooseToken) -> None:
        pass

    def guess(self, said: np.ndarray, count: int) -> list[int]:
        return self.random.integers(0, 14, self.random.integers(0, count + 1)).tolist()


def told(output: GenerationOutput) -> tuple[list[list[int]], list[str]]:
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
GUESSES = ["lookup", "lies", "itself", "another"]


def guessing(how: str, kind: type[Toy], monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and controls of a run that guesses this way."""
    if how in ("lookup", "lies"):
        if how == "lies":
            monkeypatch.setattr("kerasformer.decoding.preparation.PromptLookup", Liar)
        return {"prompt_lookup_num_tokens": 7}, {}
    return {"num_assistant_tokens": 6}, {"assistant": Windows(toy(noise=how == "another", kind=kind), (1, 3))}


@pytest.mark.parametrize("kind", [Toy, Answering], ids=["decoder", "encoder-decoder"])
@pytest.mark.parametrize("how", GUESSES)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_tokens_are_those_of_a_plain_run(settings, how, kind, monkeypatch) -> None:
    config = GenerationConfig(**settings, **({"decoder_start_token_id": 0} if kind is Answering else {}))
    extra, controls = guessing(how, kind, monkeypatch)
    stops = [None, lambda tokens: len(tokens) > 2 and tokens[-1] == tokens[-3]]
    for lengths, stop in itertools.product(LENGTHS, stops):
        plain = generate(toy(kind=kind), IDS, MASK, config, Controls(stop=stop, output_scores=True))
        engine = Windows(toy(kind=kind), lengths)
        ahead = generate(
            engine, IDS, MASK, config.replace(**extra), Controls(stop=stop, output_scores=True, **controls)
        )
        assert told(ahead) == told(plain)
        for ours, theirs in zip(ahead.scores or [], plain.scores or [], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert ahead.speculation is not None and ahead.speculation.steps == len(engine.widths)
        assert ahead.speculation.steps + ahead.speculation.accepted == sum(map(len, plain.sequences))
        if how == "itself" and sum(map(len, plain.sequences)) > 30 and lengths != (1, 8):
            assert ahead.speculation.tokens_per_step > 1.2
            if stop is None and "eos_token_id" not in settings:  # an end leaves guesses behind
                assert ahead.speculation.acceptance == 1


@pytest.mark.parametrize("how", GUESSES)
@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda lengths: f"{len(lengths)}-{lengths[-1]}")
@pytest.mark.parametrize("capacity", [9, 10, 13, 20])
def test_a_full_engine(capacity, lengths, how, monkeypatch) -> None:
    extra, controls = guessing(how, Toy, monkeypatch)
    config = GenerationConfig(max_new_tokens=30)
    with pytest.warns(UserWarning, match="the engine is full"):
        plain = generate(toy(capacity=capacity), IDS, MASK, config)
    with pytest.warns(UserWarning, match="the engine is full"):
        engine = Windows(toy(capacity=capacity), lengths)
        ahead = generate(engine, IDS, MASK, config.replace(**extra), Controls(**controls))
    assert told(ahead) == told(plain) and set(plain.finish_reasons) == {"capacity"}


@pytest.mark.parametrize("how", GUESSES)
@pytest.mark.parametrize("negative", [None, [[9, 8, 7, 6, 5, 4, 3, 2, 1, 2]]], ids=str)
@pytest.mark.parametrize("kind", [Toy, Answering], ids=["decoder", "encoder-decoder"])
def test_guided(how, negative, kind, monkeypatch) -> None:
    """In an engine that a long negative prompt fills up beside a short prompt, too."""
    extra, controls = guessing(how, kind, monkeypatch)
    config = GenerationConfig(max_new_tokens=11, guidance_scale=1.5, decoder_start_token_id=0)
    controls["negative_ids"] = None if negative is None else np.array(negative)
    plain = generate(toy(kind=kind, capacity=21), IDS, MASK, config, Controls(negative_ids=controls["negative_ids"]))
    engine = Windows(toy(kind=kind, capacity=21), (1, 4, 8))
    assert told(generate(engine, IDS, MASK, config.replace(**extra), Controls(**controls))) == told(plain)


def test_the_stream_says_the_same() -> None:
    config = GenerationConfig(max_new_tokens=20, seed=3, eos_token_id=1, pad_token_id=11)
    ahead = config.replace(prompt_lookup_num_tokens=4)
    for ids, mask in ((IDS, MASK), (IDS[:1], MASK[:1])):
        plain, pieces = (list(stream(Windows(toy(), (1, 4)), ids, mask, each)) for each in (config, ahead))
        np.testing.assert_array_equal(pieces, plain)


def test_a_stream_of_one_row_reads_as_it_is_asked() -> None:
    engine = Windows(toy(), (1, 4))
    pieces = stream(engine, IDS[:1], None, GenerationConfig(max_new_tokens=20, prompt_lookup_num_tokens=3))
    next(pieces)
    assert len(engine.widths) == 1


def test_an_engine_of_single_steps_guesses_nothing() -> None:
    output = generate(toy(), IDS[:1], None, GenerationConfig(prompt_lookup_num_tokens=4))
    assert output.speculation is not None and (
        output.speculation.steps,
        output.speculation.guessed,
    ) == (20, 0)


@pytest.mark.parametrize("settings", [{"seed": 1}, {"seed": 1, "top_k": 4, "temperature": 0.8}, {}], ids=str)
def test_an_assistant_draws_what_the_loop_will_draw(settings) -> None:
    """A good one is right more often than one that always guesses the best token could be."""
    config = GenerationConfig(max_new_tokens=50, num_return_sequences=4 if settings else 1, **settings)
    output = generate(
        Windows(toy(), range(1, 9)), IDS[:1], None, config, Controls(assistant=toy(noise=0.1), output_scores=True)
    )
    assert output.speculation is not None
    best = np.mean([softmax(scores).max(axis=1).mean() for scores in output.scores or []])
    assert output.speculation.acceptance > (best + 0.1 if settings else 0.85)


def test_a_bad_assistant_is_soon_left_alone() -> None:
    assistant = Windows(toy(seed=8, vocab_size=200), (1, 2, 4))
    output = generate(
        Windows(toy(vocab_size=200, capacity=128), range(1, 9)),
        IDS[:1], None, GenerationConfig(max_new_tokens=100, seed=1), Controls(assistant=assistant),
    )  # fmt: skip
    assert output.speculation is not None and output.speculation.acceptance < 0.05
    assert output.speculation.guessed < 30
    assert sum(assistant.widths) < 200 and max(assistant.widths) > 1  # it catches up with several at once


@pytest.mark.parametrize("kind", [Toy, Answering], ids=["decoder", "encoder-decoder"])
def test_an_assistant_forgets_what_was_not_said(kind) -> None:
    """Whatever texts it is asked about one after another, it answers as one that was never asked before."""
    random, prompt = np.random.default_rng(2), np.array([3, 4, 5], np.int32)
    used = Assistant(Windows(toy(kind=kind), (1, 3)))
    used.begin(prompt, by_greatest)
    start = [0] if kind is Answering else prompt.tolist()
    for _ in range(30):
        said = np.array([*start, *random.integers(0, 3, random.integers(0, 5))], np.int32)
        fresh = Assistant(toy(kind=kind))
        fresh.begin(prompt, by_greatest)
        assert used.guess(said, 3) == fresh.guess(said, 3)


def by_greatest(said: np.ndarray, logits: np.ndarray) -> int:
    return int(logits[0].argmax())


def test_rules_are_not_asked_what_follows_an_end() -> None:
    """A grammar has nothing to say there."""
    config = GenerationConfig(max_new_tokens=30, eos_token_id=3)
    seen = []

    def rule(history: History, logits: np.ndarray) -> np.ndarray:
        seen.extend(history.new(row) for row in range(len(logits)))
        return logits

    generate(Windows(toy(), (1, 4, 8)), IDS, MASK, config, Controls(assistant=toy(), rules=(rule,)))
    assert len(seen) > 10 and not np.isin(np.concatenate(seen), config.eos_token_id).any()


def test_guesses_are_from_the_prompt_not_from_the_negative_one(monkeypatch) -> None:
    began = []

    class Listening(Liar):
        def begin(self, prompt: np.ndarray, choose: ChooseToken) -> None:
            began.append(prompt.tolist())

    monkeypatch.setattr("kerasformer.decoding.preparation.PromptLookup", Listening)
    config = GenerationConfig(max_new_tokens=2, guidance_scale=1.5, prompt_lookup_num_tokens=3)
    generate(Windows(toy(), (1, 4)), IDS, MASK, config, Controls(negative_ids=np.array([[9, 8, 7, 6]])))
    assert began == [row[mask == 1].tolist() for row, mask in zip(IDS, MASK, strict=True)]


@pytest.mark.parametrize("noise", [0.3, 3.0], ids=["good", "bad"])
def test_the_distribution_of_sequences(noise) -> None:
    """Chi-square over all sequences of three tokens, against their exact probabilities."""
    engine, runs, start = toy(vocab_size=3), 2000, [0, 1, 2, 1]
    engine.table /= 2
    assistant = toy(vocab_size=3, noise=noise)
    config = GenerationConfig(max_new_tokens=3, do_sample=True, temperature=1.3, num_return_sequences=runs, seed=11)
    output = generate(Windows(engine, (1, 2, 4)), np.array([start]), None, config, Controls(assistant=assistant))
    assert output.speculation is not None and output.speculation.guessed > runs
    observed = np.zeros((3, 3, 3))
    np.add.at(observed, tuple(np.stack(output.sequences, axis=1)), 1)
    wanted = np.empty((3, 3, 3))
    for tokens in np.ndindex(3, 3, 3):
        rows = [engine.of(np.array([*start, *tokens[:place]])) for place in range(3)]
        filtered = sampling_of(config).filtered(np.array(rows, np.float32))
        wanted[tokens] = runs * softmax(filtered)[np.arange(3), tokens].prod()
    assert wanted.min() > 5
    assert chi_square_tail(((observed - wanted) ** 2 / wanted).sum(), observed.size - 1) > 0.001


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        ([1, 2, 3, 4, 9, 2, 3, 7], [2, 3], [4, 9, 2]),  # the first place, as in the reference implementation
        ([1, 2, 3, 4, 9, 2, 3, 7], [9, 2, 3], [7]),  # the longest run, wherever it is
        ([1, 2], [7], []),
        ([5, 5, 5], [5], [5]),
        ([256, 1, 7], [65536], []),  # bytes that stand between two tokens
        ([0, 256, 65536, 9], [65536], [9]),
        ([7, 1, 2, 3, 4, 5, 6], [7], [1, 2, 3]),
    ],
    ids=str,
)
def test_lookup(text, said, expected) -> None:
    drafter = PromptLookup(max_ngram=3)
    drafter.begin(np.array(text), lambda *_: None)
    assert drafter.guess(np.array(said, np.int32), 3)[: len(expected)] == expected
    assert bool(drafter.guess(np.array(said, np.int32), 3)) == bool(expected)
    assert drafter.guess(np.array(text + said, np.int32), 3)[: len(expected)] == expected  # a decoder reads on


def test_pace() -> None:
    draft_length = DraftLength((1, 2, 3, 4, 5, 6, 7, 8), cost=0.0, hope=0.5)
    first = draft_length.guesses(7)
    assert 1 <= first < 5
    for _ in range(30):
        draft_length.forget()
        draft_length.learn(True)
    assert draft_length.guesses(7) == 7
    assert draft_length.guesses(2) == 2
    for _ in range(60):
        draft_length.forget()
        draft_length.learn(False)
    assert draft_length.guesses(7) == 0
    waited = 0
    while draft_length.guesses(7) == 0:
        draft_length.forget()
        waited += 1
    assert 0 < waited < 60  # it tries again


def test_pace_fills_a_window() -> None:
    draft_length = DraftLength((1, 4, 8), cost=0.0, hope=0.7)
    assert [draft_length.length(guesses) for guesses in range(8)] == [1, 4, 4, 4, 8, 8, 8, 8]
    assert draft_length.guesses(7) in (3, 7)
    assert DraftLength((1, 4, 8), cost=0.5, hope=0.7).guesses(7) < 3  # where guesses are dear, it is left half empty


@pytest.mark.parametrize("lengths", [tuple(range(1, 12)), (1, 4, 8)], ids=["any", "windows"])
@pytest.mark.parametrize(("drafter", "cost", "first"), [(PromptLookup, 0.0, 16), (Assistant, 0.3, 48)])
def test_failing_guesses_cost_a_tenth_at_most(drafter, cost, first, lengths) -> None:
    """Where making a guess costs this much, and reading a tenth of a step; from the first so many tokens on."""
    draft_length, time = DraftLength(lengths, drafter.cost, drafter.hope), 0.0
    for steps in range(1, 400):
        draft_length.forget()
        count = draft_length.guesses(7)
        time += 1 + 0.1 * (draft_length.length(count) - 1) + cost * count
        if count:
            draft_length.learn(False)
        if steps >= first:
            assert time <= 1.1 * steps, steps


@pytest.mark.parametrize(
    ("settings", "controls", "message"),
    [
        ({"num_beams": 2}, {}, "one hypothesis at a time"),
        ({}, {"assistant": toy()}, "both"),
        (
            {"prompt_lookup_num_tokens": 0},
            {"assistant": toy(vocab_size=13)},
            "Expected: a decoder of 12 tokens. Received: a decoder of 13",
        ),
        ({"prompt_lookup_num_tokens": 0}, {"assistant": toy(kind=Answering)}, "Received: an encoder-decoder of 12"),
    ],
    ids=["beams", "two", "vocabulary", "kind"],
)
def test_what_cannot_be(settings, controls, message) -> None:
    with pytest.raises(GenerationError, match=message):
        config = GenerationConfig(**{"prompt_lookup_num_tokens": 3, **settings})
        generate(Windows(toy(), (1, 4)), IDS, MASK, config, Controls(**controls))

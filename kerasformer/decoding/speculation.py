"""Speculation: several guessed tokens are read in one step, and those that come true cost none of their own.

`ReadAhead` stands between the loop and an engine and is itself a `Step`. Asked for the logits after a token, it reads
that token and guesses of what will follow, and keeps the logits after each guess. If the loop then chooses what was
guessed, the answer is there; if not, the guesses are taken back. What is chosen, by whatever rules and draws, never
depends on the guesses: tokens are those of a run without speculation, also under a seed. That is as true as the engine
gives a token the same logits whatever is read after it: LiteRT does, to the bit; float32 on ONNX Runtime does up to
rounding (1e-5); GPT-2 in its int8, where one scale serves all tokens of a step, only up to 0.06, and may then choose
another token.
Source: Leviathan et al. 2022, arXiv:2211.17192; Saxena 2023, "Prompt lookup decoding".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Protocol

import numpy as np

from kerasformer.decoding.draft_length import DraftLength
from kerasformer.decoding.protocols import State, Step
from kerasformer.decoding.speculation_counts import SpeculationCounts

ChooseToken = Callable[[np.ndarray, np.ndarray], int | None]
"""What the loop would choose had a row said `(N,)` and were its logits `(1, V)`; `None` if it would have ended."""


class Drafter(Protocol):
    """Guesses how a text goes on.

    Attributes:
        cost: Of making a guess, as a share of a plain step of the engine; an estimate.
        hope: How probable it is that one comes true, before any was made; an estimate.
    """

    cost: float
    hope: float

    def begin(self, prompt: np.ndarray, choose: ChooseToken) -> None:
        """A new text.

        Args:
            prompt: Its real tokens `(P,)`, or what an encoder-decoder's encoder reads.
            choose: Makes tokens of logits as the loop will.
        """
        ...

    def guess(self, said: np.ndarray, count: int) -> list[int]:
        """At most `count` tokens that may follow.

        Args:
            said: `(N,)` int32: a decoder's prompt and its new tokens, or what an encoder-decoder's decoder has read.
            count: Most tokens that are of use.
        """
        ...


@dataclass
class PromptLookup:
    """Guesses that a text goes on as it did where its last tokens stood first.

    The longest run of last tokens that occurs earlier, up to `max_ngram`, counts.

    Args:
        max_ngram: Longest run that is searched for.
    Reference: Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding
    """

    max_ngram: int = 3
    cost: float = 0.0
    hope: float = 0.5
    _before: bytes = field(default=b"", init=False)

    def begin(self, prompt: np.ndarray, choose: ChooseToken) -> None:
        """See `Drafter.begin`."""
        self._before = prompt.astype(np.int32).tobytes()

    def guess(self, said: np.ndarray, count: int) -> list[int]:
        """See `Drafter.guess`."""
        new = said.astype(np.int32, copy=False).tobytes()
        text = new if new.startswith(self._before) else self._before + new
        for size in range(min(self.max_ngram, len(said)), 0, -1):
            place = _find(text, new[-4 * size :])
            if place >= 0:
                follows = place + 4 * size
                return np.frombuffer(text[follows : follows + 4 * count], np.int32).tolist()
        return []


def _find(text: bytes, run: bytes) -> int:
    """The first place of int32 tokens in others, at the end of which they stand too; below 0 if there is no other."""
    place = text.find(run, 0, len(text) - 4)
    while place % 4 and place >= 0:  # among the bytes of two tokens
        place = text.find(run, place + 1, len(text) - 4)
    return place


class Assistant:
    """Guesses what a smaller model would say.

    Where tokens are drawn, it draws with the rules, the cuts and the very random number that the loop will use in that
    place. Of two models with the probabilities `p` and `q`, no guess can come true more often than `sum(min(p, q))`
    (Leviathan et al. 2022, section 3.2); these do less often, as numbers that invert two cumulative distributions meet
    the same token only where the two overlap: with the shipped story-gpt2, sampled as its settings say, 0.88 and 0.72
    of the time with itself in int8 and int4, where the bound is 0.98 and 0.93, and the best tokens alone would give
    0.35. Nothing is spared for that: a seed gives what it gives without an assistant.

    Args:
        step: The smaller model.
    """

    cost = 0.3
    hope = 0.75

    def __init__(self, step: Step) -> None:
        self._step = step
        self._state: State = None
        self._read = np.zeros(0, np.int32)

    def begin(self, prompt: np.ndarray, choose: ChooseToken) -> None:
        """See `Drafter.begin`."""
        row = prompt[None].astype(np.int32)
        self._choose = choose
        self._state = self._step.start(row, np.ones_like(row))
        self._read = row[0, :0] if self._step.is_encoder_decoder else row[0, :-1]

    def guess(self, said: np.ndarray, count: int) -> list[int]:
        """See `Drafter.guess`."""
        text = said
        for _ in range(min(count, self._step.capacity - len(said) + 1)):
            token = self._choose(text, self._logits(text))
            if token is None:
                break
            text = np.append(text, np.int32(token))
        guesses: list[int] = text[len(said) :].tolist()
        return guesses

    def _logits(self, text: np.ndarray) -> np.ndarray:
        """Logits `(1, V)` after a text, of which only what was not yet read is."""
        known = min(_common(self._read, text), len(text) - 1)
        if len(self._read) > known:
            self._state = self._step.rewind(self._state, len(self._read) - known)
        while known < len(text):
            lengths = self._step.step_lengths
            size = lengths[bisect_right(lengths, len(text) - known) - 1]
            logits, self._state = self._step.step(text[None, known : known + size], self._state)
            known += size
        self._read = text
        return logits[:, -1]


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """Tokens that two texts begin with alike."""
    size = min(len(one), len(other))
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if len(different) else size


@dataclass
class _State:
    """One row.

    Attributes:
        inner: The engine's state, in which what was said and all of `guesses` were read.
        text: What was said, and room for more.
        length: Tokens of it.
        guesses: Tokens that were read ahead and have not been asked for.
        logits: `(1, K, V)`, the last of them after the last guess.
    """

    inner: State
    text: np.ndarray
    length: int
    guesses: list[int]
    logits: np.ndarray


class ReadAhead:
    """An engine that also reads guesses; for one row.

    Args:
        step: The engine.
        drafter: Makes the guesses.
        count: Most guesses at once.
        num_steps: Most tokens that will be asked for after the prompt; a guess of later ones would be of no use.
        width: Positions that the prompt takes in the engine, beside longer rows or a longer negative prompt.
        choose: What the loop would choose, for drafters that want to know.
        counts: Is kept up to date.
    """

    step_lengths: tuple[int, ...] = (1,)

    def __init__(
        self,
        step: Step,
        drafter: Drafter,
        count: int,
        num_steps: int,
        width: int,
        choose: ChooseToken,
        counts: SpeculationCounts,
    ) -> None:
        self.is_encoder_decoder = step.is_encoder_decoder
        self.capacity = step.capacity
        self.vocab_size = step.vocab_size
        self._step, self._drafter, self._choose, self._counts = step, drafter, choose, counts
        lengths = sorted(step.step_lengths)
        longest = bisect_right(lengths, count)  # the first that holds `count` guesses and the token before them
        self._lengths = lengths[: longest + 1]
        self._count = min(count, self._lengths[-1] - 1)
        self._num_steps, self._width = num_steps, width

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """See `Step.start`."""
        prompt = inputs[0][mask[0] == 1]
        self._drafter.begin(prompt, self._choose)
        self._draft_length = DraftLength(self._lengths, self._drafter.cost, self._drafter.hope)
        said = prompt[:0] if self.is_encoder_decoder else prompt[:-1]
        self._before = len(said)
        text = np.concatenate([said, np.zeros(self._num_steps, np.int32)]).astype(np.int32)
        return _State(self._step.start(inputs, mask), text, len(said), [], np.zeros((1, 0, self.vocab_size)))

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """See `Step.step`."""
        token = int(tokens[0, 0])
        state.text[state.length] = token
        state.length += 1
        if not state.guesses or state.guesses[0] != token:
            return self._read(token, state)
        self._counts.accepted += 1
        self._draft_length.learn(True)
        place = state.logits.shape[1] - len(state.guesses)
        del state.guesses[0]
        return state.logits[:, place : place + 1], state

    def _read(self, token: int, state: _State) -> tuple[np.ndarray, _State]:
        """Logits after a token; those after guesses are kept."""
        if state.guesses:
            self._draft_length.learn(False)
            state.inner = self._step.rewind(state.inner, len(state.guesses))
        self._draft_length.forget()
        guesses = self._guesses(state)
        length = self._draft_length.length(len(guesses))
        read = np.zeros((1, length), np.int32)
        read[0, : 1 + len(guesses)] = [token, *guesses]
        logits, inner = self._step.step(read, state.inner)
        beyond = length - 1 - len(guesses)
        if beyond:
            inner = self._step.rewind(inner, beyond)
        self._counts.steps += 1
        self._counts.guessed += len(guesses)
        state.inner, state.guesses, state.logits = inner, guesses, logits[:, : 1 + len(guesses)]
        return logits[:, :1], state

    def _guesses(self, state: _State) -> list[int]:
        """What to read ahead."""
        asked = state.length - self._before
        room = self.capacity - (self._width + asked - 2)
        most = min(self._count, self._num_steps - asked, self._lengths[bisect_right(self._lengths, room) - 1] - 1)
        count = self._draft_length.guesses(most)
        if not count:
            return []
        guesses = self._drafter.guess(state.text[: state.length], count)
        # An encoder may know more tokens than the decoder.
        known = list(takewhile(lambda guess: guess < self.vocab_size, guesses))
        return known[: self._draft_length.guesses(len(known))]

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """See `Step.reorder`; there is one row."""
        return state

    def rewind(self, state: _State, count: int) -> _State:
        """See `Step.rewind`."""
        state.inner = self._step.rewind(state.inner, count + len(state.guesses))
        state.length -= count
        state.guesses = []
        return state

    def fork(self, state: _State) -> _State:
        """See `Step.fork`."""
        return replace(state, inner=self._step.fork(state.inner), text=state.text.copy(), guesses=list(state.guesses))

"""Speculation: several guessed tokens are read in one step, and those that come true cost none of their own.

`ReadAhead` stands between the loop and an engine and is itself a `Step`. Asked for the logits after a token, it reads
that token and guesses of what will follow, and keeps the logits after each guess. If the loop then chooses what was
guessed, the answer is there; if not, the guesses are taken back. What is chosen, by whatever rules and draws, never
depends on the guesses: tokens are those of a run without speculation, also under a seed.
Source: Leviathan et al. 2022, arXiv:2211.17192; Saxena 2023, "Prompt lookup decoding".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kerasformer.decoding.protocols import State, Step
from kerasformer.decoding.tally import Tally


class Drafter(Protocol):
    """Guesses how a text goes on."""

    def begin(self, prompt: np.ndarray) -> None:
        """A new text: the real tokens of the prompt, or what an encoder-decoder's encoder reads, `(P,)`."""
        ...

    def guess(self, said: np.ndarray, count: int) -> np.ndarray:
        """At most `count` tokens that may follow.

        Args:
            said: `(N,)`: a decoder's prompt and its new tokens, or what an encoder-decoder's decoder has read.
            count: Most tokens that are of use.
        """
        ...


@dataclass
class PromptLookup:
    """Guesses that a text goes on as it did where its last tokens stood before.

    The longest run of last tokens that occurs earlier, up to `max_ngram`, counts; of several places, the latest.

    Args:
        max_ngram: Longest run that is searched for.
    Reference: Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding
    """

    max_ngram: int = 3
    _prompt: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32), init=False)

    def begin(self, prompt: np.ndarray) -> None:
        """See `Drafter.begin`."""
        self._prompt = prompt

    def guess(self, said: np.ndarray, count: int) -> np.ndarray:
        """See `Drafter.guess`."""
        inside = len(said) >= len(self._prompt) and np.array_equal(said[: len(self._prompt)], self._prompt)
        text = said if inside else np.concatenate([self._prompt, said])
        for size in range(min(self.max_ngram, len(said)), 0, -1):
            if len(text) <= size:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)
            found = np.flatnonzero((windows == text[-size:]).all(axis=1))
            if len(found):
                place = int(found[-1]) + size
                return text[place : place + count]
        return text[:0]


class Assistant:
    """Guesses what a smaller model would say.

    Args:
        step: The smaller model.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._state: State = None
        self._read = np.zeros(0, np.int32)

    def begin(self, prompt: np.ndarray) -> None:
        """See `Drafter.begin`."""
        row = prompt[None].astype(np.int32)
        self._state = self._step.start(row, np.ones_like(row))
        self._read = np.zeros(0, np.int32) if self._step.is_encoder_decoder else row[0, :-1]

    def guess(self, said: np.ndarray, count: int) -> np.ndarray:
        """See `Drafter.guess`."""
        count = min(count, self._step.capacity - len(said))
        common = _common(self._read, said)
        if len(self._read) > common:
            self._state = self._step.rewind(self._state, len(self._read) - common)
        guesses: list[int] = []
        left = said[common:].tolist()
        while left and count > 0:
            logits, self._state = self._step.step(np.array([[left[0]]], np.int32), self._state)
            self._read = np.append(self._read[:common], np.int32(left.pop(0)))
            common += 1
            if not left:
                guesses.append(int(logits[0, -1].argmax()))
                left = guesses[-1:] if len(guesses) < count else []
        return np.array(guesses, np.int32)


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """Tokens that two texts begin with alike."""
    size = min(len(one), len(other))
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if len(different) else size


@dataclass
class _State:
    """One row.

    Attributes:
        inner: The engine's state, in which `said` and all of `guesses` were read.
        said: `(N,)` tokens that were really said.
        guesses: Tokens that were read ahead.
        logits: `(1, K, V)` after each of them.
    """

    inner: State
    said: np.ndarray
    guesses: np.ndarray
    logits: np.ndarray


class ReadAhead:
    """An engine that also reads guesses; for one row.

    Args:
        step: The engine.
        drafter: Makes the guesses.
        count: Most guesses at once.
        tally: Is kept up to date.
    """

    step_lengths: tuple[int, ...] = (1,)

    def __init__(self, step: Step, drafter: Drafter, count: int, tally: Tally) -> None:
        self.is_encoder_decoder = step.is_encoder_decoder
        self.capacity = step.capacity
        self.vocab_size = step.vocab_size
        self.tally = tally
        self._step, self._drafter = step, drafter
        self._count = min(count, max(step.step_lengths) - 1)

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """See `Step.start`."""
        prompt = inputs[0][mask[0] > 0]
        self._drafter.begin(prompt)
        said = prompt[:0] if self.is_encoder_decoder else prompt[:-1]
        return _State(self._step.start(inputs, mask), said, prompt[:0], np.zeros((1, 0, self.vocab_size), np.float32))

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """See `Step.step`."""
        said = np.append(state.said, tokens[0])
        if len(state.guesses) and state.guesses[0] == tokens[0, 0]:
            self.tally.accepted += 1
            return state.logits[:, :1], _State(state.inner, said, state.guesses[1:], state.logits[:, 1:])
        inner = self._step.rewind(state.inner, len(state.guesses)) if len(state.guesses) else state.inner
        guesses = self._drafter.guess(said, min(self._count, self.capacity - len(said))) if self._count else said[:0]
        width = next(length for length in sorted(self._step.step_lengths) if length > len(guesses))
        if len(said) - 1 + width > self.capacity:
            guesses, width = guesses[:0], 1
        read = np.zeros((1, width), np.int32)
        read[0, : 1 + len(guesses)] = [tokens[0, 0], *guesses]
        logits, inner = self._step.step(read, inner)
        if width > 1 + len(guesses):
            inner = self._step.rewind(inner, width - 1 - len(guesses))
        self.tally.steps += 1
        self.tally.guessed += len(guesses)
        return logits[:, :1], _State(inner, said, guesses, logits[:, 1 : 1 + len(guesses)])

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """See `Step.reorder`; there is one row."""
        return state

    def rewind(self, state: _State, count: int) -> _State:
        """See `Step.rewind`."""
        inner = self._step.rewind(state.inner, count + len(state.guesses))
        return _State(inner, state.said[:-count], state.guesses[:0], state.logits[:, :0])

    def fork(self, state: _State) -> _State:
        """See `Step.fork`."""
        return _State(self._step.fork(state.inner), state.said, state.guesses, state.logits)

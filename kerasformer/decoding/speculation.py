"""Speculative decoding: several guessed tokens are checked in one step, so that accepted guesses save steps.

`SpeculativeStep` wraps an engine and implements `Step`. When the loop requests the logits after a token, it reads that
token together with guesses of the following tokens and caches the logits after each guess. If the loop then chooses the
guessed token, the cached logits are returned; otherwise the engine is rewound. Guesses never influence which token is
chosen, so the output equals that of a run without speculation, also with a seed, provided that the logits of a token do
not depend on the tokens that are read after it. This holds exactly for LiteRT and up to rounding for float32 on ONNX
Runtime. It does not hold for int8 on ONNX Runtime, where all tokens of a step share one scale: a different token may be
chosen there.
Source: Leviathan et al. 2022, arXiv:2211.17192; Saxena 2023, "Prompt lookup decoding".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Protocol

import numpy as np

from kerasformer.decoding.draft_length import DraftLength
from kerasformer.decoding.protocols import MIN_REWIND, JointStep, State, Step
from kerasformer.decoding.speculation_counts import SpeculationCounts

ChooseToken = Callable[[np.ndarray, np.ndarray], int | None]
"""Maps tokens `(N,)` and logits `(1, V)` of a row to the token that the loop would choose; `None` if the row ends."""


class Drafter(Protocol):
    """Proposes the next tokens of a text.

    Attributes:
        cost: Estimated cost of making a guess, relative to a plain step of the engine.
        expected_acceptance: Estimated probability that a guess is accepted, used before the first guess.
    """

    cost: float
    expected_acceptance: float

    def start(self, prompt: np.ndarray, choose: ChooseToken) -> None:
        """Starts a new text.

        Args:
            prompt: `(P,)` tokens of the prompt without padding; for an encoder-decoder, of the encoder input.
            choose: Chooses a token from logits in the same way as the loop.
        """
        ...

    def guess(self, tokens: np.ndarray, count: int) -> list[int]:
        """Returns at most `count` tokens that may follow.

        Args:
            tokens: `(N,)` int32: a decoder's prompt and new tokens, or the tokens that an encoder-decoder's decoder has
                read.
            count: Maximum number of guesses.
        """
        ...


@dataclass
class PromptLookup:
    """Proposes the tokens that followed an earlier occurrence of the last tokens of the text.

    The longest suffix of up to `max_ngram` tokens that occurs earlier is used.

    Args:
        max_ngram: Maximum length of the suffix.
        cost: See `Drafter`.
        expected_acceptance: See `Drafter`.
    Reference: Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding
    """

    max_ngram: int = 3
    cost: float = 0.0
    expected_acceptance: float = 0.5
    _prompt: bytes = field(default=b"", init=False)

    def start(self, prompt: np.ndarray, choose: ChooseToken) -> None:
        """See `Drafter.start`."""
        self._prompt = prompt.astype(np.int32).tobytes()

    def guess(self, tokens: np.ndarray, count: int) -> list[int]:
        """See `Drafter.guess`."""
        new = tokens.astype(np.int32, copy=False).tobytes()
        text = new if new.startswith(self._prompt) else self._prompt + new
        for size in range(min(self.max_ngram, len(tokens)), 0, -1):
            offset = _find(text, new[-4 * size :])
            if offset >= 0:
                following = offset + 4 * size
                return np.frombuffer(text[following : following + 4 * count], np.int32).tolist()
        return []


def _find(text: bytes, suffix: bytes) -> int:
    """Returns the byte offset of the first occurrence of int32 tokens that is not the end of the text, or -1."""
    offset = text.find(suffix, 0, len(text) - 4)
    while offset % 4 and offset >= 0:  # a match of bytes that is not aligned to tokens
        offset = text.find(suffix, offset + 1, len(text) - 4)
    return offset


class Assistant:
    """Proposes the tokens that a smaller model would generate.

    With sampling, it uses the rules, the filters and the random number that the loop will use at the same position, so
    that a seed gives the same tokens as without an assistant. This accepts fewer guesses than the maximum
    `sum(min(p, q))` for models with probabilities `p` and `q` (Leviathan et al. 2022, section 3.2), because inverting
    both cumulative distributions at the same number gives the same token only where they overlap.

    Args:
        step: The smaller model.
    """

    cost = 0.3
    expected_acceptance = 0.75

    def __init__(self, step: Step) -> None:
        self._step = step
        self._state: State = None
        self._read = np.zeros(0, np.int32)

    def start(self, prompt: np.ndarray, choose: ChooseToken) -> None:
        """See `Drafter.start`."""
        row = prompt[None].astype(np.int32)
        self._choose = choose
        self._state = self._step.start(row, np.ones_like(row))
        self._read = row[0, :0] if self._step.is_encoder_decoder else row[0, :-1]

    def guess(self, tokens: np.ndarray, count: int) -> list[int]:
        """See `Drafter.guess`."""
        text = tokens
        # All of them may have to be discarded again.
        for _ in range(min(count, MIN_REWIND, self._step.capacity - len(tokens) + 1)):
            token = self._choose(text, self._logits(text))
            if token is None:
                break
            text = np.append(text, np.int32(token))
        guesses: list[int] = text[len(tokens) :].tolist()
        return guesses

    def _logits(self, text: np.ndarray) -> np.ndarray:
        """Returns the logits `(1, V)` after a text, reading only tokens that have not been read yet."""
        num_read = min(_common_prefix(self._read, text), len(text) - 1)
        if len(self._read) > num_read:
            self._state = self._step.rewind(self._state, len(self._read) - num_read)
        while num_read < len(text):
            lengths = self._step.step_lengths
            size = lengths[bisect_right(lengths, len(text) - num_read) - 1]
            logits, self._state = self._step.step(text[None, num_read : num_read + size], self._state)
            num_read += size
        self._read = text
        return logits[:, -1]


def _common_prefix(one: np.ndarray, other: np.ndarray) -> int:
    """Returns the length of the common prefix of two texts."""
    size = min(len(one), len(other))
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if len(different) else size


@dataclass
class _State:
    """State of one row.

    Attributes:
        inner: State of the engine after it has read the text and all of `guesses`.
        text: Buffer of the tokens that the loop has chosen, with room for more.
        length: Number of tokens in `text`.
        guesses: Tokens that the engine has read and the loop has not chosen yet.
        logits: `(1, K, V)` logits of the last step, up to those after the last guess.
    """

    inner: State
    text: np.ndarray
    length: int
    guesses: list[int]
    logits: np.ndarray


class SpeculativeStep:
    """Engine that reads guesses ahead, for one row.

    Args:
        step: The engine.
        drafter: Makes the guesses.
        count: Maximum number of guesses at once.
        num_steps: Maximum number of new tokens; guesses beyond them would be useless.
        prefix_length: Number of slots that the prompt occupies, including padding to longer prompts.
        choose: Chooses a token as the loop would; passed to the drafter.
        counts: Statistics to update.
    """

    step_lengths: tuple[int, ...] = (1,)

    def __init__(
        self,
        step: Step,
        drafter: Drafter,
        count: int,
        num_steps: int,
        prefix_length: int,
        choose: ChooseToken,
        counts: SpeculationCounts,
    ) -> None:
        self.is_encoder_decoder = step.is_encoder_decoder
        self.capacity = step.capacity
        self.vocab_size = step.vocab_size
        self._step, self._drafter, self._choose, self._counts = step, drafter, choose, counts
        lengths = sorted(step.step_lengths)
        longest = bisect_right(
            lengths, count
        )  # the first length with room for `count` guesses and the token before them
        self._lengths = lengths[: longest + 1]
        self._count = min(count, self._lengths[-1] - 1)
        self._num_steps, self._prefix_length = num_steps, prefix_length

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """See `Step.start`."""
        prompt = inputs[0][mask[0] == 1]
        self._drafter.start(prompt, self._choose)
        self._draft_length = DraftLength(self._lengths, self._drafter.cost, self._drafter.expected_acceptance)
        tokens = prompt[:0] if self.is_encoder_decoder else prompt[:-1]
        self._start_length = len(tokens)
        text = np.concatenate([tokens, np.zeros(self._num_steps, np.int32)]).astype(np.int32)
        return _State(self._step.start(inputs, mask), text, len(tokens), [], np.zeros((1, 0, self.vocab_size)))

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """See `Step.step`."""
        unread = self.unread(int(tokens[0, 0]), state)
        if unread is not None:
            self.store(*self._step.step(unread, state.inner), state)
        return self.latest(state), state

    def unread(self, token: int, state: _State, rows: int = 1) -> np.ndarray | None:
        """Adds a token to the text.

        Args:
            token: The next token.
            state: State of the text; changed.
            rows: Number of texts whose next tokens a plain step reads together.

        Returns:
            The tokens that the engine has to read, `(1, T)`: this one and new guesses; `None` if it has read this one.
        """
        state.text[state.length] = token
        state.length += 1
        if state.guesses and state.guesses[0] == token:
            self._counts.accepted += 1
            self._draft_length.record_guess(True)
            del state.guesses[0]
            return None
        if state.guesses:
            self._draft_length.record_guess(False)
            state.inner = self._step.rewind(state.inner, len(state.guesses))
        self._draft_length.rows = rows
        self._draft_length.decay()
        state.guesses = self._guesses(state)
        self._draft_length.record_step(len(state.guesses))
        tokens = np.zeros((1, self._draft_length.length(len(state.guesses))), np.int32)
        tokens[0, : 1 + len(state.guesses)] = [token, *state.guesses]
        return tokens

    def store(self, logits: np.ndarray, inner: State, state: _State) -> None:
        """Stores the result of the engine for the tokens of `unread`: logits `(1, T, V)` and its next state."""
        num_padding = logits.shape[1] - 1 - len(state.guesses)
        state.inner = self._step.rewind(inner, num_padding) if num_padding else inner
        state.logits = logits[:, : 1 + len(state.guesses)]
        self._counts.steps += 1
        self._counts.guessed += len(state.guesses)

    def latest(self, state: _State) -> np.ndarray:
        """Returns the logits after the last token of the text, `(1, 1, V)`."""
        index = state.logits.shape[1] - 1 - len(state.guesses)
        return state.logits[:, index : index + 1]

    def _guesses(self, state: _State) -> list[int]:
        num_chosen = state.length - self._start_length
        room = self.capacity - (self._prefix_length + num_chosen - 2)
        longest = self._lengths[bisect_right(self._lengths, room) - 1]
        count = self._draft_length.guesses(min(self._count, self._num_steps - num_chosen, longest - 1))
        if not count:
            return []
        guesses = self._drafter.guess(state.text[: state.length], count)
        # The vocabulary of an encoder may be larger than that of the decoder.
        known = list(takewhile(lambda guess: guess < self.vocab_size, guesses))
        return known[: self._draft_length.guesses(len(known))]

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """See `Step.reorder`; there is only one row."""
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


class SpeculativeRows:
    """Engine of several rows that guess side by side; implements what the loop needs of `Step`.

    Rows without guesses are read in one step, and each row with guesses in a step of its own.

    Args:
        step: The engine.
        rows: Engine of each row, which wraps `step`.
    """

    step_lengths: tuple[int, ...] = (1,)

    def __init__(self, step: JointStep, rows: Sequence[SpeculativeStep]) -> None:
        self.is_encoder_decoder, self.capacity, self.vocab_size = (
            step.is_encoder_decoder,
            step.capacity,
            step.vocab_size,
        )
        self._step, self._rows = step, rows

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> list[tuple[SpeculativeStep, _State]]:
        """Reads the prompt of each row, `(N, P)`; see `Step.start`."""
        real = zip(self._rows, inputs, mask == 1, strict=True)
        return [
            (row, row.start(ids[None, real_tokens], np.ones((1, real_tokens.sum()), np.int32)))
            for row, ids, real_tokens in real
        ]

    def step(
        self, tokens: np.ndarray, state: list[tuple[SpeculativeStep, _State]]
    ) -> tuple[np.ndarray, list[tuple[SpeculativeStep, _State]]]:
        """See `Step.step`."""
        together = []
        for token, (row, text) in zip(tokens[:, 0].tolist(), state, strict=True):
            unread = row.unread(token, text, len(state))
            if unread is None:
                continue
            if unread.shape[1] == 1:
                together.append((row, text, unread))
            else:
                row.store(*self._step.step(unread, text.inner), text)
        if together:
            results = self._step.step_together([(unread, text.inner) for _, text, unread in together])
            for (row, text, _), result in zip(together, results, strict=True):
                row.store(*result, text)
        return np.concatenate([row.latest(text) for row, text in state]), state

    def reorder(
        self, state: list[tuple[SpeculativeStep, _State]], rows: np.ndarray
    ) -> list[tuple[SpeculativeStep, _State]]:
        """Returns the state of some of the rows, none of them twice."""
        return [state[row] for row in rows.tolist()]

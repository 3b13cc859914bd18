"""Speculative decoding: several guessed tokens are checked in one step, so that accepted guesses save steps.

`Speculative` wraps an engine. When the loop requests the logits after a token, it reads that
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
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

import numpy as np

from kerasformer.engines.protocols import MIN_REWIND, JointStep, State, Step, read_by_start
from kerasformer.generation.draft_length import DraftLength
from kerasformer.generation.speculation_counts import SpeculationCounts
from kerasformer.generation.wrapped_step import WrappedStep

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
        self._read = read_by_start(self._step, row[0])

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
    size = min(len(one), len(other))
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if len(different) else size


class GuessedText:
    """A text whose next tokens are guessed and read ahead.

    Args:
        engine: The engine.
        drafter: Makes the guesses.
        count: Maximum number of guesses at once.
        num_steps: Maximum number of new tokens; guesses beyond them would be useless.
        prefix_length: Number of slots that the prompt occupies, including padding to longer prompts.
        choose: Chooses a token as the loop would; passed to the drafter.
        counts: Statistics to update.

    Attributes:
        state: State of the engine after it has read the text and all guesses that were not chosen yet.
    """

    def __init__(
        self,
        engine: Step,
        drafter: Drafter,
        count: int,
        num_steps: int,
        prefix_length: int,
        choose: ChooseToken,
        counts: SpeculationCounts,
    ) -> None:
        self._engine, self._drafter, self._choose, self._counts = engine, drafter, choose, counts
        lengths = sorted(engine.step_lengths)
        longest = bisect_right(lengths, count)  # the first with room for `count` guesses and the token before them
        self._lengths = lengths[: longest + 1]
        self._count = min(count, self._lengths[-1] - 1)
        self._num_steps, self._prefix_length = num_steps, prefix_length

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> None:
        """Reads the prompt `(1, P)`; see `Step.start`."""
        prompt = inputs[0][mask[0] == 1]
        self._drafter.start(prompt, self._choose)
        self._draft_length = DraftLength(self._lengths, self._drafter.cost, self._drafter.expected_acceptance)
        tokens = read_by_start(self._engine, prompt)
        self._start_length = self._length = len(tokens)
        self._text = np.concatenate([tokens, np.zeros(self._num_steps, np.int32)]).astype(np.int32)
        self.state = self._engine.start(inputs, mask)
        self._guesses: list[int] = []
        self._logits = np.zeros((1, 0, self._engine.vocab_size))

    def unread(self, token: int, rows: int) -> np.ndarray | None:
        """Adds a token to the text.

        Args:
            token: The next token.
            rows: Number of texts whose next tokens a plain step reads together.

        Returns:
            The tokens that the engine has to read, `(1, T)`: this one and new guesses; `None` if it has read this one.
        """
        self._text[self._length] = token
        self._length += 1
        if self._guesses and self._guesses[0] == token:
            self._counts.accepted += 1
            self._draft_length.record_guess(True)
            del self._guesses[0]
            return None
        if self._guesses:
            self._draft_length.record_guess(False)
            self.state = self._engine.rewind(self.state, len(self._guesses))
        self._draft_length.rows = rows
        self._draft_length.decay()
        self._guesses = self._new_guesses()
        self._draft_length.record_step(len(self._guesses))
        tokens = np.zeros((1, self._draft_length.length(len(self._guesses))), np.int32)
        tokens[0, : 1 + len(self._guesses)] = [token, *self._guesses]
        return tokens

    def store(self, logits: np.ndarray, state: State) -> None:
        """Stores the result of the engine for the tokens of `unread`: logits `(1, T, V)` and its next state."""
        num_padding = logits.shape[1] - 1 - len(self._guesses)
        self.state = self._engine.rewind(state, num_padding) if num_padding else state
        self._logits = logits[:, : 1 + len(self._guesses)]
        self._counts.steps += 1
        self._counts.guessed += len(self._guesses)

    @property
    def latest(self) -> np.ndarray:
        """Logits after the last token of the text, `(1, 1, V)`."""
        index = self._logits.shape[1] - 1 - len(self._guesses)
        return self._logits[:, index : index + 1]

    def _new_guesses(self) -> list[int]:
        num_chosen = self._length - self._start_length
        room = self._engine.capacity - (self._prefix_length + num_chosen - 2)
        longest = self._lengths[bisect_right(self._lengths, room) - 1]
        count = self._draft_length.guesses(min(self._count, self._num_steps - num_chosen, longest - 1))
        if not count:
            return []
        guesses = self._drafter.guess(self._text[: self._length], count)
        # The vocabulary of an encoder may be larger than that of the decoder.
        known = list(takewhile(lambda guess: guess < self._engine.vocab_size, guesses))
        return known[: self._draft_length.guesses(len(known))]


class Speculative(WrappedStep):
    """Engine that reads guesses ahead, for texts side by side; has the methods of `Step` that `Steps` calls.

    A text with guesses is read in a step of its own. Texts without guesses are read in one step if the engine can do
    this for texts of different lengths (`JointStep`).

    Args:
        engine: The engine.
        texts: The texts that it reads.
    """

    def __init__(self, engine: Step, texts: Sequence[GuessedText]) -> None:
        super().__init__(engine)
        self._joint = engine if isinstance(engine, JointStep) else None
        self._texts = texts

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> list[GuessedText]:
        """Reads the prompt of each text, `(N, P)`; see `Step.start`."""
        for text, ids, real in zip(self._texts, inputs, mask, strict=True):
            text.start(ids[None, real != 0], real[None, real != 0])
        return list(self._texts)

    def step(self, tokens: np.ndarray, state: list[GuessedText]) -> tuple[np.ndarray, list[GuessedText]]:
        """See `Step.step`."""
        together = []
        for token, text in zip(tokens[:, 0].tolist(), state, strict=True):
            unread = text.unread(token, 1 if self._joint is None else len(state))
            if unread is None:
                continue
            if self._joint is None or len(state) == 1 or unread.shape[1] > 1:
                text.store(*self.engine.step(unread, text.state))
            else:
                together.append((text, unread))
        if together and self._joint is not None:
            results = self._joint.step_together([(unread, text.state) for text, unread in together])
            for (text, _), result in zip(together, results, strict=True):
                text.store(*result)
        return np.concatenate([text.latest for text in state]), state

    def reorder(self, state: list[GuessedText], rows: np.ndarray) -> list[GuessedText]:
        """Returns some of the texts, none of them twice."""
        return [state[row] for row in rows.tolist()]

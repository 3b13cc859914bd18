"""An encoder-decoder whose texts contain only some tokens of the vocabulary, chosen for each input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kerasformer.decoding.protocols import State, Step
from kerasformer.errors import GenerationError


class CandidateTokens(Protocol):
    """A vocabulary shortlist: the tokens that the output for an input may contain."""

    def candidates(self, tokens: np.ndarray) -> np.ndarray | None:
        """Returns the candidates for an input.

        Args:
            tokens: `(N,)` token ids of the input, without padding.
        Returns:
            `(K,)` token ids in ascending order, or `None` for the whole vocabulary.
        """
        ...

    def with_tokens(self, tokens: Sequence[int]) -> CandidateTokens:
        """Returns a shortlist with these further candidates for every input."""
        ...


@dataclass(frozen=True)
class _State:
    """State of `R` rows.

    Attributes:
        inner: State of the engine.
        candidates: Candidates of each row; `None` for the whole vocabulary.
    """

    inner: State
    candidates: tuple[np.ndarray | None, ...]


class Shortlisted:
    """Engine with a vocabulary shortlist.

    It implements `Step`. The logits of the candidates are those of the engine, and all others are -inf, so that they
    have no probability and never depend on the other texts of the batch.

    Args:
        step: Engine of an encoder-decoder, which may be guided.
        shortlist: Candidates for each input.
    Raises:
        GenerationError: the engine is that of a decoder.
    Reference: Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation",
        arXiv:1412.2007, section 3.3.
    """

    def __init__(self, step: Step, shortlist: CandidateTokens) -> None:
        if not step.is_encoder_decoder:
            raise GenerationError(
                "A shortlist is for encoder-decoders, whose texts depend on an input. Received: a decoder. Remove "
                "shortlist."
            )
        self.step_lengths, self.capacity, self.vocab_size = step.step_lengths, step.capacity, step.vocab_size
        self.is_encoder_decoder = True
        self._step, self._shortlist = step, shortlist

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """Encodes the inputs and looks up their candidates; see `Step.start`.

        Raises:
            GenerationError: a candidate is not in the vocabulary.
        """
        # With guidance, the tokens of negative prompts have another mark in the mask.
        rows = tuple(self._shortlist.candidates(row[real == 1]) for row, real in zip(inputs, mask, strict=True))
        largest = max((int(row.max(initial=0)) for row in rows if row is not None), default=0)
        if largest >= self.vocab_size:
            raise GenerationError(
                f"The shortlist is that of another vocabulary. Expected: token ids up to {self.vocab_size - 1}. "
                f"Received: {largest}. Learn a shortlist for this model."
            )
        return _State(self._step.start(inputs, mask), rows)

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Returns logits `(R, T, V)` that are -inf except for candidates; see `Step.step`."""
        logits, inner = self._step.step(tokens, state.inner)
        limited = np.full_like(logits, -np.inf)
        for row, candidates in enumerate(state.candidates):
            kept = slice(None) if candidates is None else candidates
            limited[row][:, kept] = logits[row][:, kept]
        return limited, replace(state, inner=inner)

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """See `Step.reorder`."""
        candidates = tuple(state.candidates[row] for row in np.asarray(rows).tolist())
        return _State(self._step.reorder(state.inner, rows), candidates)

    def rewind(self, state: _State, count: int) -> _State:
        """See `Step.rewind`."""
        return replace(state, inner=self._step.rewind(state.inner, count))

    def fork(self, state: _State) -> _State:
        """See `Step.fork`."""
        return replace(state, inner=self._step.fork(state.inner))

"""An encoder-decoder whose texts contain only some tokens of the vocabulary, chosen for each input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

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


@runtime_checkable
class OutputLimitingStep(Step, Protocol):
    """An engine that can compute the logits of some tokens alone.

    Attributes:
        limits_output: Whether it can; a bundle may lack what is needed.
    """

    limits_output: bool

    def output_rows(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows of the output matrix and entries of its bias, float32 `(K, E)` and `(K,)`, for tokens `(K,)`."""
        ...

    def without_logits(self) -> Step:
        """Returns an engine whose steps return states `(B, T, E)`, of which products with the rows are the logits."""
        ...


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Candidates of a text.

    Attributes:
        tokens: `(K,)` token ids.
        rows: Their rows of the output matrix `(K, E)` and entries of its bias `(K,)`; optional.
    """

    tokens: np.ndarray
    rows: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True)
class _State:
    """State of `R` rows.

    Attributes:
        engine: Engine that computes the logits, or the states from which those of candidates are computed.
        inner: State of the engine.
        candidates: Candidates of each row; `None` for the whole vocabulary.
    """

    engine: Step
    inner: State
    candidates: tuple[_Candidates | None, ...]


class Shortlisted:
    """Engine with a vocabulary shortlist.

    An engine that implements `OutputLimitingStep` computes no other logits than those of the candidates.

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
        engine, step = self._step, self._step
        lookup: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
        # A text with the whole vocabulary needs all logits, which contain those of the other texts.
        if isinstance(step, OutputLimitingStep) and step.limits_output and all(row is not None for row in rows):
            engine, lookup = step.without_logits(), step.output_rows
        candidates = tuple(row if row is None else _Candidates(row, lookup and lookup(row)) for row in rows)
        return _State(engine, engine.start(inputs, mask), candidates)

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Returns logits `(R, T, V)` that are -inf except for candidates; see `Step.step`."""
        computed, inner = state.engine.step(tokens, state.inner)
        logits = np.full((*computed.shape[:2], self.vocab_size), -np.inf, np.float32)
        rows_of = defaultdict(list)  # beams of a text share one product
        for row, candidates in enumerate(state.candidates):
            rows_of[candidates].append(row)
        for candidates, rows in rows_of.items():
            if candidates is None:
                logits[rows] = computed[rows]
            elif candidates.rows is None:
                for row in rows:
                    logits[row][:, candidates.tokens] = computed[row][:, candidates.tokens]
            else:
                matrix, bias = candidates.rows
                for row, scores in zip(rows, computed[rows] @ matrix.T + bias, strict=True):
                    logits[row][:, candidates.tokens] = scores
        return logits, replace(state, inner=inner)

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """See `Step.reorder`."""
        candidates = tuple(state.candidates[row] for row in np.asarray(rows).tolist())
        return replace(state, inner=state.engine.reorder(state.inner, rows), candidates=candidates)

    def rewind(self, state: _State, count: int) -> _State:
        """See `Step.rewind`."""
        return replace(state, inner=state.engine.rewind(state.inner, count))

    def fork(self, state: _State) -> _State:
        """See `Step.fork`."""
        return replace(state, inner=state.engine.fork(state.inner))

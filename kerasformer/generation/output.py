"""The result of generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kerasformer.generation.record import Record
from kerasformer.generation.speculation_counts import SpeculationCounts


@dataclass(frozen=True)
class GenerationOutput:
    """Generated tokens: `num_return_sequences` consecutive sequences for each prompt.

    Attributes:
        sequences: New tokens of each sequence, int32, including the end token, without prompt and padding.
        finish_reasons: Finish reason of each sequence: `"eos"`, `"stop"` (a stop string or function), `"length"`,
            `"capacity"`, `"time"` or `"cancelled"`; `"none"` for an empty sequence, if a prompt has fewer continuations
            than `num_return_sequences`.
        sequence_scores: `(B * num_return_sequences,)` float32 scores of beam search: log-probability divided by
            `length ** length_penalty`. `None` without beam search.
        record: Candidates of each token, or `None` if they were not recorded.
        speculation: Statistics of speculative decoding, or `None` if it was disabled.
    """

    sequences: list[np.ndarray]
    finish_reasons: list[str]
    sequence_scores: np.ndarray | None = None
    record: Record | None = field(default=None, repr=False)
    speculation: SpeculationCounts | None = None

    def __post_init__(self) -> None:
        """Marks the sequences, since ids of other libraries begin with the prompt; see `NewTokens`."""
        object.__setattr__(self, "sequences", [row.view(NewTokens) for row in self.sequences])

    @property
    def scores(self) -> list[np.ndarray] | None:
        """Scores that the tokens of each sequence were chosen from, `(N, V)` float32.

        These are logits (in beam search, log-probabilities) after rules and filters; forbidden tokens have minus
        infinity. `None` unless `output_scores` was set.
        """
        if self.record is None or not self.record.keeps_scores:
            return None
        return [_stacked([node.choice.scores for node in path]) for path in self.record.paths]

    @property
    def logits(self) -> list[np.ndarray] | None:
        """Logits of the model for the tokens of each sequence, before any rule, `(N, V)` float32.

        `None` unless `output_logits` was set.
        """
        if self.record is None or not self.record.keeps_logits:
            return None
        return [_stacked([node.choice.logits for node in path]) for path in self.record.paths]

    @property
    def log_probabilities(self) -> list[np.ndarray] | None:
        """Log-probabilities of the tokens of each sequence, before any rule, `(N,)` float32.

        `None` without a record.
        """
        if self.record is None:
            return None
        return [np.array([node.log_probability for node in path], np.float32) for path in self.record.paths]


class NewTokens(np.ndarray):
    """New tokens of a sequence, int32 `(N,)`, without the prompt: an array that functions can tell from whole texts."""

    def __repr__(self) -> str:
        """As for any array."""
        return repr(self.view(np.ndarray))


def _stacked(rows: Sequence[np.ndarray | None]) -> np.ndarray:
    recorded = [row for row in rows if row is not None]
    return np.stack(recorded) if recorded else np.zeros((0, 0), np.float32)

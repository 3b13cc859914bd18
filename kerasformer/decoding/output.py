"""What generation returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kerasformer.decoding.record import Record
from kerasformer.decoding.speculation_counts import SpeculationCounts


@dataclass(frozen=True)
class GenerationOutput:
    """Generated tokens, `num_return_sequences` after each other for each prompt.

    Attributes:
        sequences: New tokens of each sequence, int32, the end token included, without prompt and padding.
        finish_reasons: For each sequence `"eos"`, `"stop"` (a string or callback), `"length"`, `"capacity"`, `"time"`
            or `"cancelled"`; `"none"` where a prompt has fewer continuations than were asked for.
        sequence_scores: Beam search: `(B * num_return_sequences,)` float32, log-probability over length to the power
            `length_penalty`; otherwise `None`.
        record: What every token was chosen from, if that was to be recorded.
        speculation: What guessing ahead came to, if that was wanted.
    """

    sequences: list[np.ndarray]
    finish_reasons: list[str]
    sequence_scores: np.ndarray | None = None
    record: Record | None = field(default=None, repr=False)
    speculation: SpeculationCounts | None = None

    @property
    def scores(self) -> list[np.ndarray] | None:
        """For each sequence float32 `(N, V)`: the logits (beams: log-probabilities) that each token was chosen from.

        All rules and cuts are in them; what they forbid is minus infinity. `None` unless `output_scores` was set.
        """
        if self.record is None or not self.record.keeps_scores:
            return None
        return [_stacked([node.choice.scores for node in path]) for path in self.record.paths]

    @property
    def logits(self) -> list[np.ndarray] | None:
        """For each sequence float32 `(N, V)`: the model's logits for each token, before any rule.

        `None` unless `output_logits` was set.
        """
        if self.record is None or not self.record.keeps_logits:
            return None
        return [_stacked([node.choice.logits for node in path]) for path in self.record.paths]

    @property
    def log_probabilities(self) -> list[np.ndarray] | None:
        """For each sequence float32 `(N,)`: each token's log-probability in the model, before any rule.

        `None` without a record.
        """
        if self.record is None:
            return None
        return [np.array([node.log_probability for node in path], np.float32) for path in self.record.paths]


def _stacked(rows: Sequence[np.ndarray | None]) -> np.ndarray:
    kept = [row for row in rows if row is not None]
    return np.stack(kept) if kept else np.zeros((0, 0), np.float32)

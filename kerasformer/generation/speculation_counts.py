"""Statistics of speculative decoding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SpeculationCounts:
    """Statistics of a run with speculative decoding.

    Attributes:
        steps: Number of steps of the engine.
        guessed: Number of guessed tokens.
        accepted: Number of guessed tokens that were accepted.
    """

    steps: int = 0
    guessed: int = 0
    accepted: int = 0

    @property
    def acceptance(self) -> float:
        """Fraction of the guesses that were accepted; 0 if there were no guesses."""
        return self.accepted / self.guessed if self.guessed else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Average number of tokens per step, 1 without accepted guesses; 0 if there were no steps."""
        return (self.steps + self.accepted) / self.steps if self.steps else 0.0

"""What guessing ahead came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SpeculationCounts:
    """Counts of a run that guesses ahead.

    Attributes:
        steps: Times that the engine was asked.
        guessed: Tokens that were guessed.
        accepted: Of those, the ones that came true.
    """

    steps: int = 0
    guessed: int = 0
    accepted: int = 0

    @property
    def acceptance(self) -> float:
        """Share of the guesses that came true; 0 without any."""
        return self.accepted / self.guessed if self.guessed else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step gave on average, 1 without speculation; 0 if there was none."""
        return (self.steps + self.accepted) / self.steps if self.steps else 0.0

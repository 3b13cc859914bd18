"""How far to guess ahead: as far as it pays, judged by how often guesses came true of late."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

MEMORY = 0.97
"""What counts of earlier guesses after one more step."""

READING = 0.15
"""What one more token costs in a step, as a share of a step of one: that of GPT-2 124M in int8 on one thread of ONNX
Runtime, where arithmetic counts most. Elsewhere it was from 0.03 to 0.12: a failure costs less than is expected."""


class DraftLength:
    """Chooses how many tokens are guessed, so that the most tokens a second are expected.

    With `p` the share of guesses that came true of late, `g` of them are expected to give `1 + p + p^2 + ... + p^g`
    tokens in a step of `w > g` tokens, which takes `1 + READING * (w - 1)` times as long as a plain one, and `cost * g`
    to make them. Where guesses fail, plain steps are soon the better ones; as failures are forgotten, guesses are tried
    again now and then. No clock is read: the same run takes the same steps each time, also on an engine whose logits
    depend a little on their number.

    Args:
        lengths: How many tokens a step may read, ascending, 1 among them.
        cost: Of making a guess, as a share of a plain step.
        hope: What `p` is before anything was guessed.
    Reference: Leviathan et al. 2022, arXiv:2211.17192, sections 3.1 (expected tokens) and 3.3 (time).
    """

    def __init__(self, lengths: Sequence[int], cost: float, hope: float) -> None:
        self._lengths, self._cost, self._hope = lengths, cost, hope
        self._right = self._tried = 0.0

    def learn(self, right: bool) -> None:
        """A guess came true or did not."""
        self._right += right
        self._tried += 1

    def forget(self) -> None:
        """One more step: what was long ago counts less."""
        self._right *= MEMORY
        self._tried *= MEMORY

    def length(self, guesses: int) -> int:
        """Tokens of the step that reads so many guesses."""
        return self._lengths[bisect_right(self._lengths, guesses)]

    def guesses(self, most: int) -> int:
        """How many to guess, if at most so many are possible; `most` is below the greatest length."""
        hope = (self._right + 2 * self._hope) / (self._tried + 2)
        best, fastest = 0, 1.0
        tokens = power = 1.0
        for count in range(1, most + 1):
            power *= hope
            tokens += power
            speed = tokens / (1 + READING * (self.length(count) - 1) + self._cost * count)
            if speed > fastest:
                best, fastest = count, speed
        return best

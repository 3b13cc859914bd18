"""Adaptive number of draft tokens for speculative decoding."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

DECAY = 0.97
"""Factor by which the weight of earlier guesses decreases at each step."""

TOKEN_COST = 0.15
"""Estimated time that each additional token adds to a step, relative to a step of one token.

This is the ratio of GPT-2 124M in int8 on one thread of ONNX Runtime, where arithmetic dominates. It is smaller in
other engines, so that a rejected guess costs less than estimated."""


FIRST_LOSS, LOSS_PER_STEP = 1.2, 0.03
"""Time that rejected guesses may take, in plain steps: at the start of a text, and in addition for each step.

Together they are 5 % of a text of 60 tokens, and less of a longer one."""


class DraftLength:
    """Chooses the number of draft tokens that maximizes the expected number of tokens per second.

    With `p` the recent share of accepted guesses, `g` guesses give an expected `1 + p + p^2 + ... + p^g` tokens. The
    step of `w > g` tokens that checks them takes `1 + TOKEN_COST * (w - 1)` times as long as a plain step, and the
    guesses themselves take `cost * g`. When guesses are rejected, plain steps soon win; as the rejections decay,
    guesses are tried again. What they may cost is limited: the time of all guesses, less the steps that accepted ones
    have saved, is at most `FIRST_LOSS` and `LOSS_PER_STEP` for each step. The choice does not depend on measured time,
    so the same run always takes the same steps, even on an engine whose logits depend slightly on the number of tokens
    in a step.

    Args:
        lengths: Numbers of tokens that a step may read, ascending, including 1.
        cost: Cost of making a guess, relative to a plain step.
        expected_acceptance: Value of `p` before the first guess.

    Attributes:
        rows: Number of texts whose next tokens a plain step reads together. The steps that check guesses are made for
            each text alone, so that guesses rarely pay off beside other texts.

    Reference: Leviathan et al. 2022, arXiv:2211.17192, sections 3.1 (expected tokens) and 3.3 (time).
    """

    def __init__(self, lengths: Sequence[int], cost: float, expected_acceptance: float) -> None:
        self._lengths, self._cost, self._expected_acceptance = lengths, cost, expected_acceptance
        self._accepted = self._checked = 0.0
        self._affordable = FIRST_LOSS
        self.rows = 1

    def record_guess(self, accepted: bool) -> None:
        """Records whether a guess was accepted."""
        self._accepted += accepted
        self._checked += 1
        self._affordable += accepted * self._plain

    def record_step(self, guesses: int) -> None:
        """Records that a step checks this number of guesses."""
        self._affordable += LOSS_PER_STEP * self._plain
        if guesses:
            self._affordable -= self._time(guesses) - self._plain

    def decay(self) -> None:
        """Reduces the weight of all earlier guesses; called once per step."""
        self._accepted *= DECAY
        self._checked *= DECAY

    def length(self, guesses: int) -> int:
        """Returns the number of tokens of the step that checks `guesses` guesses."""
        return self._lengths[bisect_right(self._lengths, guesses)]

    @property
    def _plain(self) -> float:
        """Time of a plain step for one of `rows` texts, relative to a plain step of a text alone."""
        return (1 + TOKEN_COST * (self.rows - 1)) / self.rows

    def _time(self, guesses: int) -> float:
        """Time of a step that checks guesses, and of making them, relative to a plain step of a text alone."""
        return 1 + TOKEN_COST * (self.length(guesses) - 1) + self._cost * guesses

    def guesses(self, limit: int) -> int:
        """Returns the number of tokens to guess, at most `limit`, which must be below the greatest step length."""
        acceptance = (self._accepted + 2 * self._expected_acceptance) / (self._checked + 2)
        best, fastest = 0, 1 / self._plain
        tokens = power = 1.0
        for count in range(1, limit + 1):
            power *= acceptance
            tokens += power
            time = self._time(count)
            if tokens / time > fastest and time - self._plain <= self._affordable:
                best, fastest = count, tokens / time
        return best

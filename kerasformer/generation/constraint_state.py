"""Protocol of the state of a constraint after some tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class ConstraintState(Protocol):
    """State of a constrained text that can be continued."""

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        ...

    @property
    def allowed(self) -> np.ndarray:
        """`(N,)` boolean, true for tokens that may follow; false for end tokens. Ids from `N` on are forbidden."""
        ...

    @property
    def ending(self) -> Sequence[int] | None:
        """A short sequence of tokens that completes the text, empty if it is complete; `None` if none was found."""
        ...

    def after(self, token: int) -> ConstraintState | EndedState:
        """Returns the state after one more token, which is not an end token."""
        ...

    def completes(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens complete the text."""
        ...

    def __str__(self) -> str:
        """Describes what may follow, for error messages."""
        ...


@dataclass(frozen=True)
class EndedState:
    """State of a text that cannot be continued.

    Attributes:
        valid: Whether the text was complete when its end token came; otherwise it violates the constraint.
    """

    valid: bool

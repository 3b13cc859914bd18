"""Where a text stands among those that are allowed: what a constraint asks at every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class ConstraintState(Protocol):
    """The place after some tokens, from which an allowed text goes on."""

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        ...

    @property
    def allowed(self) -> np.ndarray:
        """`(N,)` true for tokens that may follow; none from `N` on may, and no end token is among them."""
        ...

    @property
    def ending(self) -> Sequence[int] | None:
        """Few tokens that complete the text, none if it is complete; `None` if no way was found."""
        ...

    def after(self, token: int) -> ConstraintState | Closed:
        """The place after one more token, which is no end token."""
        ...

    def completes(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens complete the text."""
        ...

    def __str__(self) -> str:
        """What may follow, for a message."""
        ...


@dataclass(frozen=True)
class Closed:
    """The place of a text that does not go on.

    Attributes:
        well: An end token came where the text was complete; otherwise the text is none of those that are allowed.
    """

    well: bool

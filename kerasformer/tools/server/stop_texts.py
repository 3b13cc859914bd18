"""Ending of a text before a stop sequence, which is not part of an answer."""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """Passes a text on piece by piece up to the first stop sequence.

    The end of a piece that may be the beginning of a stop sequence is held back until it is known.

    Args:
        stops: Stop sequences, none of them empty.

    Attributes:
        found: Whether a stop sequence was found; nothing is passed on after it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.found = False
        self._stops, self._held = stops, ""

    def put(self, piece: str) -> str:
        """Returns the text that can be passed on after another piece."""
        if self.found:
            return ""
        text = self._held + piece
        starts = [start for start in (text.find(stop) for stop in self._stops) if start >= 0]
        if starts:
            self.found, self._held = True, ""
            return text[: min(starts)]
        kept = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def end(self) -> str:
        """Returns the text that was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of a text that is a beginning of a stop sequence."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)

"""Text of tokens that arrive one after another, without ever showing half a character.

A token is not always text: a byte-level token may hold two of the three bytes of `€`, a space may belong to the token
that follows. So the recent tokens are decoded together, and only what no later token can change is given out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# Enough context for a decoder that treats the first token of a text in its own way.
_CONTEXT = 4
_WINDOW = 32
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# The longest pattern that the clean-up of spaces replaces has four characters; one more for what it leaves.
_CLEAN_UP_REACH = 5


class TextStream:
    """Decodes ids as they come; the pieces together equal the decoded whole.

    Args:
        decode: Ids to text, special tokens included.
        token: Id to its token, or `None` for an id that is left out.
        byte_fallback: Tokens such as `<0xE2>` are bytes, and a run of them becomes text only as a whole.
        cleans_spaces: `decode` also removes spaces before punctuation.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        token: Callable[[int], str | None],
        byte_fallback: bool = False,
        cleans_spaces: bool = False,
    ) -> None:
        self._decode = decode
        self._token = token
        self._byte_fallback = byte_fallback
        self._cleans_spaces = cleans_spaces
        self._ids: list[int] = []
        self._sent = 0

    def put(self, ids: Sequence[int]) -> str:
        """Takes the next tokens and returns the text that is now certain, `""` if none is."""
        self._ids += [int(token_id) for token_id in ids if self._token(int(token_id)) is not None]
        text = self._decode(self._ids)
        certain = min(self._certain(text), len(text))
        piece = text[self._sent : certain]
        self._sent = max(self._sent, certain)
        if certain == len(text) and len(self._ids) > _WINDOW:
            # Everything was given out: what comes next depends on the last tokens alone.
            self._ids = self._ids[-_CONTEXT:]
            self._sent = len(self._decode(self._ids))
        return piece

    def end(self) -> str:
        """Returns what was held back, and makes the stream ready for another text."""
        piece = self._decode(self._ids)[self._sent :]
        self._ids, self._sent = [], 0
        return piece

    def _certain(self, text: str) -> int:
        """Characters of `text` that no later token changes."""
        if self._byte_fallback:
            run = len(self._ids)
            while run > 0 and _BYTE_TOKEN.fullmatch(self._token(self._ids[run - 1]) or ""):
                run -= 1
            if run < len(self._ids):
                return len(self._decode(self._ids[:run]))
        # U+FFFD at the end stands for the first bytes of a character whose last ones may still come.
        certain = len(text) - 1 if text.endswith("\ufffd") else len(text)
        if self._cleans_spaces:
            space = text.find(" ", max(certain - _CLEAN_UP_REACH, 0), certain)
            certain = certain if space < 0 else space
        return certain

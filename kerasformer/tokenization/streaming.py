"""Incremental decoding of tokens, without incomplete characters.

A token is not always a complete text: a byte-level token may contain two of the three bytes of `€`, and a space may
depend on the following token. The recent tokens are therefore decoded together, and only text that no later token can
change is returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# Number of tokens that are kept as context for decoders that treat the first token of a text differently.
_CONTEXT = 4
# Number of tokens above which earlier tokens are dropped.
_MAX_TOKENS = 32
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# The longest pattern of the clean-up of spaces has four characters; one more, as a replacement may complete a pattern.
_CLEAN_UP_LENGTH = 5


class TextStream:
    """Decodes ids incrementally; the concatenated pieces equal the text of all ids decoded at once.

    Args:
        decode: Converts ids to text, including special tokens.
        token: Converts an id to its token, or to `None` for an id to skip.
        byte_fallback: Whether tokens such as `<0xE2>` are bytes, so that a run of them must be decoded as a whole.
        cleans_spaces: Whether `decode` also removes spaces before punctuation.
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
        self._returned = 0

    def put(self, ids: Sequence[int]) -> str:
        """Adds tokens and returns the text that has become final, `""` if there is none."""
        self._ids += [int(token_id) for token_id in ids if self._token(int(token_id)) is not None]
        text = self._decode(self._ids)
        length = min(self._final_length(text), len(text))
        piece = text[self._returned : length]
        self._returned = max(self._returned, length)
        if length == len(text) and len(self._ids) > _MAX_TOKENS:
            # All text was returned, so that later text depends on the last tokens only.
            self._ids = self._ids[-_CONTEXT:]
            self._returned = len(self._decode(self._ids))
        return piece

    def end(self) -> str:
        """Returns the remaining text and resets the stream for another text."""
        piece = self._decode(self._ids)[self._returned :]
        self._ids, self._returned = [], 0
        return piece

    def _final_length(self, text: str) -> int:
        """Returns the number of characters of `text` that no later token can change."""
        if self._byte_fallback:
            run_start = len(self._ids)
            while run_start > 0 and _BYTE_TOKEN.fullmatch(self._token(self._ids[run_start - 1]) or ""):
                run_start -= 1
            if run_start < len(self._ids):
                return len(self._decode(self._ids[:run_start]))
        # U+FFFD at the end may be the first bytes of a character that later tokens complete.
        length = len(text) - 1 if text.endswith("\ufffd") else len(text)
        if self._cleans_spaces:
            space = text.find(" ", max(length - _CLEAN_UP_LENGTH, 0), length)
            length = length if space < 0 else space
        return length

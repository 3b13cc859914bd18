"""SentencePiece's rules of normalization, made of what a tokenizer of our own does with each character."""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from kerasformer.export.formats.saved_model.double_array import double_array


def charsmap(normalizer: Any, longer: Iterable[str] = ()) -> bytes:
    """The rules as a SentencePiece model holds them: a trie from spellings to normal forms, and these.

    Args:
        normalizer: Of the `tokenizers` library; it looks at one character at a time, but for `longer`.
        longer: Spellings of several characters that it replaces as a whole.
    """
    forms, places, values = bytearray(), dict[str, int](), dict[bytes, int]()
    for spelling in (*_characters(), *longer):
        normal = " " if spelling.isspace() else normalizer.normalize_str(spelling)
        if normal == spelling:
            continue
        if normal not in places:
            places[normal] = len(forms)
            forms += normal.encode() + b"\0"
        values[spelling.encode()] = places[normal]
    trie = double_array(values).astype("<u4").tobytes()
    return struct.pack("<I", len(trie)) + trie + bytes(forms)


def _characters() -> Iterator[str]:
    """All that texts have; the one of code 0 ends a form."""
    return (chr(code) for code in range(1, 0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs"))

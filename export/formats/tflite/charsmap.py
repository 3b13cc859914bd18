"""Normalization rules of SentencePiece, derived from what a `tokenizers` normalizer does with each character."""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kerasformer.export.formats.saved_model.double_array import double_array

if TYPE_CHECKING:
    import tokenizers


def charsmap(normalizer: tokenizers.normalizers.Normalizer, longer: Iterable[str] = ()) -> bytes:
    """Returns the rules in the format of a SentencePiece model: a trie of inputs, followed by their normal forms.

    Args:
        normalizer: Normalizer of the `tokenizers` library. It must treat each character separately, except in `longer`.
        longer: Strings of several characters that it replaces as a whole.
    """
    forms, offsets, values = bytearray(), dict[str, int](), dict[bytes, int]()
    for text in (*_characters(), *longer):
        normal = " " if text.isspace() else normalizer.normalize_str(text)
        if normal == text:
            continue
        if normal not in offsets:
            offsets[normal] = len(forms)
            forms += normal.encode() + b"\0"
        values[text.encode()] = offsets[normal]
    trie = double_array(values).astype("<u4").tobytes()
    return struct.pack("<I", len(trie)) + trie + bytes(forms)


def _characters() -> Iterator[str]:
    """Yields all assigned characters except U+0000, which terminates a normal form."""
    return (chr(code) for code in range(1, 0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs"))

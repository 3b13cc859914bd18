"""Search for a short text that completes an incomplete text of a grammar."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from llguidance import LLMatcher

_FREE = 64
"""Number of allowed bytes above which the grammar is considered to be in free text, which rarely leads to an end."""


def _ranks(*groups: str) -> list[int]:
    """Returns the rank of each of the 256 bytes in the concatenated groups; bytes in no group have the last rank."""
    order = "".join(groups)
    return [order.index(chr(byte)) if chr(byte) in order else len(order) for byte in range(256)]


_CLOSING = _ranks("}])>\"'", ":,;.!?=/|&_+-", string.digits, string.ascii_letters, "({[<", " \n\t\r")
"""Preference of bytes that may lead to an end: closing characters, separators, text, opening characters, whitespace."""
_FILLING = _ranks("a0 ", string.ascii_letters, string.digits)
"""Preference of bytes if no byte changes what may follow, such as within a minimum length."""


def ending(parser: LLMatcher, limit: int) -> bytes | None:
    """Returns a short sequence of bytes that completes the text, not necessarily the shortest.

    Args:
        parser: `LLMatcher` over single bytes.
        limit: Maximum number of bytes.
    Returns:
        The bytes, `b""` if the text is complete, or `None` if no ending was found.
    """
    text = bytearray()
    may_follow = parser.compute_bitmask()
    while not parser.is_accepting():
        choices = _bytes_of(may_follow)
        if len(text) == limit or not choices:
            return None
        byte, parser, may_follow = _next(parser, may_follow, choices)
        text.append(byte)
    return bytes(text)


def _next(parser: LLMatcher, may_follow: bytes, choices: list[int]) -> tuple[int, LLMatcher, bytes]:
    """Returns the most promising byte, the parser after it, and the mask of the bytes that may follow it.

    The best byte completes the text. Next best is a byte after which few bytes may follow, and not the same ones as
    before, for example after a string was closed or a key completed. Otherwise a filling byte is used.
    """
    best: tuple[Any, ...] = ()
    for byte in choices:
        after = parser.deep_copy()
        after.try_consume_tokens([byte])
        mask = after.compute_bitmask()
        same, free = mask == may_follow, int.from_bytes(mask, "little").bit_count() > _FREE
        key = (not after.is_accepting(), same or free, same, (_FILLING if same else _CLOSING)[byte])
        if not best or key < best[0]:
            best = key, byte, after, mask
        if len(choices) > _FREE and not key[1]:
            break  # good enough: in free text, few bytes complete the whole text
    return best[1:]


def _bytes_of(may_follow: bytes) -> list[int]:
    """Returns the bytes of a mask, closing ones first; non-ASCII bytes and backslashes only if there are no others."""
    allowed = np.flatnonzero(np.unpackbits(np.frombuffer(may_follow, np.uint8), bitorder="little")[:256]).tolist()
    plain = [byte for byte in allowed if byte < 128 and byte != ord("\\")]
    return sorted(plain or allowed, key=_CLOSING.__getitem__)

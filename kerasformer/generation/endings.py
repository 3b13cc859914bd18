"""A short way to end a text that a grammar has begun, for when only few tokens are left."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

_FREE = 64
"""Where more bytes than this may follow, there is free text, which leads nowhere soon."""


def _ranks(*groups: str) -> list[int]:
    """The place of each of the 256 bytes in these groups; bytes that are in none of them come after all."""
    order = "".join(groups)
    return [order.index(chr(byte)) if chr(byte) in order else len(order) for byte in range(256)]


_CLOSING = _ranks("}])>\"'", ":,;.!?=/|&_+-", string.digits, string.ascii_letters, "({[<", " \n\t\r")
"""What ends something, before what separates, before text, before what begins something."""
_FILLING = _ranks("a0 ", string.ascii_letters, string.digits)
"""What fills a place that must hold more."""


def ending(parser: Any, limit: int) -> bytes | None:
    """Bytes after which the text is complete: few, though not always the fewest.

    Args:
        parser: An `LLMatcher` over single bytes.
        limit: Most bytes.
    Returns:
        The bytes, `b""` if the text is complete; `None` if no end was found.
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


def _next(parser: Any, may_follow: bytes, choices: list[int]) -> tuple[int, Any, bytes]:
    """The byte that leads on best, the parser after it, and what may follow then.

    Best is a byte that ends the text, then one after which little may follow, and other things than before: a string
    was closed, a key was said. If all leave everything as it is, one that fills.
    """
    best: tuple[Any, ...] = ()
    for byte in choices:
        after = parser.deep_copy()
        after.try_consume_tokens([byte])
        then = after.compute_bitmask()
        same, free = then == may_follow, int.from_bytes(then, "little").bit_count() > _FREE
        key = (not after.is_accepting(), same or free, same, (_FILLING if same else _CLOSING)[byte])
        if not best or key < best[0]:
            best = key, byte, after, then
        if len(choices) > _FREE and not key[1]:
            break  # in free text, which seldom ends the whole
    return best[1:]


def _bytes_of(may_follow: bytes) -> list[int]:
    """The bytes of a mask, closing ones first; those that begin a longer character only if there is nothing else."""
    allowed = np.flatnonzero(np.unpackbits(np.frombuffer(may_follow, np.uint8), bitorder="little")[:256]).tolist()
    plain = [byte for byte in allowed if byte < 128 and byte != ord("\\")]
    return sorted(plain or allowed, key=_CLOSING.__getitem__)

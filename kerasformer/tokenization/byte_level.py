"""Characters that represent bytes in byte-level vocabularies."""

from __future__ import annotations

_PRINTED_BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHER_BYTES = [byte for byte in range(256) if byte not in _PRINTED_BYTES]
BYTE_CHARACTERS = {chr(byte): byte for byte in _PRINTED_BYTES} | {
    chr(0x100 + index): byte for index, byte in enumerate(_OTHER_BYTES)
}
"""Bytes by the characters that represent them. Source: GPT-2's `bytes_to_unicode`."""


def characters() -> list[str]:
    """Returns the characters in the order of their bytes."""
    return sorted(BYTE_CHARACTERS, key=BYTE_CHARACTERS.__getitem__)


def to_bytes(token: str) -> bytes:
    """Returns the bytes that a token of a byte-level vocabulary represents."""
    return bytes(BYTE_CHARACTERS[character] for character in token)

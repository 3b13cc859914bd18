"""Readable representation of tokens, with visible whitespace and incomplete characters as bytes."""

from __future__ import annotations

from kerasformer.tokenization import Tokenizer

_PRINTED_BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHER_BYTES = [byte for byte in range(256) if byte not in _PRINTED_BYTES]
BYTE_CHARACTERS = {chr(byte): byte for byte in _PRINTED_BYTES} | {
    chr(0x100 + index): byte for index, byte in enumerate(_OTHER_BYTES)
}
"""Characters that represent bytes in a byte-level vocabulary. Source: GPT-2's `bytes_to_unicode`."""

_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"})


def visible(text: str) -> str:
    """Replaces whitespace by visible symbols and unprintable characters by their codes."""
    translated = text.translate(_VISIBLE)
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in translated)


def readable_token(tokenizer: Tokenizer, token: int) -> str:
    r"""Returns a readable token: `␣the`, `ing`, `</s>`, `\xe2` for part of a character, `[50300]` for an unknown id."""
    name = tokenizer.id_to_token(token)
    if name is None:
        return f"[{token}]"
    if token in tokenizer.all_special_ids:
        return name
    text = tokenizer.decode([token])
    if "\ufffd" in text and all(char in BYTE_CHARACTERS for char in name):
        text = bytes(BYTE_CHARACTERS[char] for char in name).decode(errors="backslashreplace")
    elif name.startswith("▁") and not text.startswith(" "):  # a SentencePiece decoder drops a leading space
        text = " " + text
    return visible(text or name)

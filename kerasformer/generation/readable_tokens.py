"""Tokens as a reader sees them: with their spaces, half characters as bytes."""

from __future__ import annotations

from kerasformer.tokenization import Tokenizer

_PRINTED_BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHER_BYTES = [byte for byte in range(256) if byte not in _PRINTED_BYTES]
BYTE_LETTERS = {chr(byte): byte for byte in _PRINTED_BYTES} | {
    chr(0x100 + place): byte for place, byte in enumerate(_OTHER_BYTES)
}
"""How a byte-level vocabulary spells bytes. Source: GPT-2's `bytes_to_unicode`."""

_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"})


def visible(text: str) -> str:
    """Text in one line: spaces and breaks as signs, what cannot be printed as its code."""
    shown = text.translate(_VISIBLE)
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in shown)


def readable_token(tokenizer: Tokenizer, token: int) -> str:
    r"""One token, readable: `␣the`, `ing`, `</s>`, `\xe2` for a part of a character, `[50300]` if it has no name."""
    name = tokenizer.id_to_token(token)
    if name is None:
        return f"[{token}]"
    if token in tokenizer.all_special_ids:
        return name
    text = tokenizer.decode([token])
    if "\ufffd" in text and all(letter in BYTE_LETTERS for letter in name):
        text = bytes(BYTE_LETTERS[letter] for letter in name).decode(errors="backslashreplace")
    elif name.startswith("▁") and not text.startswith(" "):  # a SentencePiece decoder drops a text's first space
        text = " " + text
    return visible(text or name)

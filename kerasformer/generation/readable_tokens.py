"""Readable representation of tokens, with visible whitespace and incomplete characters as bytes."""

from __future__ import annotations

from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.byte_level import BYTE_CHARACTERS, to_bytes

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
    if ("\ufffd" in text or not text) and all(char in BYTE_CHARACTERS for char in name):
        text = to_bytes(name).decode(errors="backslashreplace")
    elif name.startswith("▁") and not text.startswith(" "):  # a SentencePiece decoder drops a leading space
        text = " " + text
    return visible(text or name)

"""What the tokens of a vocabulary spell, as bytes, which a grammar reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import decoders

from kerasformer.errors import TokenizerError
from kerasformer.generation.readable_tokens import BYTE_LETTERS
from kerasformer.tokenization import Tokenizer

_SPACE = "▁"


@dataclass(frozen=True)
class TokenBytes:
    """The bytes of each token.

    Attributes:
        tokens: Of each id; empty for special tokens, which are no text, and for ids that no token has.
        special: Ids of special tokens.
        eats_space: Decoding drops a space that the first token begins with, as SentencePiece has it.
    """

    tokens: tuple[bytes, ...]
    special: tuple[int, ...]
    eats_space: bool

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """Ids of the tokens that spell something; of several alike the first."""
        ids: dict[bytes, int] = {}
        for index, token in enumerate(self.tokens):
            if token:
                ids.setdefault(token, index)
        return ids

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max(map(len, self.tokens), default=0)

    def text(self, token: int) -> bytes:
        """What a token spells, `b""` if that is nothing."""
        return self.tokens[token] if token < len(self.tokens) else b""

    def spell(self, text: bytes) -> list[int] | None:
        """Ids of tokens that together spell a text, the longest first; `None` if the vocabulary lacks a letter."""
        ids: list[int] = []
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self.longest), start, -1)
            end = next((end for end in ends if text[start:end] in self.ids), None)
            if end is None:
                return None
            ids.append(self.ids[text[start:end]])
            start = end
        return ids


def token_bytes_of(tokenizer: Tokenizer) -> TokenBytes:
    """Reads the vocabulary of a tokenizer whose tokens are pieces of text.

    Raises:
        TokenizerError: its tokens are decoded in another way, so that they spell no text of their own (WordPiece).
    """
    backend = tokenizer.backend
    decoder = backend.decoder
    byte_level = isinstance(decoder, decoders.ByteLevel)
    if not byte_level and not _marks_spaces(decoder):
        raise TokenizerError(
            "Constrained text needs tokens that are pieces of text: byte-level BPE or SentencePiece. "
            f"Received: {type(backend.model).__name__} with the decoder {type(decoder).__name__}."
        )
    added = backend.get_added_tokens_decoder()
    special = tuple(index for index, token in sorted(added.items()) if token.special)
    tokens = [b""] * (max(tokenizer.get_vocab().values()) + 1)
    for token, index in tokenizer.get_vocab().items():
        if index in added:
            tokens[index] = b"" if index in special else token.encode()
        elif byte_level:
            tokens[index] = bytes(BYTE_LETTERS[letter] for letter in token if letter in BYTE_LETTERS)
        else:
            tokens[index] = _piece(token)
    return TokenBytes(tuple(tokens), special, eats_space=not byte_level)


def _marks_spaces(decoder: Any) -> bool:
    """Whether a decoder turns `▁` into spaces: SentencePiece, in one of the forms that `tokenizers` knows."""
    return decoder is not None and _SPACE in json.dumps(json.loads(decoder.__getstate__()), ensure_ascii=False)


def _piece(token: str) -> bytes:
    """A piece of SentencePiece: `▁` is a space, `<0x0A>` a byte."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace(_SPACE, " ").encode()

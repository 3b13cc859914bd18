"""The bytes of the tokens of a vocabulary, for grammars."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tokenizers import decoders

from kerasformer.errors import TokenizerError
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.byte_level import BYTE_CHARACTERS

if TYPE_CHECKING:
    import tokenizers

_SPACE = "▁"


@dataclass(frozen=True)
class TokenBytes:
    """The bytes of each token.

    Attributes:
        tokens: Bytes of each id; empty for special tokens and unused ids.
        special: Ids of special tokens.
        drops_space: Whether decoding drops a space at the start of the first token, as in SentencePiece.
    """

    tokens: tuple[bytes, ...]
    special: tuple[int, ...]
    drops_space: bool

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """Lowest id of each non-empty sequence of bytes."""
        ids: dict[bytes, int] = {}
        for index, token in enumerate(self.tokens):
            if token:
                ids.setdefault(token, index)
        return ids

    @cached_property
    def max_length(self) -> int:
        """Length of the longest token in bytes."""
        return max(map(len, self.tokens), default=0)

    def text(self, token: int) -> bytes:
        """Returns the bytes of a token, `b""` if it has none."""
        return self.tokens[token] if token < len(self.tokens) else b""

    def encode(self, text: bytes) -> list[int] | None:
        """Tokenizes a text, always taking the longest token; returns `None` if the vocabulary lacks a byte."""
        ids: list[int] = []
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self.max_length), start, -1)
            end = next((end for end in ends if text[start:end] in self.ids), None)
            if end is None:
                return None
            ids.append(self.ids[text[start:end]])
            start = end
        return ids


def token_bytes_of(tokenizer: Tokenizer) -> TokenBytes:
    """Returns the bytes of the tokens of a tokenizer.

    Raises:
        TokenizerError: the tokens do not correspond to pieces of text, as in WordPiece.
    """
    backend = tokenizer.backend
    decoder = backend.decoder
    byte_level = isinstance(decoder, decoders.ByteLevel)
    if not byte_level and not _marks_spaces(decoder):
        raise TokenizerError(
            "Constrained generation requires tokens that are pieces of text (byte-level BPE or SentencePiece). "
            f"Received: {type(backend.model).__name__} with the decoder {type(decoder).__name__}."
        )
    added = backend.get_added_tokens_decoder()
    special = tuple(index for index, token in sorted(added.items()) if token.special)
    tokens = [b""] * (max(tokenizer.get_vocab().values()) + 1)
    for token, index in tokenizer.get_vocab().items():
        if index in added:
            tokens[index] = b"" if index in special else token.encode() if byte_level else _added(decoder, token)
        elif byte_level:
            tokens[index] = bytes(BYTE_CHARACTERS[char] for char in token if char in BYTE_CHARACTERS)
        else:
            tokens[index] = _piece(token)
    return TokenBytes(tuple(tokens), special, drops_space=not byte_level)


def _marks_spaces(decoder: tokenizers.decoders.Decoder | None) -> bool:
    """Whether a decoder converts `▁` to spaces, as all decoders for SentencePiece do."""
    return decoder is not None and _SPACE in json.dumps(json.loads(decoder.__getstate__()), ensure_ascii=False)


def _added(decoder: tokenizers.decoders.Decoder, token: str) -> bytes:
    """Returns the bytes of an added token within a text; one may stand for a line break."""
    return str(decoder.decode(["a", token, "a"])).removeprefix("a").removesuffix("a").encode()


def _piece(token: str) -> bytes:
    """Converts a SentencePiece token to bytes: `▁` is a space, `<0x0A>` a byte."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace(_SPACE, " ").encode()

"""Base of tokenizers whose words are found by Python code, because `tokenizer.json` cannot express their rules.

Words are split into pieces by byte-pair encoding here; the Rust library looks up the pieces and adds special tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import tokenizers

from kerasformer.tokenization.backends import END
from kerasformer.tokenization.encoding import ChangedEncoding
from kerasformer.tokenization.tokenizer import Tokenizer
from kerasformer.tokenization.vocabulary import flat_ids

CONTINUED = "@@"
"""Suffix of the pieces of a word in some vocabularies, except for the last."""

Span = tuple[int, int]
"""Start and end in a text, in characters."""

_WORD = re.compile(r"\S+\n?")


@dataclass(frozen=True)
class Piece:
    """A part of a word that is a token of the vocabulary, or unknown.

    Attributes:
        token: The piece, as in the vocabulary.
        span: Its part of the text.
        word: Index of the word in the text.
    """

    token: str
    span: Span
    word: int


class PieceTokenizer(Tokenizer):
    """Tokenizer that finds words and their pieces itself.

    Args:
        backend: Tokenizer of the `tokenizers` library that looks up pieces and adds special tokens.
        merges: Pairs of pieces to merge, in their order of priority.
        inner_suffix: Suffix of the pieces of a word in the vocabulary, except for its last.
        last_suffix: Suffix of the last piece of a word in the vocabulary.
        kwargs: Arguments of `Tokenizer`.
    """

    portable = False

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        merges: Sequence[tuple[str, ...]],
        inner_suffix: str = "",
        last_suffix: str = END,
        **kwargs: Any,
    ) -> None:
        super().__init__(backend, **kwargs)
        self._merges = list(merges)
        ranks = {pair: rank for rank, pair in enumerate(self._merges)}

        def pieces(word: str) -> list[tuple[str, int]]:
            *inner, last = byte_pairs(word, ranks)
            last = last.removesuffix(END)
            return [*((part + inner_suffix, len(part)) for part in inner), (last + last_suffix, len(last))]

        self._bpe = lru_cache(50_000)(pieces)
        known = {} if self.split_special_tokens else backend.get_added_tokens_decoder()
        added = sorted(known.values(), key=lambda token: -len(token.content))
        spaces = {True: r"\s*", False: ""}
        patterns = [f"{spaces[token.lstrip]}({re.escape(token.content)}){spaces[token.rstrip]}" for token in added]
        self._added = re.compile("|".join(patterns))

    def words(self, text: str) -> Iterator[tuple[str, Sequence[Span]]]:
        """Yields the words of a text without added tokens, and the part of the text of each of their characters."""
        raise NotImplementedError

    def _encode_batch(
        self, inputs: list[tokenizers.EncodeInput], add_special_tokens: bool, split: bool = False
    ) -> list[tokenizers.Encoding]:
        rows = [
            [self._pieces(text, split) for text in (each if isinstance(each, tuple) else (each,))] for each in inputs
        ]
        words = [tuple([piece.token for piece in text] for text in row) for row in rows]
        batch = [row if len(row) == 2 else row[0] for row in words]
        encoded = self._encode(batch, add_special_tokens, split=True)
        return [_spanned(encoding, row) for encoding, row in zip(encoded, rows, strict=True)]

    def _pieces(self, text: str | Sequence[str], split: bool) -> list[Piece]:
        """Returns the pieces of a text; of a list of words, with spans in the word."""
        if split:
            given = enumerate(text)
            return [Piece(each.token, each.span, index) for index, word in given for each in self._pieces(word, False)]
        whole = cast(str, text)
        pieces: list[Piece] = []
        word = 0
        for start, end, added in self._parts(whole):
            if added is not None:
                pieces.append(Piece(added, (start, end), word))
                word += 1
                continue
            for characters, spans in self.words(whole[start:end]):
                first = 0
                for token, length in self._bpe(characters):
                    word_spans = spans[first : first + length]
                    pieces.append(Piece(token, (start + word_spans[0][0], start + word_spans[-1][1]), word))
                    first += length
                word += 1
        return pieces

    def _parts(self, text: str) -> Iterator[tuple[int, int, str | None]]:
        """Yields start and end of added tokens, with their content, and of the parts between them."""
        end = 0
        for match in self._added.finditer(text) if self._added.pattern else ():
            yield end, match.start(), None
            group = next(index for index, content in enumerate(match.groups(), 1) if content is not None)
            yield *match.span(group), match.group(group)
            end = match.end()
        yield end, len(text), None


class ContinuedPieceTokenizer(PieceTokenizer):
    """Tokenizer whose words are separated by spaces, and whose pieces of a word end in `@@`, except for the last.

    Args:
        backend: As in `PieceTokenizer`.
        kwargs: Arguments of `PieceTokenizer`, without the suffixes.
    """

    def __init__(self, backend: tokenizers.Tokenizer, **kwargs: Any) -> None:
        super().__init__(backend, inner_suffix=CONTINUED, last_suffix="", **kwargs)

    def words(self, text: str) -> Iterator[tuple[str, Sequence[Span]]]:
        """See `PieceTokenizer.words`; a word before a line end includes it."""
        for match in _WORD.finditer(text):
            yield match.group(), [(index, index + 1) for index in range(*match.span())]

    def decode(self, ids: Sequence[int] | np.ndarray, skip_special_tokens: bool = False) -> str:
        """See `Tokenizer.decode`."""
        skipped = set(self.all_special_ids) if skip_special_tokens else set()
        tokens = [self.backend.id_to_token(index) or "" for index in flat_ids(ids) if index not in skipped]
        return " ".join(filter(None, tokens)).replace(f"{CONTINUED} ", "").strip()


def _spanned(encoding: tokenizers.Encoding, texts: Sequence[Sequence[Piece]]) -> tokenizers.Encoding:
    """Returns an encoding of pieces, each of which is a word to the Rust library, with their spans and words."""
    pairs = zip(encoding.sequence_ids, encoding.word_ids, strict=True)
    pieces = [None if text is None or index is None else texts[text][index] for text, index in pairs]
    offsets = [(0, 0) if piece is None else piece.span for piece in pieces]
    word_ids = [None if piece is None else piece.word for piece in pieces]
    return cast(tokenizers.Encoding, ChangedEncoding(encoding, offsets=offsets, word_ids=word_ids))


def byte_pairs(word: str, ranks: Mapping[tuple[str, ...], int]) -> list[str]:
    """Merges the characters of a word to pieces, the pair of the lowest rank first; the last piece ends in `</w>`.

    Reference: Sennrich et al. 2016, arXiv:1508.07909.
    """
    pieces = [*word[:-1], word[-1] + END]
    while len(pieces) > 1:
        best = min(zip(pieces, pieces[1:], strict=False), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        merged: list[str] = []
        for piece in pieces:
            if merged and (merged[-1], piece) == best:
                merged[-1] += piece
            else:
                merged.append(piece)
        pieces = merged
    return pieces

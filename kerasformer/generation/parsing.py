"""Where a text stands in its grammar, token by token, by the parsers of `llguidance`."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kerasformer.errors import GenerationError, require
from kerasformer.generation.endings import ending
from kerasformer.generation.letters import Spelling, spelling_of
from kerasformer.generation.places import Closed
from kerasformer.tokenization import Tokenizer

_LONGEST_ENDING = 256
"""Bytes of an ending that is searched for."""


class Vocabulary:
    """A vocabulary as `llguidance` takes it.

    Args:
        spelling: What its tokens spell.
    """

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        single = [bytes([byte]) for byte in range(256)]
        # In the search of endings, letters that the vocabulary lacks do not exist; bytes of longer ones are tried.
        known = [byte if byte in spelling.ids or byte[0] >= 128 else b"" for byte in single]
        self._tokens, self._letters = _tokenizer(spelling.tokens), _tokenizer(known)

    def begin(self, grammar: str, name: str) -> Parsed:
        """The place before the first token.

        Args:
            grammar: In the JSON form of `llguidance`.
            name: What asked for it, for the message.
        Raises:
            GenerationError: the library refuses the grammar.
        """
        library = require("llguidance", "grammar")
        limits = library.LLParserLimits(verbose_errors=False)
        parser, letters = (
            library.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
            for tokenizer in (self._tokens, self._letters)
        )
        if parser.is_error():
            raise GenerationError(f"{name} cannot be followed: {_reason(parser)}")
        return Parsed(parser, letters, self)


@dataclass
class Parsed:
    """The place that parsers have reached; see `Place`.

    Attributes:
        parser: Over the tokens of the model.
        letters: Over single bytes, for the search of an ending.
        vocabulary: Of the model.
    """

    parser: Any
    letters: Any
    vocabulary: Vocabulary

    @cached_property
    def complete(self) -> bool:
        """See `Place.complete`."""
        return bool(self.parser.is_accepting())

    @cached_property
    def allowed(self) -> np.ndarray:
        """See `Place.allowed`.

        Raises:
            GenerationError: the library gave up.
        """
        bits = np.frombuffer(self.parser.compute_bitmask(), np.uint8)
        if self.parser.is_error() and "NoExtension" not in self.parser.get_error():
            raise GenerationError(f"the grammar cannot be followed any more: {_reason(self.parser)}")
        count = len(self.vocabulary.spelling.tokens)
        return np.unpackbits(bits, bitorder="little", count=count).view(bool)

    @cached_property
    def ending(self) -> list[int] | None:
        """See `Place.ending`."""
        text = ending(self.letters, _LONGEST_ENDING)
        return None if text is None else self.vocabulary.spelling.spell(text)

    def after(self, token: int) -> Parsed | Closed:
        """See `Place.after`."""
        text = self.vocabulary.spelling.text(token)
        parser, letters = self.parser.deep_copy(), self.letters.deep_copy()
        if not text or not parser.try_consume_tokens([token]):
            return Closed(well=False)
        letters.try_consume_tokens(list(text))
        return Parsed(parser, letters, self.vocabulary)

    def completes(self, tokens: Sequence[int]) -> bool:
        """See `Place.completes`."""
        parser = self.parser.deep_copy()
        return bool(parser.try_consume_tokens(list(tokens)) == len(tokens) and parser.is_accepting())

    def __str__(self) -> str:
        tokens = np.flatnonzero(self.allowed)
        texts = [repr(self.vocabulary.spelling.tokens[token].decode(errors="replace")) for token in tokens[:3]]
        parts = [", ".join(texts) + (f" or {len(tokens) - 3} other tokens" if len(tokens) > 3 else "")]
        parts.append("the end" if self.complete else "")
        return " or ".join(filter(None, parts))


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """A tokenizer's vocabulary, prepared once.

    Raises:
        TokenizerError: its tokens spell no text.
        MissingExtraError: `llguidance` is not installed.
    """
    if tokenizer not in _VOCABULARIES:
        _VOCABULARIES[tokenizer] = Vocabulary(spelling_of(tokenizer))
    return _VOCABULARIES[tokenizer]


_VOCABULARIES: weakref.WeakKeyDictionary[Tokenizer, Vocabulary] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class _Tokens:
    """What `llguidance` asks of a tokenizer."""

    tokens: list[bytes]
    eos_token_id: int
    special_token_ids: list[int]
    bos_token_id: None = None

    def __call__(self, text: bytes | str) -> list[int]:
        """No tokens, for no text is tokenized: any tokens that spell it may say it."""
        return []


def _tokenizer(tokens: Sequence[bytes]) -> Any:
    """An `LLTokenizer` with one token more, which stands for the end: a model has none, one or several of these."""
    library = require("llguidance", "grammar")
    end = len(tokens)
    return library.LLTokenizer(library.TokenizerWrapper(_Tokens([*tokens, b"<end>"], end, [end])))


def _reason(parser: Any) -> str:
    """The library's message, without the state that it would show its developers."""
    message: str = parser.get_error()
    return message.split("<non-verbose/>")[0].strip()

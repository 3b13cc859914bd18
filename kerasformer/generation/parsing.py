"""Where a text stands in its grammar, token by token, by the parsers of `llguidance`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from kerasformer.errors import GenerationError, require
from kerasformer.generation.constraint_state import Closed
from kerasformer.generation.endings import ending
from kerasformer.generation.token_bytes import TokenBytes, token_bytes_of
from kerasformer.tokenization import Tokenizer

_LONGEST_ENDING = 256
"""Bytes of an ending that is searched for."""
_LONGEST_GRAMMAR = 250_000
"""Characters of a grammar."""
_STACK = 2048
"""Bytes of stack for a character of a grammar: four times what chains of rules took that were as deep as can be."""
_ITEMS, _ITEMS_OF_STEP = 20_000, 500_000
"""Ways in which a text may go on at one place, and those looked at in one step."""

_Made = TypeVar("_Made")


class GrammarVocabulary:
    """A vocabulary as `llguidance` takes it.

    Args:
        token_bytes: What its tokens spell.
    """

    def __init__(self, token_bytes: TokenBytes) -> None:
        self.token_bytes = token_bytes
        single = [bytes([byte]) for byte in range(256)]
        # In the search of endings, bytes that the vocabulary lacks do not exist; bytes of longer ones are tried.
        known = [byte if byte in token_bytes.ids or byte[0] >= 128 else b"" for byte in single]
        self._tokens, self._byte_tokenizer = _tokenizer(token_bytes.tokens), _tokenizer(known)

    def begin(self, grammar: str, name: str) -> Parsed:
        """The place before the first token.

        Args:
            grammar: In the JSON form of `llguidance`.
            name: What asked for it, for the message.
        Raises:
            GenerationError: the library refuses the grammar, or it is too long.
        """
        if len(grammar) > _LONGEST_GRAMMAR:
            raise GenerationError(
                f"{name} is too long to be followed. Expected at most {_LONGEST_GRAMMAR} characters. "
                f"Received: {len(grammar)}. Leave parts of it out"
            )
        library = require("llguidance", "grammar")
        limits = library.LLParserLimits(verbose_errors=False, max_items_in_row=_ITEMS, step_max_items=_ITEMS_OF_STEP)

        def compiled(tokenizer: Any) -> Any:
            return library.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)

        # The library goes down from rule to rule, which would end the process on a stack of the usual size.
        parser, byte_parser = _with_stack(
            _STACK * len(grammar), lambda: (compiled(self._tokens), compiled(self._byte_tokenizer))
        )
        _check(parser, f"{name} cannot be followed")
        return Parsed(parser, byte_parser, self)


@dataclass
class Parsed:
    """The place that parsers have reached; see `ConstraintState`.

    Attributes:
        parser: Over the tokens of the model.
        byte_parser: Over single bytes, for the search of an ending.
        vocabulary: Of the model.
    """

    parser: Any
    byte_parser: Any
    vocabulary: GrammarVocabulary

    @cached_property
    def complete(self) -> bool:
        """See `ConstraintState.complete`."""
        return bool(self.parser.is_accepting())

    @cached_property
    def allowed(self) -> np.ndarray:
        """See `ConstraintState.allowed`.

        Raises:
            GenerationError: the library gave up.
        """
        bits = np.frombuffer(self.parser.compute_bitmask(), np.uint8)
        _check(self.parser)
        count = len(self.vocabulary.token_bytes.tokens)
        return np.unpackbits(bits, bitorder="little", count=count).view(bool)

    @cached_property
    def ending(self) -> list[int] | None:
        """See `ConstraintState.ending`."""
        text = ending(self.byte_parser, _LONGEST_ENDING)
        return None if text is None else self.vocabulary.token_bytes.spell(text)

    def after(self, token: int) -> Parsed | Closed:
        """See `ConstraintState.after`.

        Raises:
            GenerationError: the library gave up.
        """
        text = self.vocabulary.token_bytes.text(token)
        parser, byte_parser = self.parser.deep_copy(), self.byte_parser.deep_copy()
        if not text or not parser.try_consume_tokens([token]):
            _check(parser)
            return Closed(well=False)
        byte_parser.try_consume_tokens(list(text))
        return Parsed(parser, byte_parser, self.vocabulary)

    def completes(self, tokens: Sequence[int]) -> bool:
        """See `ConstraintState.completes`."""
        parser = self.parser.deep_copy()
        return bool(parser.try_consume_tokens(list(tokens)) == len(tokens) and parser.is_accepting())

    def __str__(self) -> str:
        tokens = np.flatnonzero(self.allowed)
        texts = [repr(self.vocabulary.token_bytes.tokens[token].decode(errors="replace")) for token in tokens[:3]]
        parts = [", ".join(texts) + (f" or {len(tokens) - 3} other tokens" if len(tokens) > 3 else "")]
        parts.append("the end" if self.complete else "")
        return " or ".join(filter(None, parts))


def vocabulary_of(tokenizer: Tokenizer) -> GrammarVocabulary:
    """A tokenizer's vocabulary, prepared once.

    Raises:
        TokenizerError: its tokens spell no text.
        MissingExtraError: `llguidance` is not installed.
    """
    if tokenizer not in _VOCABULARIES:
        _VOCABULARIES[tokenizer] = GrammarVocabulary(token_bytes_of(tokenizer))
    return _VOCABULARIES[tokenizer]


_VOCABULARIES: weakref.WeakKeyDictionary[Tokenizer, GrammarVocabulary] = weakref.WeakKeyDictionary()


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


def _with_stack(size: int, function: Callable[[], _Made]) -> _Made:
    """What a function gives that is called with at least so many bytes of stack."""
    with ThreadPoolExecutor(1) as pool:
        with _stack_lock:
            usual = threading.stack_size(_LEAST_STACK + -(-size // _LEAST_STACK) * _LEAST_STACK)
            try:
                made = pool.submit(function)
            finally:
                threading.stack_size(usual)
        return made.result()


_LEAST_STACK = 8 << 20
_stack_lock = threading.Lock()


def _check(parser: Any, what: str = "the grammar cannot be followed any more") -> None:
    """Raises what the library says when it has given up; that a text is over is none of these."""
    message: str = parser.get_error() if parser.is_error() else ""
    if message and "NoExtension" not in message:
        # Without the state that it would show its developers.
        raise GenerationError(f"{what}: {message.split('<non-verbose/>')[0].split('<backtrace>')[0].strip()}")

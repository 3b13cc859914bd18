"""State of a text in a grammar, computed by the parsers of `llguidance`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kerasformer.errors import GenerationError
from kerasformer.extras import require
from kerasformer.generation.constraint_state import EndedState
from kerasformer.generation.endings import ending
from kerasformer.generation.token_bytes import TokenBytes, token_bytes_of
from kerasformer.tokenization import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_MAX_ENDING = 256
"""Maximum length of an ending in bytes."""
_MAX_GRAMMAR = 250_000
"""Maximum length of a grammar in characters."""
_STACK_PER_CHARACTER = 2048
"""Bytes of stack per character of a grammar: four times the need of the deepest possible chains of rules."""
_MAX_ITEMS, _MAX_STEP_ITEMS = 20_000, 500_000
"""Limits of the Earley parser: items per byte position, and items per step."""

_Result = TypeVar("_Result")


class GrammarVocabulary:
    """A vocabulary in the format of `llguidance`.

    Args:
        token_bytes: Bytes of each token.
    """

    def __init__(self, token_bytes: TokenBytes) -> None:
        self.token_bytes = token_bytes
        single = [bytes([byte]) for byte in range(256)]
        # The search for endings excludes ASCII bytes that the vocabulary lacks; other bytes may be part of longer
        # tokens.
        known = [byte if byte in token_bytes.ids or byte[0] >= 128 else b"" for byte in single]
        self._tokens, self._byte_tokenizer = _tokenizer(token_bytes.tokens), _tokenizer(known)

    def initial_state(self, grammar: str, name: str) -> GrammarState:
        """Returns the state before the first token.

        Args:
            grammar: Grammar in the JSON format of `llguidance`.
            name: Name of the argument that defines the grammar, for error messages.
        Raises:
            GenerationError: the grammar is invalid or too long.
        """
        if len(grammar) > _MAX_GRAMMAR:
            raise GenerationError(
                f"{name} is too long. Expected at most {_MAX_GRAMMAR} characters. Received: {len(grammar)}. Shorten it."
            )
        library = require("llguidance", "grammar")
        limits = library.LLParserLimits(
            verbose_errors=False, max_items_in_row=_MAX_ITEMS, step_max_items=_MAX_STEP_ITEMS
        )

        def compiled(tokenizer: LLTokenizer) -> LLMatcher:
            return library.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)

        # The library recurses into rules, which would overflow a stack of the default size and kill the process.
        parser, byte_parser = _with_stack(
            _STACK_PER_CHARACTER * len(grammar), lambda: (compiled(self._tokens), compiled(self._byte_tokenizer))
        )
        _check(parser, f"{name} cannot be followed")
        return GrammarState(parser, byte_parser, self)


@dataclass
class GrammarState:
    """State of a text in a grammar; see `ConstraintState`.

    Attributes:
        parser: Parser over the tokens of the model.
        byte_parser: Parser over single bytes, for the search for an ending.
        vocabulary: Vocabulary of the model.
    """

    parser: LLMatcher
    byte_parser: LLMatcher
    vocabulary: GrammarVocabulary

    @cached_property
    def complete(self) -> bool:
        """See `ConstraintState.complete`."""
        return bool(self.parser.is_accepting())

    @cached_property
    def allowed(self) -> np.ndarray:
        """See `ConstraintState.allowed`.

        Raises:
            GenerationError: the library reports an error, such as an exceeded limit.
        """
        bits = np.frombuffer(self.parser.compute_bitmask(), np.uint8)
        _check(self.parser)
        count = len(self.vocabulary.token_bytes.tokens)
        return np.unpackbits(bits, bitorder="little", count=count).view(bool)

    @cached_property
    def ending(self) -> list[int] | None:
        """See `ConstraintState.ending`."""
        text = ending(self.byte_parser, _MAX_ENDING)
        return None if text is None else self.vocabulary.token_bytes.encode(text)

    def after(self, token: int) -> GrammarState | EndedState:
        """See `ConstraintState.after`.

        Raises:
            GenerationError: the library reports an error, such as an exceeded limit.
        """
        text = self.vocabulary.token_bytes.text(token)
        parser, byte_parser = self.parser.deep_copy(), self.byte_parser.deep_copy()
        if not text or not parser.try_consume_tokens([token]):
            _check(parser)
            return EndedState(valid=False)
        byte_parser.try_consume_tokens(list(text))
        return GrammarState(parser, byte_parser, self.vocabulary)

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
    """Returns the vocabulary of a tokenizer, which is converted once and cached.

    Raises:
        TokenizerError: the tokens do not correspond to pieces of text.
        MissingExtraError: `llguidance` is not installed.
    """
    if tokenizer not in _VOCABULARIES:
        _VOCABULARIES[tokenizer] = GrammarVocabulary(token_bytes_of(tokenizer))
    return _VOCABULARIES[tokenizer]


_VOCABULARIES: weakref.WeakKeyDictionary[Tokenizer, GrammarVocabulary] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class _Tokens:
    """The tokenizer interface that `llguidance` requires."""

    tokens: list[bytes]
    eos_token_id: int
    special_token_ids: list[int]
    bos_token_id: None = None

    def __call__(self, text: bytes | str) -> list[int]:
        """Returns no tokens: any tokenization of a text is allowed, so that the library need not tokenize it."""
        return []


def _tokenizer(tokens: Sequence[bytes]) -> LLTokenizer:
    """Returns an `LLTokenizer` with an additional end token, because a model may have none, one or several of them."""
    library = require("llguidance", "grammar")
    end = len(tokens)
    return library.LLTokenizer(library.TokenizerWrapper(_Tokens([*tokens, b"<end>"], end, [end])))


def _with_stack(size: int, function: Callable[[], _Result]) -> _Result:
    """Calls a function in a thread with at least `size` bytes of stack and returns its result."""
    with ThreadPoolExecutor(1) as pool:
        with _stack_lock:
            previous = threading.stack_size(_MIN_STACK + -(-size // _MIN_STACK) * _MIN_STACK)
            try:
                future = pool.submit(function)
            finally:
                threading.stack_size(previous)
        return future.result()


_MIN_STACK = 8 << 20
_stack_lock = threading.Lock()


def _check(parser: LLMatcher, problem: str = "the grammar cannot be followed any further") -> None:
    """Raises the error of a parser, if it has one; `NoExtension` only means that the text has ended."""
    message: str = parser.get_error() if parser.is_error() else ""
    if message and "NoExtension" not in message:
        # The rest of the message is debugging information.
        raise GenerationError(f"{problem}: {message.split('<non-verbose/>')[0].split('<backtrace>')[0].strip()}")

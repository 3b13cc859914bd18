"""Glossaries: terms that a translation must contain where the source contains their counterparts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.arguments import STRING, TEXT, check, shown
from kerasformer.errors import GenerationError, InputError
from kerasformer.tokenization import Tokenizer

_WORDS_END = "\u0e00"
"""First character of the scripts without spaces between words, such as Thai and Chinese."""


@dataclass(frozen=True)
class Term:
    """A term that a text must contain.

    Attributes:
        text: The term.
        tokens: Its tokens within a text.
    """

    text: str
    tokens: tuple[int, ...]

    def begun(self, tokens: np.ndarray) -> int:
        """Returns how many tokens of the term, but not all, are the last of `tokens` `(N,)`."""
        sizes = range(min(len(self.tokens) - 1, len(tokens)), 0, -1)
        return next((size for size in sizes if tuple(tokens[-size:].tolist()) == self.tokens[:size]), 0)

    def is_in(self, text: str, tokens: np.ndarray) -> bool:
        """Whether a text, or its tokens `(N,)`, contain the term."""
        size = len(self.tokens)
        return self.text in text or any(
            tuple(tokens[end - size : end].tolist()) == self.tokens for end in range(size, len(tokens) + 1)
        )


@dataclass(frozen=True)
class RequiredTerms:
    """Terms that the translations of a batch must contain; see `decoding.controls.RequiredTokens`.

    Attributes:
        terms: Terms of each prompt.
        tokenizer: Tokenizer of the translations.
    """

    terms: tuple[tuple[Term, ...], ...]
    tokenizer: Tokenizer

    def missing(self, prompt: int, tokens: np.ndarray) -> list[Term]:
        """Returns the terms of a prompt that a translation with the tokens `(N,)` lacks."""
        if not self.terms[prompt]:
            return []
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return [term for term in self.terms[prompt] if not term.is_in(text, tokens)]

    def progress(self, prompt: int, tokens: np.ndarray) -> int:
        """See `RequiredTokens.progress`."""
        missing = self.missing(prompt, tokens)
        complete = sum(len(term.tokens) for term in self.terms[prompt] if term not in missing)
        return complete + max((term.begun(tokens) for term in missing), default=0)

    def next_tokens(self, prompt: int, tokens: np.ndarray) -> list[int]:
        """See `RequiredTokens.next_tokens`."""
        return [term.tokens[term.begun(tokens)] for term in self.missing(prompt, tokens)]

    def check(self, sequences: Sequence[np.ndarray]) -> None:
        """Checks that translations contain their terms, which is impossible if they are too short for them.

        Args:
            sequences: Tokens of each translation; the same number for each prompt.
        Raises:
            GenerationError: a translation lacks a term.
        """
        copies = len(sequences) // len(self.terms)
        for index, tokens in enumerate(sequences):
            if missing := self.missing(index // copies, tokens):
                raise GenerationError(
                    "No translation within the maximum length contains all terms of the glossary. Expected: "
                    f"{', '.join(repr(term.text) for term in missing)}. Pass a larger max_new_tokens"
                )


class Glossary:
    """Translations of terms.

    A term in small letters is also found with capitals; other terms are found as they are. Where two terms overlap in a
    text, the one that begins first counts, and of these the longest.

    Args:
        terms: Target terms by source terms.
        tokenizer: Tokenizer of the translations.

    Raises:
        InputError: not a mapping of texts, an empty term, or a target term that the model cannot write.
    """

    def __init__(self, terms: Mapping[str, str], tokenizer: Tokenizer) -> None:
        if not isinstance(terms, Mapping) or not terms:
            raise InputError(
                'glossary must contain target terms by source terms, such as {"server": "Server"}. '
                f"Received: {shown(terms)}"
            )
        checked = {_term(source): _term(target) for source, target in terms.items()}
        self._tokenizer = tokenizer
        self._terms = {source: Term(target, _tokens(target, tokenizer)) for source, target in checked.items()}
        names = sorted(checked, key=lambda source: -len(source))
        self._pattern = re.compile("|".join(f"({_pattern(name)})" for name in names))
        self._names = names

    def required(self, texts: Sequence[str]) -> RequiredTerms:
        """Returns the terms that the translations of texts must contain."""
        return RequiredTerms(tuple(map(self._terms_of, texts)), self._tokenizer)

    def _terms_of(self, text: str) -> tuple[Term, ...]:
        terms = {self._terms[self._names[(match.lastindex or 1) - 1]] for match in self._pattern.finditer(text)}
        # A term that another one contains needs no tokens of its own.
        kept = [term for term in terms if not any(term.text in other.text for other in terms - {term})]
        return tuple(sorted(kept, key=lambda term: term.text))


def _term(value: object) -> str:
    text = str(check("a term of the glossary", value, STRING)).strip()
    if not text:
        raise InputError(f"A term of the glossary must not be empty. Received: {value!r}")
    return str(check("a term of the glossary", text, TEXT))


def _pattern(term: str) -> str:
    """Returns the pattern of a term as a whole word, in scripts with spaces between words."""
    before, after = ("(?<!\\w)" if _is_of_word(term[0]) else ""), ("(?!\\w)" if _is_of_word(term[-1]) else "")
    pattern = f"{before}{re.escape(term)}{after}"
    return f"(?i:{pattern})" if term == term.lower() else pattern


def _is_of_word(character: str) -> bool:
    return character.isalnum() and character < _WORDS_END


def _tokens(term: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns the tokens of a term within a text.

    Raises:
        InputError: the tokens are those of another text.
    """
    before = tokenizer.encode("a", add_special_tokens=False)
    both = tokenizer.encode(f"a {term}", add_special_tokens=False)
    tokens = both[len(before) :] if both[: len(before)] == before else tokenizer.encode(term, add_special_tokens=False)
    decoded = tokenizer.decode(tokens, skip_special_tokens=True).strip()
    if not tokens or decoded != term:
        raise InputError(
            "The model cannot write a term of the glossary: a character is missing in its vocabulary, or its tokenizer "
            f"changes the text. Expected: {term!r}. Received: {decoded!r}"
        )
    return tuple(tokens)

"""Texts of a model that finds spans of named types: the names of the types, and then the words of the text.

Each name follows a token that marks it, and a separator follows the last one. Words are those of the reference,
regardless of the tokenizer, which splits each of them by itself.

Reference: `WhitespaceTokenSplitter` and `UniEncoderSpanProcessor` of the package `gliner`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.tokenization.encoding import Encoding
from kerasformer.tokenization.tokenizer import Tokenizer

_WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
"""A word, perhaps with hyphens or underscores, or another character that is no space."""


@dataclass(frozen=True)
class Word:
    """A word of a text, with its character offsets."""

    text: str
    start: int
    end: int


def words_of(tokenizer: Tokenizer, text: str) -> list[Word]:
    """Splits a text into words, without those that the tokenizer removes, such as control characters."""
    words = [Word(match.group(), match.start(), match.end()) for match in _WORD.finditer(text)]
    if not words:
        return []
    ids = tokenizer([[word.text for word in words]], is_split_into_words=True, add_special_tokens=False)
    present = set(ids.word_ids[0].tolist())
    return [word for index, word in enumerate(words) if index in present]


def prompted(
    tokenizer: Tokenizer, mark: str, separator: str, labels: Sequence[str], texts: Sequence[Sequence[Word]]
) -> Encoding:
    """Tokenizes labels and the words of each text.

    Args:
        tokenizer: A tokenizer with both tokens.
        mark: Token before each label.
        separator: Token between the labels and a text.
        labels: Names of types.
        texts: Words of each text.
    """
    prompt = [part for label in labels for part in (mark, label)]
    rows = [[*prompt, separator, *(word.text for word in words)] for words in texts]
    return tokenizer(rows, is_split_into_words=True, padding_side="right")


def slots_of(encoded: Encoding, labels: int, words: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the slots of the first tokens of words `(B, W)` and of the marks of labels `(B, C)`, int32, -1 for none.

    Args:
        encoded: The result of `prompted`.
        labels: Number of labels.
        words: Number of words of each text.
    """
    first = first_word(labels)
    slots = np.full((len(words), first + max(words)), -1, "int32")
    for row, word_ids in enumerate(encoded.word_ids):
        indices, starts = np.unique(word_ids, return_index=True)  # the first slot of each
        slots[row, indices[indices >= 0]] = starts[indices >= 0]
    return slots[:, first:], slots[:, 0 : first - 1 : 2]


def first_word(labels: int) -> int:
    """Returns the index of the first word of a text after so many labels, their marks and the separator."""
    return 2 * labels + 1

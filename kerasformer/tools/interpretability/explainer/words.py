"""The words of a page: readable tokens and names of classes, each with an index that arrays refer to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerasformer.generation import readable_token
from kerasformer.tokenization import Tokenizer


class Words:
    """A table of words, which grows as they are used.

    Args:
        tokenizer: Tokenizer of the model; the texts that it writes may have another vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizers = {False: tokenizer, True: tokenizer.writer}
        self._rows: list[tuple[str, int]] = []
        self._indices: dict[tuple[str, int], int] = {}
        self._tokens: dict[tuple[int, bool], int] = {}

    def of_tokens(self, ids: np.ndarray, written: bool = True) -> np.ndarray:
        """Returns the indices of tokens, an array of the same shape; `written` is whether the model writes them."""
        unique, inverse = np.unique(ids, return_inverse=True)
        table = np.array([self._token(token, written) for token in unique.tolist()], np.int64)
        return table[inverse].reshape(np.shape(ids))

    def of_labels(self, labels: Sequence[str]) -> np.ndarray:
        """Returns the indices of names of classes, int64 `(C,)`."""
        return np.array([self._index(label, -1) for label in labels], np.int64)

    def text(self, index: int) -> str:
        """Returns a word."""
        return self._rows[index][0]

    def listed(self) -> list[list[str | int]]:
        """Returns all words, each with the id of its token, or -1 for the name of a class."""
        return [[text, token] for text, token in self._rows]

    def _token(self, token: int, written: bool) -> int:
        key = token, written
        if key not in self._tokens:
            self._tokens[key] = self._index(readable_token(self._tokenizers[written], token), token)
        return self._tokens[key]

    def _index(self, text: str, token: int) -> int:
        if (text, token) not in self._indices:
            self._indices[text, token] = len(self._rows)
            self._rows.append((text, token))
        return self._indices[text, token]

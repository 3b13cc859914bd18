"""Words of a text: those of tokenizers that do not split texts at spaces, and the first token of each word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import tokenizers
from tokenizers import AddedToken

from kerasformer.tokenization.encoding import ChangedEncoding

# Unicode's white space, without four control characters that Python adds to it.
_SPACE, _OTHER = r"[^\S\x1c-\x1f]", r"[\S\x1c-\x1f]"
_WORD = re.compile(f" ?{_OTHER}+|{_SPACE}+?(?= ?{_OTHER}|\\Z)")
_SPACES = re.compile(f"{_SPACE}*")


def first_tokens(words: Iterable[str], spans: Sequence[Sequence[int]]) -> list[int | None]:
    """Finds the first token of each word of a text that consists of these words, joined by spaces.

    It may be a token of the space before the word. A word may begin with characters that have no token.

    Args:
        words: Words of the text.
        spans: Start and end of each token of the text, in characters, in ascending order.

    Returns:
        Index of a token for each word; `None` if no token contains a part of the word.
    """
    found: list[int | None] = []
    start = index = 0
    for word in words:
        # Ends before the space, or with it if it belongs to the word before.
        while index < len(spans) and spans[index][1] < start + (spans[index][0] < start - 1):
            index += 1
        end = start + len(word)
        found.append(index if index < len(spans) and spans[index][0] < end else None)
        start = end + 1
    return found


def spaced_words(text: str) -> np.ndarray:
    """Returns the index of the word of each character, and of the end of the text, int32 `(len(text) + 1,)`.

    A word includes one space before it; other white space between words is a word of its own, as for GPT-2.
    """
    lengths = [len(match.group()) for match in _WORD.finditer(text)]
    words = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return np.append(words, words[-1:] if len(words) else np.int32(0))


class WordRule:
    """How the tokens of a text belong to words.

    The pre-tokenizer of most tokenizers finds words. That of LLaMA 2, Gemma and ByT5 leaves the whole text as one, and
    that of tokenizers of characters splits words; for these, white space separates words.

    Args:
        backend: Tokenizer of the `tokenizers` library.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        def parts(text: str) -> int:
            normal = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
            return 1 if backend.pre_tokenizer is None else len(backend.pre_tokenizer.pre_tokenize_str(normal))

        self._joins_words, self._splits_words = parts("a a") == 1, parts("aa") > 1

    @property
    def needs_spaces(self) -> bool:
        """Whether words are not those of the pre-tokenizer."""
        return self._joins_words or self._splits_words

    def word_ids(
        self, encoding: tokenizers.Encoding, texts: Sequence[str], added: Mapping[int, AddedToken]
    ) -> list[int | None]:
        """Returns the index of the word of each token in its text; `None` for special tokens around texts.

        Args:
            encoding: Encoding of a text or a pair by the Rust library.
            texts: The text, or both texts.
            added: Added tokens by their ids, which are words of their own.
        """
        words: list[int | None] = []
        spaced = [spaced_words(text) for text in texts]
        last: tuple[int, ...] = ()
        number = -1
        given = zip(encoding.ids, encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True)
        for token, sequence, word, (start, end) in given:
            if sequence is None or word is None:
                words.append(None)
                continue
            text = texts[sequence]
            space = _SPACES.match(text, start, end)
            first = start if space is None or space.end() == end else space.end()
            alone = not self._splits_words or (token in added and added[token].content in text[start:end])
            key = (sequence, word if alone else -1, int(spaced[sequence][first]))
            number = 0 if last[:1] != (sequence,) else number + (key != last)
            words.append(number)
            last = key
        return words


class SpacedEncoding(ChangedEncoding):
    """Encoding by the Rust library whose words are those of a `WordRule`.

    Args:
        encoding: Encoding by the Rust library.
        texts: The text, or both texts of a pair.
        rule: How tokens belong to words.
        added: Added tokens by their ids.
    """

    def __init__(
        self, encoding: tokenizers.Encoding, texts: Sequence[str], rule: WordRule, added: Mapping[int, AddedToken]
    ) -> None:
        super().__init__(encoding)
        self._texts, self._rule, self._added = texts, rule, added

    @cached_property
    def word_ids(self) -> list[int | None]:
        """Index of the word of each token; `None` for special tokens."""
        return self._rule.word_ids(self._encoding, self._texts, self._added)

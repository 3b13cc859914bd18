"""Which tokens MediaPipe makes of a text: of WordPiece by its rules, written down once more; of SentencePiece ours.

Rules: `mediapipe/calculators/tensor/bert_preprocessor_calculator.cc` (small letters, `[CLS]`, `[SEP]`, where texts are
cut) and `mediapipe/tasks/cc/text/tokenizers/bert_tokenizer.h` (where words end, how long they are).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase, punctuation

from kerasformer.tokenization import Tokenizer

_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)
_SPACES = "\t\n\f\r "
_LONGEST = 100
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def ids(tokenizer: Tokenizer, text: str, length: int) -> list[int]:
    """Ids of a text, cut to a length."""
    if type(tokenizer.backend.model).__name__ != "WordPiece":
        pieces = tokenizer.encode(text.translate(_SMALL), add_special_tokens=False)
    else:
        pieces = [index for word in _words(text.translate(_SMALL)) for index in _pieces(tokenizer, word)]
    first, last = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    assert first is not None and last is not None
    return [first, *pieces[: length - 2], last]


def _words(text: str) -> Iterator[str]:
    """What stands between spaces, with punctuation and Chinese characters apart."""
    word = ""
    for letter in [*text, " "]:
        alone = _alone(letter)
        if not alone and letter not in _SPACES:
            word += letter
            continue
        if word:
            yield word
        word = ""
        if alone:
            yield letter


def _alone(letter: str) -> bool:
    chinese = any(first <= ord(letter) <= last for first, last in _CHINESE)
    return chinese or letter in punctuation or unicodedata.category(letter).startswith("P")


def _pieces(tokenizer: Tokenizer, word: str) -> list[int]:
    if len(word.encode()) > _LONGEST:
        unknown = tokenizer.token_to_id("[UNK]")
        assert unknown is not None
        return [unknown]
    return [token.id for token in tokenizer.backend.model.tokenize(word)]

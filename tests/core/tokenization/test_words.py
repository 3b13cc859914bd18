"""Words of tokenizers whose pre-tokenizer does not split texts at spaces, or splits words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.words import first_tokens

VOCABULARIES = Path(__file__).parents[3] / "mobile" / "vectors" / "tokenizers"
BYTES = {f"<0x{byte:02X}>": byte + 4 for byte in range(256)}
SPACE = "\u2581"
LETTERS = [SPACE, *"ABCabc,.", f"{SPACE}A", f"{SPACE}{SPACE}"]
REPLACED = normalizers.Replace(" ", SPACE)


def of_pairs(fallback: bool = False) -> models.BPE:
    first = {"<unk>": 0} | (BYTES if fallback else {})
    vocabulary = first | {letter: len(first) + index for index, letter in enumerate(LETTERS)}
    return models.BPE(vocabulary, [(SPACE, SPACE), (SPACE, "A")], unk_token="<unk>", byte_fallback=fallback)


def unigram() -> models.Unigram:
    return models.Unigram([("<unk>", -9.0), *((letter, -1.0) for letter in LETTERS)], unk_id=0)


def characters() -> models.WordLevel:
    return models.WordLevel({"<unk>": 0, **{letter: 1 + index for index, letter in enumerate(" ABCabc,.")}}, "<unk>")


def tokenizer(model: models.Model, normalizer: object = None, splitter: object = None) -> Tokenizer:
    backend = Backend(model)
    if normalizer is not None:
        backend.normalizer = normalizer
    if splitter is not None:
        backend.pre_tokenizer = splitter
    return Tokenizer(backend, special_tokens={"unk_token": "<unk>"})


PREPENDED = normalizers.Sequence([normalizers.Prepend(SPACE), REPLACED])
KINDS = {
    "llama 2": lambda: tokenizer(of_pairs(), PREPENDED),
    "byte fallback": lambda: tokenizer(of_pairs(fallback=True), PREPENDED),
    "gemma": lambda: tokenizer(of_pairs(), REPLACED, pre_tokenizers.Split(" ", "merged_with_previous")),
    "metaspace": lambda: tokenizer(unigram(), None, pre_tokenizers.Metaspace(split=False)),
    "unigram": lambda: tokenizer(unigram(), REPLACED),
    "digits": lambda: tokenizer(of_pairs(), REPLACED, pre_tokenizers.Digits(individual_digits=True)),
    "bytes": lambda: Tokenizer.load(VOCABULARIES / "byt5"),
    "characters": lambda: tokenizer(characters(), None, pre_tokenizers.Split(Regex("."), "isolated")),
}


@pytest.fixture(params=KINDS)
def split(request: pytest.FixtureRequest) -> Tokenizer:
    return KINDS[request.param]()


def words(tokenizer: Tokenizer, text: str, *more: str) -> list[str]:
    """Returns the part of the text of each word."""
    encoding = tokenizer(text, *more, add_special_tokens=False)
    assert (np.diff(encoding.word_ids[0]) <= 1).all() and encoding.word_ids[0][0] == 0
    spans: dict[int, list[tuple[int, int]]] = {}
    for word, span in zip(encoding.word_ids[0].tolist(), encoding.offsets[0].tolist(), strict=True):
        spans.setdefault(word, []).append(span)
    return [text[each[0][0] : each[-1][1]] for each in spans.values()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A B C", ["A", " B", " C"]),
        ("Abc, a\u00fcb cab.", ["Abc,", " a\u00fcb", " cab."]),
        ("A", ["A"]),
        ("A  B\nC", ["A", " ", " B", "\n", "C"]),
        ("A \u65e5\u672c\U0001f642 B", ["A", " \u65e5\u672c\U0001f642", " B"]),
    ],
)
def test_words_are_separated_by_spaces(split: Tokenizer, text: str, expected: list[str]) -> None:
    found = words(split, text)
    assert "".join(found) == text or len("".join(found)) > len(text)  # added spaces share characters
    assert [word.strip() for word in found if word.strip()] == [word.strip() for word in expected if word.strip()]
    merged = SPACE * 2 in split.tokenize(text)
    assert merged or found == expected


def test_tokens_of_words() -> None:
    assert KINDS["llama 2"]()("A B C").word_ids.tolist() == [[0, 1, 1, 2, 2]]
    assert KINDS["characters"]()("ABC, cab").word_ids.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]


def test_pairs_and_chunks(split: Tokenizer) -> None:
    pair = split("A B", "abc ab c", add_special_tokens=False)
    for sequence, text in enumerate(("A B", "abc ab c")):
        alone = split(text, add_special_tokens=False).word_ids[0]
        np.testing.assert_array_equal(pair.word_ids[0][pair.sequence_ids[0] == sequence], alone)
    whole = split("abc ab c")
    chunks = split("abc ab c", truncation=True, max_length=4, return_overflowing_tokens=True, padding_side="left")
    for ids, positions in zip(chunks.word_ids, chunks.positions, strict=True):
        np.testing.assert_array_equal(ids[positions >= 0], whole.word_ids[0][positions[positions >= 0]])


def test_added_tokens_are_words() -> None:
    for name in ("llama 2", "characters"):
        known = KINDS[name]()
        known.backend.add_special_tokens([AddedToken("[X]"), AddedToken("[Y]")])
        assert words(known, "ab[X]c") == ["ab", "[X]", "c"]


def test_words_of_the_pre_tokenizer_stay() -> None:
    """Also where they contain spaces, since a rule for all texts would differ from that of transformers."""
    splitter = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(" ?[a-zA-Z]+|[^a-zA-Z]+"), "isolated")])
    known = tokenizer(of_pairs(), None, splitter)
    assert words(known, "A, B") == ["A", ", ", "B"]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 1), (2, 5), (6, 7)], [0, 1, 2]),  # words alone
        ([(0, 1), (1, 2), (2, 5), (5, 7)], [0, 1, 3]),  # spaces before words
        ([(0, 2), (2, 6), (6, 7)], [0, 1, 2]),  # spaces after words
        ([(0, 1), (3, 5), (5, 5), (6, 6), (6, 7)], [0, 1, 3]),  # a dropped character, and tokens of no character
        ([(0, 1), (6, 7)], [0, None, 1]),  # a dropped word
        ([(0, 1), (2, 3)], [0, 1, None]),  # a text that was cut
        ([(0, 5), (5, 7)], [0, 0, 1]),  # a token of two words
        ([], [None, None, None]),
    ],
)
def test_first_tokens(spans: list[tuple[int, int]], expected: list[int | None]) -> None:
    assert first_tokens(["a", "bcd", "e"], spans) == expected

"""The tokenizer of XLM, compared with transformers, which has no offsets, no truncation and no languages to choose."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from kerasformer.errors import MissingExtraError, TokenizerError
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.moses import MosesTokenizer, without_accents
from tests.core.tokenization.conftest import MOSES, Checkpoint
from tests.core.tokenization.samples import CORPUS, TEXTS

FURTHER = [
    *CORPUS,
    'He said, "no," and left … “really”? «Oui» – non — 3.5 % of 1 000,50 (a) . Mr. Smith\'s U.S. e.g. etc.',
    "Ţara şi Ștefan în țară；１２３．４５。次 a<special1>b </s>c <s> d",
    "l'école d'été, aujourd'hui : 5 h 30 ; qu'il",
]


@pytest.fixture(params=MOSES)
def both(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> tuple[Any, MosesTokenizer]:
    folder = checkpoint(request.param)
    ours = Tokenizer.load(folder)
    assert isinstance(ours, MosesTokenizer)
    return transformers.AutoTokenizer.from_pretrained(str(folder)), ours


@pytest.mark.parametrize("special", [True, False])
def test_ids(both: tuple[Any, MosesTokenizer], special: bool) -> None:
    theirs, ours = both
    for text in [*TEXTS, *FURTHER]:
        assert ours.encode(text, special) == theirs.encode(text, add_special_tokens=special), text


def test_ids_of_pairs_and_of_words(both: tuple[Any, MosesTokenizer]) -> None:
    theirs, ours = both
    for first, second in zip(FURTHER, FURTHER[::-1], strict=True):
        assert ours(first, second).input_ids[0].tolist() == theirs(first, second)["input_ids"]
        words = first.split()
        received = ours(words, is_split_into_words=True)
        assert received.input_ids[0].tolist() == theirs(words, is_split_into_words=True)["input_ids"]
        assert set(received.word_ids[0].tolist()) == {-1, *range(len(words))}


@pytest.mark.parametrize("skip", [True, False])
def test_decode(both: tuple[Any, MosesTokenizer], skip: bool) -> None:
    theirs, ours = both
    for text in [*TEXTS, *FURTHER]:
        ids = ours.encode(text)
        assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip), text


def test_named_tokens(both: tuple[Any, MosesTokenizer]) -> None:
    theirs, ours = both
    for name in ("pad", "bos", "unk", "cls", "sep", "mask"):
        assert getattr(ours, f"{name}_token_id") == getattr(theirs, f"{name}_token_id"), name
    assert ours.vocab_size == len(theirs)


@pytest.mark.parametrize("language", ["fr", "ro", "de", "fi"])
def test_the_rules_of_a_language(checkpoint: Checkpoint, language: str) -> None:
    folder = checkpoint("xlm-cased")
    theirs, ours = transformers.AutoTokenizer.from_pretrained(str(folder)), Tokenizer.load(folder)
    english = [ours.encode(text, False) for text in FURTHER]
    ours.language = language
    assert [ours.encode(text, False) for text in FURTHER] != english
    for text in CORPUS + FURTHER[-3:-2] + FURTHER[-1:]:
        expected = theirs.convert_tokens_to_ids(theirs._tokenize(text, lang=language))
        assert ours.encode(text, False) == expected, text


def test_languages_are_an_input(checkpoint: Checkpoint, tmp_path: Path) -> None:
    ours = Tokenizer.load(checkpoint("xlm"))
    assert (ours.language, ours.languages) == (None, {"en": 0, "fr": 1})
    assert list(ours("a")) == ["input_ids", "attention_mask"]  # no language, thus no language embedding
    ours.language = "fr"
    encoded = ours(["Où est le café?", "a"])
    assert list(encoded) == list(encoded.inputs) == ["input_ids", "attention_mask", "langs"]
    np.testing.assert_array_equal(encoded["langs"], np.ones_like(encoded.input_ids))
    ours.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    again.language = "fr"
    assert list(again("a").inputs) == list(encoded)
    assert list(Tokenizer.load(checkpoint("xlm-cased"))("a").inputs) == ["input_ids", "attention_mask"]


@pytest.mark.parametrize("name", MOSES)
def test_spans_contain_their_tokens(checkpoint: Checkpoint, name: str) -> None:
    ours = Tokenizer.load(checkpoint(name))
    text = "Alice, the Café's «Où» … 1,000 e\u0301t <special1>x!"
    encoded = ours(text)
    spans = {text[start:end] for start, end in encoded.offsets[0].tolist()}
    assert {",", "«", "»", "…", "<special1>", "!"} <= spans
    for sample in [text, *TEXTS, *FURTHER]:
        encoded = ours(sample)
        previous = 0
        for token, (start, end) in zip(encoded.tokens(), encoded.offsets[0].tolist(), strict=True):
            piece = token.removesuffix("</w>")
            if piece.isalnum() and "<" not in token:
                form = without_accents if name == "xlm" else str
                assert piece in form(sample[start:end]) or not sample[start:end].isascii(), (token, sample[start:end])
                assert start >= previous
                previous = start
    words = ours("the Rabbit, the").word_ids[0].tolist()
    assert sorted(set(words)) == [-1, 0, 1, 2, 3]


def test_saved_folder_is_loaded_by_both(both: tuple[Any, MosesTokenizer], tmp_path: Path) -> None:
    _, ours = both
    ours.save(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    theirs, again = transformers.AutoTokenizer.from_pretrained(str(tmp_path)), Tokenizer.load(tmp_path)
    assert type(theirs) is transformers.XLMTokenizer
    assert again.special_tokens == ours.special_tokens and again.model_max_length == ours.model_max_length
    for text in [*TEXTS, *FURTHER]:
        assert again.encode(text) == theirs.encode(text) == ours.encode(text)


@pytest.mark.parametrize(("language", "reason"), [("zh", "words need Jieba"), ("de", "one of en, fr. Received: 'de'")])
def test_a_language_without_rules_is_refused(checkpoint: Checkpoint, language: str, reason: str) -> None:
    ours = Tokenizer.load(checkpoint("xlm"))
    with pytest.raises(TokenizerError, match=reason):
        ours.language = language  # type: ignore[attr-defined]


def test_the_extra_is_named(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(MissingExtraError, match=r"\[xlm\]"):
        Tokenizer.load(checkpoint("xlm"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("vocab__json", '{"a": "b"}', "must map tokens to ids"),
        ("vocab__json", '{"a": 0, "<unk>": 1}', "lacks a special token"),
        ("merges__txt", b"\xff", "cannot be read"),
        ("tokenizer_config__json", '{"lang2id": {"en": "a"}}', "must map languages to ids"),
    ],
)
def test_damaged_files(copied: Checkpoint, file: str, content: Any, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.load(copied("xlm", **{file: content}))

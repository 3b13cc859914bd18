"""Languages of mBART, mBART-50, NLLB and M2M-100, and the tokenizer of M2M-100, compared with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from kerasformer.errors import InputError, TokenizerError
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.languages import MultilingualTokenizer
from kerasformer.tokenization.m2m_100 import M2m100Tokenizer
from tests import tiny_text
from tests.core.tokenization.conftest import Checkpoint, dictionary, write
from tests.core.tokenization.samples import TEXTS
from tests.core.tokenization.test_parity import reference

LANGUAGES = {
    "mbart": ("de_DE", "ro_RO"),
    "mbart-50": ("gl_ES", "en_XX"),
    "nllb": ("fra_Latn", "zho_Hans"),
    "nllb-legacy": ("fra_Latn", "zho_Hans"),
}
STACKED = TEXTS[5]
"""A text with two marks on a letter in another than the canonical order, one of which the Rust library loses."""


@pytest.mark.parametrize("name", LANGUAGES)
def test_both_sides(name: str, checkpoint: Checkpoint) -> None:
    theirs, ours = reference(checkpoint(name)), Tokenizer.load(checkpoint(name))
    before = ours.encode(TEXTS[0])
    theirs.src_lang, theirs.tgt_lang = LANGUAGES[name]
    spoken = ours.for_languages(*LANGUAGES[name])
    assert (spoken.src_lang, spoken.tgt_lang) == LANGUAGES[name]
    for text in TEXTS:
        assert spoken.encode(text) == theirs.encode(text), text
        assert spoken.encode(text, False) == theirs.encode(text, add_special_tokens=False)
        assert spoken.writer.encode(text) == theirs(text_target=text)["input_ids"], text
    expected = theirs(TEXTS, TEXTS[::-1], padding=True, return_tensors="np", return_special_tokens_mask=True)
    received = spoken(TEXTS, TEXTS[::-1])
    np.testing.assert_array_equal(received.input_ids, expected["input_ids"])
    np.testing.assert_array_equal(received.special_tokens_mask, expected["special_tokens_mask"])
    assert received.tokens() == expected.tokens(0)[: len(received.tokens())]
    assert ours.encode(TEXTS[0]) == before != spoken.encode(TEXTS[0])  # the other tokenizer did not change


@pytest.mark.parametrize("name", LANGUAGES)
def test_languages_are_saved(name: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    ours = Tokenizer.load(checkpoint(name)).for_languages(*LANGUAGES[name])
    ours.save(tmp_path)
    again, theirs = Tokenizer.load(tmp_path), reference(tmp_path)
    assert (again.src_lang, again.tgt_lang, again.languages) == (ours.src_lang, ours.tgt_lang, ours.languages)
    assert again.encode(TEXTS[0]) == theirs.encode(TEXTS[0]) == ours.encode(TEXTS[0])
    plain = Tokenizer(type(again.backend).from_file(str(tmp_path / "tokenizer.json")))  # programs without languages
    assert plain.encode(TEXTS[0]) == ours.encode(TEXTS[0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mbart", "decoder_start_token_id"), ("mbart-50", "forced_bos_token_id"), ("nllb", "forced_bos_token_id")],
)
def test_the_setting_of_the_output_language(name: str, expected: str, checkpoint: Checkpoint) -> None:
    ours = Tokenizer.load(checkpoint(name))
    code = LANGUAGES[name][1]
    settings = {expected: ours.token_to_id(code)}
    assert ours.for_languages(tgt_lang=code).target_settings({}) == settings
    assert ours.target_settings(settings) == {}  # the model's own
    with pytest.raises(InputError, match=f"output is missing. Expected tgt_lang=.*{code}.*Received: none"):
        ours.target_settings({"forced_bos_token_id": ours.token_to_id("a"), "decoder_start_token_id": 2})
    with pytest.raises(InputError, match="The language of the output is missing"):
        ours.writer.encode("a")
    assert ours.writer.encode("a", add_special_tokens=False) == ours.encode("a", add_special_tokens=False)


def test_published_ids_of_languages(checkpoint: Checkpoint) -> None:
    """The distance from the last piece is that of the published vocabularies."""
    for name, code, last, published in (
        ("mbart", "en_XX", 250000, 250004),
        ("mbart-50", "sl_SI", 250000, 250052),
        ("nllb", "eng_Latn", 256000, 256047),
        ("nllb", "fra_Latn", 256000, 256057),
    ):
        ours = Tokenizer.load(checkpoint(name))
        assert ours.languages[code] - (min(ours.languages.values()) - 1) == published - last
    assert ours.mask_token_id == max(ours.languages.values()) + 1


def test_an_unknown_language_and_a_missing_one(checkpoint: Checkpoint) -> None:
    ours = Tokenizer.load(checkpoint("mbart"))
    with pytest.raises(
        InputError, match="src_lang must be .*one of ar_AR, cs_CZ, .*zh_CN. Received: 'en'. Did you mean 'en_XX'"
    ):
        ours.for_languages("en")
    with pytest.raises(InputError, match="tgt_lang must be .*Received: 'RO_ro'. Did you mean 'ro_RO'"):
        ours.for_languages(tgt_lang="RO_ro")
    with pytest.raises(InputError, match="not marked with a language.*Received: src_lang='en', tgt_lang=None"):
        Tokenizer.load(checkpoint("t5")).for_languages("en")
    assert Tokenizer.load(checkpoint("t5")).languages == {} and ours.languages["de_DE"] == ours.token_to_id("de_DE")
    silent = tiny_text.language_first().for_languages()
    other = type(silent)(silent.backend, family=silent._family, after=False, special_tokens=silent.special_tokens)
    other.src_lang = None
    with pytest.raises(InputError, match="The language of the input is missing. Expected src_lang="):
        other.encode("Rain.")
    assert other.encode("Rain.", add_special_tokens=False) == silent.encode("Rain.")[1:-1]


def test_a_vocabulary_with_other_languages(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Languages are found in the vocabulary; without the default one, the language of the input must be passed."""
    Tokenizer.load(checkpoint("nllb")).save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    renamed = {"eng_Latn": "bik_Latn", "deu_Latn": "<unused>"}
    content["model"]["vocab"] = {renamed.get(token, token): index for token, index in vocabulary.items()}
    for token in content["added_tokens"]:
        token["content"] = renamed.get(token["content"], token["content"])
    template = content["post_processor"]
    content["post_processor"] = json.loads(json.dumps(template).replace("eng_Latn", "bik_Latn"))
    options = {"tokenizer_class": "NllbTokenizer", "eos_token": "</s>"}
    ours = Tokenizer.load(
        write(tmp_path, {"tokenizer.json": content, "tokenizer_config.json": options, "special_tokens_map.json": {}})
    )
    assert isinstance(ours, MultilingualTokenizer) and len(ours.languages) == 201 and ours.src_lang is None
    assert ours.for_languages("bik_Latn").encode("a")[0] == vocabulary["eng_Latn"]
    with pytest.raises(InputError, match="The language of the input is missing"):
        ours.encode("a")


@pytest.fixture(scope="module", params=["m2m100", "wmt21"])
def m2m_100(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, M2m100Tokenizer]:
    options = {"language_codes": request.param, "tokenizer_class": "M2M100Tokenizer", "model_max_length": 40}
    files = {**dictionary(), "config.json": {"model_type": "m2m_100"}, "tokenizer_config.json": options}
    folder = write(tmp_path_factory.mktemp(request.param), files)
    ours = Tokenizer.load(folder)
    assert isinstance(ours, M2m100Tokenizer)
    return transformers.AutoTokenizer.from_pretrained(str(folder)), ours


def test_ids_and_texts_of_m2m_100(m2m_100: tuple[Any, M2m100Tokenizer]) -> None:
    theirs, ours = m2m_100
    assert type(theirs) is transformers.M2M100Tokenizer
    theirs.src_lang, theirs.tgt_lang = "de", "ha"
    spoken = ours.for_languages("de", "ha")
    assert spoken.languages == theirs.lang_code_to_id
    assert spoken.target_settings({}) == {"forced_bos_token_id": theirs.get_lang_id("ha")}
    for text in TEXTS:
        if text == STACKED:
            continue
        ids = theirs.encode(text)
        assert spoken.encode(text) == ids, text
        assert ours.encode(text)[1:] == ids[1:] and ours.encode(text)[0] == theirs.get_lang_id("en")
        assert spoken.encode(text, False) == theirs.encode(text, add_special_tokens=False)
        assert spoken.writer.encode(text) == theirs(text_target=text)["input_ids"]
        assert spoken.encode("a ", False) + spoken.encode(text, False) == spoken.encode("a", False) + ids[1:-1]
        kept = [index for index in ids[1:] if index > 3]
        assert spoken.decode(kept).strip() == theirs.decode(kept), text
        assert spoken.convert_ids_to_tokens(kept) == theirs.convert_ids_to_tokens(kept)
    pair = theirs(TEXTS[0], TEXTS[4])["input_ids"]
    assert spoken(TEXTS[0], TEXTS[4]).input_ids[0].tolist() == pair
    found = {index for text in TEXTS for index in ours.backend.encode(text).ids}
    assert max(found) >= ours.vocab_size, "the dictionary must lack a piece"
    assert ours.vocab_size == len(theirs.encoder) + len(theirs.lang_code_to_id)
    assert ours.get_vocab() == {**theirs.encoder, **theirs.lang_token_to_id}


def test_offsets_of_m2m_100_are_the_parts_of_the_text(m2m_100: tuple[Any, M2m100Tokenizer]) -> None:
    _, ours = m2m_100
    text = "Alice was tired of the Rabbit!"
    encoding = ours(text)
    found = [text[start:end].strip() for start, end in encoding.offsets[0][1:-1]]
    known = ours.convert_ids_to_tokens(encoding.input_ids[0][1:-1])
    assert "".join(found) == text.replace(" ", "")
    assert all(token in ("<unk>", "▁" + part, part) for token, part in zip(known, found, strict=True))


def test_saved_files_of_m2m_100(m2m_100: tuple[Any, M2m100Tokenizer], tmp_path: Path) -> None:
    """Both libraries load them; no `tokenizer.json` could have the pieces that the dictionary lacks."""
    _, ours = m2m_100
    ours.for_languages("de", "en").save(tmp_path)
    assert not ours.portable and not (tmp_path / "tokenizer.json").exists()
    again, theirs = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert (again.src_lang, again.tgt_lang, again.languages) == ("de", "en", ours.languages)
    for text in TEXTS[:3]:
        assert again.encode(text) == theirs.encode(text)


def test_damaged_files_of_m2m_100(tmp_path: Path) -> None:
    good = {**dictionary(), "tokenizer_config.json": {"tokenizer_class": "M2M100Tokenizer"}}
    vocabulary = good["vocab.json"]
    for change, message in (
        ({"vocab.json": {**vocabulary, "a": 9999}}, "each id from 0 to"),
        ({"vocab.json": {t: i for i, t in enumerate(t for t in vocabulary if t != "</s>")}}, "lacks special.*'</s>'"),
        ({"sentencepiece.bpe.model": dictionary()["sentencepiece.bpe.model"][:99]}, "not a readable SentencePiece"),
        (
            {"tokenizer_config.json": {"tokenizer_class": "M2M100Tokenizer", "language_codes": "x"}},
            "must be 'm2m100' or",
        ),
    ):
        folder = write(tmp_path / message[:9].strip(), {**good, **change})
        with pytest.raises(TokenizerError, match=message):
            Tokenizer.load(folder)

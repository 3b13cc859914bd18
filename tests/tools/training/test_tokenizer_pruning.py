"""Pruned vocabularies: texts keep their tokens, transformers reads the same ids, and lost characters are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import processors

from kerasformer.errors import InputError, TokenizerError
from kerasformer.tokenization import Tokenizer, hard_texts
from kerasformer.tools.training.tokenizer_pruning import prune_tokenizer
from tests import tiny_text
from tests.core.tokenization.conftest import CASES, Checkpoint, dictionary, write
from tests.core.tokenization.samples import CORPUS
from tests.core.tokenization.test_parity import reference
from tests.grids import grid

pytestmark = pytest.mark.grid

KEPT, DROPPED = [*CORPUS[:5], CORPUS[8]], CORPUS[9]
"""English and German sentences, and one in Russian, Greek, Japanese and Korean."""
OTHER = "Quick wizards jump over the lazy book, vexing 7 daisies: £5 & ünique!"
FEW = ("bert-cased", "xlm-roberta", "mbart", "nllb", "m2m_100", "gpt2", "roberta-prefix", "t5", "gemma", "openai-gpt")


@pytest.fixture(scope="module")
def folder_of(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Function that returns the folder of a case; `m2m_100` has a dictionary, which lacks some pieces."""
    options = {"tokenizer_class": "M2M100Tokenizer"}
    files = {**dictionary(), "config.json": {"model_type": "m2m_100"}, "tokenizer_config.json": options}
    folder = write(tmp_path_factory.mktemp("m2m_100"), files)
    return lambda name: folder if name == "m2m_100" else checkpoint(name)


@pytest.mark.parametrize("name", grid([*CASES, "m2m_100"], always=FEW, others="release"))
def test_texts_keep_their_tokens(name: str, folder_of: Checkpoint, tmp_path: Path) -> None:
    ours = Tokenizer.load(folder_of(name))
    pruned = prune_tokenizer(ours, KEPT)
    small = pruned.tokenizer
    assert small.vocab_size == len(pruned.ids) == pruned.report.tokens_after < ours.vocab_size
    assert pruned.ids.tolist() == sorted(set(pruned.ids.tolist()))
    assert small.special_tokens == ours.special_tokens and small.model_max_length == ours.model_max_length
    for text in KEPT:
        assert pruned.ids[small.encode(text)].tolist() == ours.encode(text), text
        assert small.tokenize(text) == ours.tokenize(text)
        assert small.decode(small.encode(text)) == ours.decode(ours.encode(text))
    pair = ours(KEPT[0], KEPT[1])
    again = small(KEPT[0], KEPT[1])
    assert pruned.ids[again.input_ids].tolist() == pair.input_ids.tolist()
    assert again.token_type_ids.tolist() == pair.token_type_ids.tolist()
    assert pruned.report.unchanged_texts == len(KEPT)
    assert pruned.report.text_tokens_after == pruned.report.text_tokens_before
    small.save(tmp_path)
    theirs = reference(tmp_path)
    for text in [*KEPT, *([] if name == "m2m_100" else [OTHER])]:
        assert Tokenizer.load(tmp_path).encode(text) == small.encode(text) == theirs.encode(text), text


@pytest.mark.parametrize("kind", ["template", "roberta", "bert", "sequence"])
def test_special_tokens_after_the_vocabulary(kind: str) -> None:
    """They have new ids, also where post-processors add them."""
    backend = tiny_text.Backend.from_str(tiny_text.byte_pairs().backend.to_str())
    backend.add_special_tokens(["[CLS]", "[SEP]"])
    cls, sep = ((token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]"))
    of_bert = processors.BertProcessing(sep, cls)
    backend.post_processor = {
        "template": processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[cls, sep]),
        "roberta": processors.RobertaProcessing(sep, cls),
        "bert": of_bert,
        "sequence": processors.Sequence([processors.ByteLevel(), of_bert]),
    }[kind]
    ours = Tokenizer(backend, special_tokens={"cls_token": "[CLS]", "sep_token": "[SEP]", "eos_token": "<|endoftext|>"})
    pruned = prune_tokenizer(ours, ["a text"])
    ids = pruned.tokenizer.encode("a text")
    assert pruned.ids[ids].tolist() == ours.encode("a text") and ids[0] == pruned.tokenizer.cls_token_id != cls[1]


@pytest.mark.parametrize("name", grid(CASES, always=FEW, others="release"))
def test_other_texts_are_split_into_shorter_tokens(name: str, folder_of: Checkpoint) -> None:
    """No text of the same characters has unknown tokens, unless it had some before."""
    ours = Tokenizer.load(folder_of(name))
    for options in ({}, {"min_count": 3}, {"coverage": 0.5}):
        pruned = prune_tokenizer(ours, KEPT, **options)
        before, after = ours.encode(OTHER), pruned.tokenizer.encode(OTHER)
        assert after.count(pruned.tokenizer.unk_token_id) <= before.count(ours.unk_token_id)
        assert len(after) >= len(before)
        assert pruned.report.unknown_after <= pruned.report.unknown_before
    assert pruned.report.unchanged_texts < len(KEPT)
    assert pruned.report.text_tokens_after > pruned.report.text_tokens_before
    assert pruned.report.tokens_after < prune_tokenizer(ours, KEPT).report.tokens_after


@pytest.mark.parametrize(
    "name", grid(CASES, always=("bert-cased", "xlm-roberta", "nllb", "gpt2", "gemma"), others="release")
)
def test_removed_characters_are_named(name: str, folder_of: Checkpoint, tmp_path: Path) -> None:
    ours = Tokenizer.load(folder_of(name))
    prune_tokenizer(ours, KEPT).tokenizer.save(tmp_path)
    small = Tokenizer.load(tmp_path)
    if ours.unk_token_id not in ours.encode("日") and ours.unk_token_id in ours.encode("龘"):
        assert small.dropped_characters and "日" in small.dropped_characters
        with pytest.raises(InputError, match="removed from the vocabulary .*Received: '日'. Prune"):
            small.encode("a 日!")
        with pytest.raises(InputError, match="Received: .* and [0-9]+ more"):
            small(["a", "b"], [DROPPED, "c"])
        with pytest.raises(InputError, match="'日'"):
            small([["a", "日"]], is_split_into_words=True)
        assert small.unk_token_id in small.encode("龘")  # as before
        assert 0 < len(hard_texts.hard_texts(small)) < len(hard_texts.hard_texts(ours))
    else:  # all characters consist of bytes
        assert not small.dropped_characters
        assert small.decode(small.encode(DROPPED), True) == ours.decode(ours.encode(DROPPED), True)


def test_scripts_of_the_texts_remain() -> None:
    """A script with few letters does not; digits, punctuation marks and symbols always do."""
    characters = ["а", "б", "я", "日", "語", "a", "z", "é", "7", "€", "🙂", "▁"]
    pieces = [("<unk>", 0.0), *((each, -float(index)) for index, each in enumerate([*characters, "ня", "да"]))]
    backend = tiny_text.Backend(tiny_text.models.Unigram(pieces, unk_id=0))
    ours = Tokenizer(backend, special_tokens={"unk_token": "<unk>"})

    def kept(*texts: str) -> set[str]:
        return set(prune_tokenizer(ours, texts).tokenizer.get_vocab()) - {"<unk>"}

    common = {"a", "z", "é", "7", "€", "🙂", "▁"}
    assert kept("да") == common | {"а", "б", "я", "да"}
    assert kept("да" * 98 + "日" * 4) == kept("да") | {"日", "語"}
    assert kept("да" * 100 + "日") == kept("да") | {"日"}
    assert kept("a") == common | {"да"}  # its score is the lowest, on which that of unknown characters depends


def test_the_parts_of_byte_pair_encoding_remain() -> None:
    """Parts that no text shows as tokens; but not other ways to merge the same token."""
    tokens = ["a", "b", "c", "d", "bc", "ab", "abc", "cd", "abcd"]
    merges = [("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c"), ("c", "d"), ("ab", "cd")]
    backend = tiny_text.Backend(tiny_text.models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    pruned = prune_tokenizer(Tokenizer(backend), ["abc"])
    assert set(pruned.tokenizer.get_vocab()) == {"a", "b", "c", "d", "bc", "abc"}
    assert json.loads(pruned.tokenizer.backend.to_str())["model"]["merges"] == [["b", "c"], ["a", "bc"]]
    assert pruned.tokenizer.tokenize("abc") == ["abc"] and pruned.tokenizer.tokenize("abcd") == ["abc", "d"]


def test_pieces_that_were_only_parts_are_named(folder_of: Checkpoint) -> None:
    """The dictionary of M2M-100 lacks them: they would be unknown tokens where the original has a longer one."""
    ours = Tokenizer.load(folder_of("m2m_100"))
    unknown = {text: ours.encode(text).count(ours.unk_token_id) for text in KEPT}
    assert any(unknown.values())  # of pieces that are tokens of these texts
    for options in ({}, {"min_count": 3}):
        small = prune_tokenizer(ours, KEPT, **options).tokenizer
        for text in KEPT:
            assert small.encode(text).count(small.unk_token_id) <= unknown[text]
    assert len(small.encode("the sister of Alice")) > len(ours.encode("the sister of Alice"))
    with pytest.raises(InputError, match="Received: 'q'. Prune"):
        small.encode("a quiet night")


@pytest.mark.parametrize(
    ("name", "codes", "other"),
    [
        ("mbart", ["de_DE", "en_XX"], "ro_RO"),
        ("nllb", ["deu_Latn", "eng_Latn"], "fra_Latn"),
        ("m2m_100", ["de", "en"], "fr"),
    ],
)
def test_languages(name: str, codes: list[str], other: str, folder_of: Checkpoint, tmp_path: Path) -> None:
    """Other languages keep their tokens, since classes of transformers add them, but are unknown."""
    ours = Tokenizer.load(folder_of(name))
    pruned = prune_tokenizer(ours, KEPT, languages=codes)
    pruned.tokenizer.save(tmp_path)
    for small in (pruned.tokenizer, Tokenizer.load(tmp_path)):
        assert sorted(small.languages) == codes and small.src_lang == codes[1]
        with pytest.raises(InputError, match=f"one of {codes[0]}, {codes[1]}. Received: '{other}'"):
            small.for_languages(other)
    theirs = reference(tmp_path)
    for theirs.src_lang in codes:
        spoken = small.for_languages(theirs.src_lang)
        assert spoken.encode(KEPT[0]) == theirs.encode(KEPT[0])
        expected = ours.for_languages(theirs.src_lang).encode(KEPT[0])
        assert pruned.ids[spoken.encode(KEPT[0])].tolist() == expected
    assert small.for_languages(tgt_lang=codes[0]).target_settings({}) != {}
    with pytest.raises(InputError, match="The language of the output is missing"):
        small.target_settings({"forced_bos_token_id": theirs.convert_tokens_to_ids(other)})
    alone = prune_tokenizer(ours, KEPT, languages=codes[:1]).tokenizer
    assert alone.src_lang is None and list(alone.languages) == codes[:1]


def test_wrong_arguments(folder_of: Checkpoint) -> None:
    ours = Tokenizer.load(folder_of("mbart"))
    for tokenizer, options, message in (
        (ours, {"texts": []}, "texts must be a non-empty list"),
        (ours, {"texts": ["\ud800"]}, "without lone surrogates"),
        (ours, {"languages": ["de"]}, "languages must be a language of the model.*Received: 'de'. Did you mean 'de_DE"),
        (tiny_text.wordpiece(), {"languages": ["de"]}, "not marked with a language.*no languages"),
        (tiny_text.marian(), {}, "cannot be pruned.*a vocabulary for each side"),
    ):
        with pytest.raises(InputError, match=message):
            prune_tokenizer(tokenizer, **{"texts": KEPT, **options})


def test_wrong_settings(copied: Checkpoint) -> None:
    for options, message in (
        ({"dropped_characters": 3}, "dropped_characters .*must be a string"),
        ({"kept_languages": ["xx_XX"]}, "lacks tokens that are added to each text"),
    ):
        with pytest.raises(TokenizerError, match=message):
            Tokenizer.load(copied("mbart", tokenizer_config__json={"tokenizer_class": "MBartTokenizer", **options}))

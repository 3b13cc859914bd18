"""BERTweet's tokenizer, compared with that of transformers, which has no offsets; those are checked by their texts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from kerasformer.errors import InputError, MissingExtraError, TokenizerError
from kerasformer.tokenization import Tokenizer, hard_texts, has_tokenizer
from tests.core.tokenization.conftest import write
from tests.core.tokenization.samples import CORPUS, TEXTS

TWEETS = [
    "SC has first two presumptive cases of coronavirus , DHEC confirms HTTPURL via @USER :cry:",
    "RT @alice_42: I can't believe it… don't you? 😂😂 https://t.co/x1?a=b(c) www.rabbit.com/tea #late_again :-) <3",
    "cannot wait, isn't it? It's 5 p.m. I'm sure they've said we'll ain't he'd ’tis",
    "&lt;b&gt; &amp; &#169; &#x1F600; &#150; &unknown; &#xZZ; AT&T; <b>bold</b> --> <-- a@b.co x.y@rabbit.org.uk",
    "!!!!!!!!! ------ ......... . . . call +1 (800) 555-0199 or 555 0199 now; 3.14 1,000 10:30 -5/6",
    "rabbit.com foo@_gmail.com e.g. http://a.b/(c(d)e)f. Alice's daisy-chain o'clock :D 8-P [: =]",
    "the Rabbit\nsaid\n\n oh dear\r\n<mask> <mask>late <s>pad</s> <pad>\n<unk>",
    "what???? wow!!!!! oh,,,, no....",
    "ni\u0303o e\u0301 हिन्दी ไทย Straße İstanbul ﬁ 👩‍👩‍👧 🇩🇪 ❤️",
]


def files(options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the files of a tiny tokenizer; every seventh piece that merges form is missing in its vocabulary."""
    backend = Backend(models.BPE(end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=420, end_of_word_suffix="</w>", show_progress=False)
    backend.train_from_iterator([*CORPUS, *TWEETS], trainer)
    model = json.loads(backend.to_str())["model"]
    merges = [rule if isinstance(rule, list) else rule.split(" ") for rule in model["merges"]]
    pieces = [token.removesuffix("</w>") if token.endswith("</w>") else f"{token}@@" for token in model["vocab"]]
    kept = [piece for index, piece in enumerate(dict.fromkeys(pieces)) if index % 7 or len(piece) < 4]
    return {
        "vocab.txt": "".join(f"{piece} {1000 - index}\n" for index, piece in enumerate(kept)),
        "bpe.codes": "".join(f"{first} {second} {1000 - index}\n" for index, (first, second) in enumerate(merges)),
        "config.json": {"model_type": "roberta", "tokenizer_class": "BertweetTokenizer"},
        "tokenizer_config.json": {"model_max_length": 128, **(options or {})},
    }


@pytest.fixture(scope="module")
def named_emoji() -> Any:
    """A package `emoji` that knows some names, for both implementations."""
    names = {"😂": ":face_with_tears_of_joy:", "❤": ":red_heart:", "👩": ":woman:"}
    package = ModuleType("emoji")
    package.demojize = lambda text: "".join(names.get(each, each) for each in text)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "emoji", package)
        yield


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "normalized"])
def both(request: Any, tmp_path_factory: Any, named_emoji: None) -> tuple[Any, Tokenizer, Path]:
    options = {"normalization": True} if request.param else {}
    folder = write(tmp_path_factory.mktemp("bertweet"), files(options))
    return transformers.AutoTokenizer.from_pretrained(str(folder)), Tokenizer.load(folder), folder


def test_ids_and_tokens(both):
    theirs, ours, _ = both
    assert type(theirs).__name__ == "BertweetTokenizer" and theirs.normalization == ours.normalization
    for text in [*TWEETS, *TEXTS, *CORPUS]:
        for special in (True, False):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, special) == ids, text
        assert ours.convert_ids_to_tokens(ids) == theirs.convert_ids_to_tokens(ids)
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), text
    used = {index for text in TWEETS for index in ours.encode(text)}
    assert ours.unk_token_id in used and ours.mask_token_id in used and len(used) > 100
    assert ours.get_vocab() == theirs.get_vocab() and ours.all_special_ids == sorted(set(theirs.all_special_ids))


def test_batches_of_pairs(both):
    theirs, ours, _ = both
    expected = theirs(TWEETS, TWEETS[::-1], padding=True, return_tensors="np", return_special_tokens_mask=True)
    received = ours(TWEETS, TWEETS[::-1])
    np.testing.assert_array_equal(received.input_ids, expected["input_ids"])
    np.testing.assert_array_equal(received.attention_mask, expected["attention_mask"])
    np.testing.assert_array_equal(received.special_tokens_mask, expected["special_tokens_mask"])
    assert list(received.inputs) == ["input_ids", "attention_mask"] and not received.token_type_ids.any()
    assert ours.num_special_tokens(pair=True) == theirs.num_special_tokens_to_add(pair=True)
    short = theirs(TWEETS[1], "late", truncation="only_first", max_length=40)["input_ids"]
    with pytest.warns(UserWarning, match="tokens"):
        assert ours(TWEETS[1], "late", truncation="only_first", max_length=40).input_ids[0].tolist() == short


def test_words(both):
    theirs, ours, _ = both
    words = TWEETS[1].split()
    received = ours(words, is_split_into_words=True)
    assert received.input_ids[0].tolist() == theirs(words, is_split_into_words=True)["input_ids"]
    spans = zip(received.word_ids[0], received.offsets[0], strict=True)
    assert all(0 <= start < end <= len(words[word]) for word, (start, end) in spans if word >= 0)


def test_offsets_show_the_text_of_each_token(both):
    _, ours, _ = both
    for text in (*TWEETS, *CORPUS):
        encoded = ours(text)
        rows = list(zip(encoded.tokens(), encoded.offsets[0], encoded.word_ids[0], strict=True))[1:-1]
        ends = [0, 0]
        for token, (start, end), word in rows:
            assert 0 <= start < end <= len(text) and start >= ends[0] and word >= 0
            ends = [start, end]
            if not ours.normalization and token != "<unk>":
                assert text[start:end] == token.removesuffix("@@")
    text = "I can't 😂 &amp; @alice saw http://a.bc/d!"
    encoded = ours(text)
    spans = {text[start:end] for start, end in encoded.offsets[0].tolist()}
    if ours.normalization:
        assert {"I", "😂", "&amp;", "@alice", "http://a.bc/d", "!"} <= spans


def test_saved_folder_is_loaded_by_both(both, tmp_path):
    theirs, ours, _ = both
    ours.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bpe.codes", "special_tokens_map.json", "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip
    again, other = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(str(tmp_path), config=None)
    for text in TWEETS:
        assert again.encode(text) == other.encode(text) == ours.encode(text)
    assert again.special_tokens == ours.special_tokens and again.model_max_length == 128
    assert not again.portable and hard_texts.hard_texts(again)


@pytest.mark.parametrize("listed", [True, False])
def test_flags_of_the_mask_token(tmp_path, listed):
    """transformers reads them only from `added_tokens_decoder`."""
    mask = {"content": "<mask>", "lstrip": True, "rstrip": True, "special": True, "normalized": False}
    content = files()
    index = str(4 + content["vocab.txt"].count("\n"))
    options = {"added_tokens_decoder": {index: mask}} if listed else {"mask_token": {"__type": "AddedToken", **mask}}
    folder = write(tmp_path, content | {"tokenizer_config.json": options})
    theirs, ours = transformers.AutoTokenizer.from_pretrained(str(folder)), Tokenizer.load(folder)
    for text in ("the Rabbit\n<mask> said", "<mask>\n <mask>\nthe", "Alice <mask>"):
        assert ours.encode(text) == theirs.encode(text), text
    encoded = ours("Alice  <mask> said")
    assert encoded.offsets[0].tolist()[encoded.input_ids[0].tolist().index(ours.mask_token_id)] == [7, 13]
    assert (ours.encode("the\n<mask>") == ours.encode("the<mask>")) is listed


def test_files_alone_are_recognized(tmp_path):
    content = files()
    expected = Tokenizer.load(write(tmp_path / "whole", content))
    alone = write(tmp_path / "alone", {name: content[name] for name in ("vocab.txt", "bpe.codes")})
    assert has_tokenizer(alone)
    assert [Tokenizer.load(alone).encode(text) for text in TWEETS] == [expected.encode(text) for text in TWEETS]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab.txt": "a 1\nb\n"}, "a new token and a number in each line. Received: 'b' in line 2"),
        ({"vocab.txt": "a 1\na 2\n"}, "Received: 'a 2' in line 2"),
        ({"bpe.codes": "a\n"}, "bpe.codes must have two parts and a number"),
        ({"tokenizer_config.json": {"normalization": "yes"}}, "normalization in .* must be True or False"),
    ],
    ids=["vocabulary", "repeated", "one part", "option"],
)
def test_damage(tmp_path, changes, message):
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.load(write(tmp_path, files() | changes))


def test_what_it_cannot_do(both, tmp_path, monkeypatch):
    _, ours, folder = both
    with pytest.raises(InputError, match="lone surrogate"):
        ours("a\ud800b")
    monkeypatch.setitem(sys.modules, "regex", None)
    if ours.normalization:
        with pytest.raises(MissingExtraError, match=r"regex is required.*\[tweets\]"):
            Tokenizer.load(folder)

"""Batches, sides, lengths, warnings and errors of a loaded tokenizer."""

from __future__ import annotations

import copy
import json
import pickle
import sys
import threading
import warnings

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from kerasformer.errors import InputError, MissingExtraError, TokenizerError
from kerasformer.tokenization import Tokenizer, TruncationWarning
from tests.core.tokenization.samples import TEXTS
from tests.extras import need

LONG = "Alice was beginning to get very tired of sitting by her sister " * 3


@pytest.fixture
def bert(checkpoint):
    return Tokenizer.load(checkpoint("bert-cased"))


@pytest.fixture
def gpt2(checkpoint):
    return Tokenizer.load(checkpoint("gpt2"))


def test_model_inputs(bert, gpt2, checkpoint):
    assert set(bert("a").inputs) == {"input_ids", "attention_mask", "token_type_ids"}
    assert set(gpt2("a").inputs) == {"input_ids", "attention_mask"}
    assert set(Tokenizer.load(checkpoint("distilbert"))("a").inputs) == {"input_ids", "attention_mask"}
    assert set(Tokenizer.load(checkpoint("albert"))("a").inputs) == set(bert("a").inputs)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_side(bert, side):
    bert.padding_side = side
    batch = bert(["the", "the White Rabbit"])
    mask = batch.attention_mask[0]
    assert mask.sum() == 3
    assert mask[0] == (side == "right")
    assert (batch.input_ids[0][mask == 0] == bert.pad_token_id).all()
    assert (batch.special_tokens_mask[0][mask == 0] == 1).all()
    assert (batch.word_ids[0][mask == 0] == -1).all()
    other = "left" if side == "right" else "right"
    np.testing.assert_array_equal(
        bert(["the"], padding_side=other, pad_to=5).attention_mask[0][::-1][:3].sum() == 3, other == "left"
    )


def test_gpt2_pads_with_its_end_token(gpt2):
    batch = gpt2(["a", "a long text"], padding_side="left")
    assert gpt2.pad_token is None and gpt2.pad_token_id is None
    assert batch.input_ids[0, 0] == gpt2.eos_token_id
    assert batch.attention_mask[0, 0] == 0


def test_padding_requires_a_token():
    backend = Backend(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = Tokenizer(backend)
    assert tokenizer(["a b", "b a"]).input_ids.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InputError, match="require a padding token"):
        tokenizer(["a", "b a"])


def test_padded_lengths(bert):
    text = "the Rabbit"
    length = len(bert.encode(text))
    assert bert(text, pad_to=50).input_ids.shape == (1, 50)
    assert bert(text, pad_to=[4 * length, length + 1, 2]).input_ids.shape == (1, length + 1)
    assert bert(text, pad_to=[4 * length, length]).input_ids.shape == (1, length)
    assert bert(text, pad_to=2).input_ids.shape == (1, length)
    assert bert(text, padding="max_length", max_length=33).input_ids.shape == (1, 33)
    assert bert(text, padding="max_length").input_ids.shape == (1, bert.model_max_length)
    assert bert([text, text], padding=False).input_ids.shape == (2, length)
    with pytest.raises(InputError, match="all rows must have the same length"):
        bert([text, "a"], padding=False)


def test_truncation_warns_about_lost_tokens(bert):
    total = len(bert.encode(LONG))
    message = rf"truncated to 20 tokens: text 1 lost {total - 20} of {total} tokens$"
    with pytest.warns(TruncationWarning, match=message):
        batch = bert(["the", LONG], truncation=True, max_length=20)
    assert batch.input_ids.shape == (2, 20)
    with pytest.warns(TruncationWarning, match="truncated to 64") as caught:
        assert bert(LONG * 3, truncation=True).input_ids.shape == (1, 64)
    assert caught[0].filename == __file__, "the warning points to the caller"
    with pytest.warns(TruncationWarning, match="text 4 lost .* tokens, and 2 more texts were truncated$"):
        bert([LONG] * 7, truncation=True, max_length=20)


def test_there_is_no_warning_if_nothing_is_lost(bert):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bert("the", truncation=True).input_ids.shape == (1, 3)
        assert bert(LONG).input_ids.shape[1] > 64 or bert(LONG * 3).input_ids.shape[1] > 64
        batch = bert(LONG, truncation=True, max_length=10, stride=2, return_overflowing_tokens=True)
    assert batch.overflow_to_sample.tolist() == [0] * len(batch.input_ids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": []}, "at least one text. Received: an empty batch"),
        ({"text": None}, "must be a str or a list of str. Received: NoneType"),
        ({"text": ["a", 5]}, "Received: int, str"),
        ({"text": b"a"}, "Received: bytes"),
        ({"text": ["a", "b"], "text_pair": ["c"]}, "same number of texts. Received: 2 and 1"),
        ({"text": ["a", "\ud83d"], "text_pair": ["b", "c"]}, "surrogate"),
        ({"text": ["a \ud83d"], "is_split_into_words": True}, "surrogate"),
        ({"text": [["a"], "b"], "is_split_into_words": True}, "must be a list of words"),
        ({"text": "a", "padding": "widest"}, "padding must be True, False, 'longest', 'max_length' or 'do_not_pad'"),
        ({"text": "a", "pad_to": "x"}, "pad_to must be"),
        ({"text": "a", "pad_to_multiple_of": 0}, "pad_to_multiple_of must be an integer of at least 1"),
        ({"text": "a", "return_tensors": "mx"}, "return_tensors must be 'np', 'tf', 'jax' or 'pt'"),
        ({"text": "a", "truncation": True, "max_length": 9, "stride": -1}, "stride must be an integer"),
        ({"text": "a", "padding_side": "top"}, "padding_side must be 'left' or 'right'. Received: 'top'"),
        ({"text": "a", "truncation": "both"}, "truncation must be"),
        ({"text": "a", "truncation": True, "max_length": 0}, "max_length must be an integer of at least 1"),
        ({"text": "a", "max_length": 4}, "max_length has no effect without truncation.*Set truncation=True"),
        ({"text": LONG * 3, "padding": "max_length"}, "at most 64 tokens. Received: .* Set truncation"),
        ({"text": "a", "padding": "do_not_pad", "pad_to_multiple_of": 8}, "require padding. Received: 'do_not_pad'"),
        ({"text": "a", "add_special_tokens": "no"}, "add_special_tokens must be True or False"),
        ({"text": "a", "return_overflowing_tokens": True}, "return_overflowing_tokens and stride require truncation"),
        (
            {"text": "a", "text_pair": "b", "truncation": True, "return_overflowing_tokens": True},
            "requires .*only_first",
        ),
        (
            {"text": LONG, "truncation": True, "max_length": 9, "stride": 7, "return_overflowing_tokens": True},
            "stride must be",
        ),
    ],
)
def test_bad_input(bert, arguments, message):
    with pytest.raises(InputError, match=message):
        bert(**arguments)


def test_a_batch_is_a_mapping(bert):
    batch = bert(["the", "the White Rabbit"])
    assert list(batch) == list(batch.keys()) == ["input_ids", "token_type_ids", "attention_mask"]
    assert len(batch) == 3 and "input_ids" in batch and "offsets" not in batch
    assert (lambda input_ids, **rest: input_ids)(**batch) is batch.input_ids
    assert dict(batch) == batch.inputs
    extended = bert("the", return_offsets_mapping=True, return_special_tokens_mask=True)
    assert extended["offset_mapping"].tolist() == [[[0, 0], [0, 3], [0, 0]]]
    assert extended["special_tokens_mask"].tolist() == [[1, 0, 1]]
    with pytest.raises(KeyError, match="expected one of input_ids, token_type_ids, attention_mask"):
        batch["labels"]
    assert repr(batch).startswith("Encoding of 2 x 8 tokens\n  input_ids: [[") and "attention_mask" in repr(batch)
    assert batch.tokens(0) == ["[CLS]", "the", "[SEP]"] and len(batch.tokens(1)) == 8
    cut = bert("the White Rabbit", truncation=True, max_length=5, return_overflowing_tokens=True)
    assert [cut.tokens(row)[1] for row in (0, 1)] == [batch.tokens(1)[1], batch.tokens(1)[4]]
    assert cut.positions.tolist() == [[0, 1, 2, 3, 7], [0, 4, 5, 6, 7]]
    assert "vocab_size" in repr(bert)


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        (None, "numpy"),
        ("np", "numpy"),
        ("tf", "tensorflow"),
        pytest.param("jax", "jax", marks=pytest.mark.grid),
        ("pt", "torch"),
    ],
)
def test_tensors_of_each_framework(bert, kind, package):
    need(package)
    batch = bert(["the", "the White Rabbit"], return_tensors=kind)
    tensor = batch["input_ids"]
    assert any(package in base.__module__ for base in type(tensor).__mro__) or package in type(tensor).__module__
    np.testing.assert_array_equal(np.asarray(tensor), bert(["the", "the White Rabbit"]).input_ids)
    for name in ("input_ids", "attention_mask", "token_type_ids", "offsets", "overflow_to_sample"):
        assert type(getattr(batch, name)) is type(tensor), name
    batch.add_array("more", np.ones(2))
    assert type(batch.inputs["attention_mask"]) is type(batch["more"]) is type(batch.more) is type(tensor)
    assert "input_ids" in repr(batch)


def test_a_framework_that_is_not_installed(bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="return_tensors='pt' needs torch"):
        bert("the", return_tensors="pt")


def test_padded_lengths_are_rounded(bert):
    assert bert("the", pad_to_multiple_of=8).input_ids.shape == (1, 8)
    assert bert("the", padding="longest").input_ids.shape == bert("the", padding="do_not_pad").input_ids.shape
    assert bert(LONG, truncation="do_not_truncate").input_ids.shape == bert(LONG).input_ids.shape


def test_a_tokenizer_without_maximum_length(gpt2):
    assert gpt2.model_max_length is None
    with pytest.raises(InputError, match="truncation requires max_length"):
        gpt2("a", truncation=True)
    with pytest.raises(InputError, match="requires max_length"):
        gpt2("a", padding="max_length")


def test_decode(bert):
    ids = bert.encode("the White Rabbit")
    assert bert.decode(ids, skip_special_tokens=True) == "the White Rabbit"
    assert bert.decode(np.array(ids)) == "[CLS] the White Rabbit [SEP]"
    assert bert.batch_decode(np.array([ids, ids]), True) == ["the White Rabbit"] * 2
    assert bert.decode([]) == ""
    assert bert.decode([*ids, 10**6]) == bert.decode(ids)
    for bad in ([[1, 2]], [0.5], [-100, 1], [2**40], "abc"):
        with pytest.raises(InputError, match="flat sequence of non-negative 32-bit integers"):
            bert.decode(bad)
    assert bert.id_to_token(-1) is bert.id_to_token(10**12) is bert.token_to_id("Zebra") is None


@pytest.mark.parametrize(
    ("name", "argument"),
    [("token_to_id", 5), ("id_to_token", "x"), ("id_to_token", 1.5), ("batch_decode", 5), ("batch_decode", "ab"),
     ("convert_tokens_to_ids", 5), ("convert_tokens_to_ids", [5]), ("convert_ids_to_tokens", "x"), ("encode", None),
     ("tokenize", 5), ("decode", None)],
    ids=str,
)  # fmt: skip
def test_arguments_of_a_wrong_type(bert, name, argument):
    with pytest.raises(InputError, match="Received"):
        getattr(bert, name)(argument)


def test_lone_surrogates_are_unknown(bert):
    assert bert.token_to_id("\ud83d") is None
    assert bert.convert_tokens_to_ids("\ud83d") == bert.unk_token_id


def test_clean_up_of_spaces(copied):
    plain = Tokenizer.load(copied("t5"))
    cleaning = Tokenizer.load(copied("t5", tokenizer_config__json={"clean_up_tokenization_spaces": True}))
    ids = plain.encode("it is late . is n't it ?", add_special_tokens=False)
    assert plain.decode(ids) == "it is late . is n't it ?"
    assert cleaning.decode(ids) == "it is late. isn't it?"
    gpt2 = Tokenizer.load(copied("gpt2", tokenizer_config__json={"clean_up_tokenization_spaces": True}))
    assert gpt2.decode(gpt2.encode("late . is n't")) == "late . is n't", "in BPE, spaces are part of the text"


def test_threads_share_a_tokenizer(bert):
    expected = {limit: None for limit in (8, 16, 1000)}
    failures = []

    def work(limit):
        for _ in range(30):
            shape = bert(
                LONG, truncation="only_first", max_length=limit, return_overflowing_tokens=True
            ).input_ids.shape
            expected[limit] = expected[limit] or shape
            if shape != expected[limit] or shape[1] > limit:
                failures.append((limit, shape))

    threads = [threading.Thread(target=work, args=(limit,)) for limit in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_copies_and_pickles(bert):
    for twin in (copy.deepcopy(bert), pickle.loads(pickle.dumps(bert))):
        assert [twin.encode(text) for text in TEXTS] == [bert.encode(text) for text in TEXTS]
        assert twin.special_tokens == bert.special_tokens


def test_missing_special_tokens_are_added(gpt2):
    size = gpt2.vocab_size
    tokenizer = Tokenizer(gpt2.backend, special_tokens={"eos_token": gpt2.eos_token, "pad_token": "<new>"})
    assert tokenizer.vocab_size == size + 1
    assert tokenizer.pad_token_id == size
    assert tokenizer.all_special_ids == [gpt2.eos_token_id, size]


def test_saved_configuration_contains_what_transformers_4_would_override(checkpoint, tmp_path):
    Tokenizer.load(checkpoint("gpt2-bos")).save(tmp_path)
    options = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert options["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert options["add_prefix_space"] is True
    assert options["pad_token"] == "[PAD]"


def test_save_leaves_no_temporary_files(bert, tmp_path):
    bert.save(tmp_path / "new" / "folder")
    names = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert names == ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TokenizerError, match="cannot be written to"):
        bert.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "in the way"

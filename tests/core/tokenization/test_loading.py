"""Loading of tokenizers: which files are read, and errors."""

from __future__ import annotations

import json
import shutil

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from kerasformer.errors import CheckpointError, SourceError, TokenizerError
from kerasformer.files import base_models
from kerasformer.tokenization import Tokenizer, has_tokenizer
from tests.core.tokenization.conftest import CASES, write
from tests.core.tokenization.samples import TEXTS

TEXT = "The Rabbit said: über [MASK] 🙂"


def without_config(name):
    return {"config__json": None, "tokenizer_config__json": None}


@pytest.mark.parametrize("name", ["bert-uncased", "gpt2", "roberta", "t5", "albert"])
def test_a_vocabulary_alone_is_recognized(name, checkpoint, copied):
    expected, alone = Tokenizer.load(checkpoint(name)), Tokenizer.load(copied(name, **without_config(name)))
    assert [alone.encode(text) for text in TEXTS] == [expected.encode(text) for text in TEXTS]
    assert alone.special_tokens == expected.special_tokens


@pytest.mark.parametrize("name", ["camembert", "xlm-roberta"])
def test_pieces_without_a_class_are_refused(name, copied):
    """The file does not show which special tokens precede its pieces."""
    with pytest.raises(TokenizerError, match=r"class of .*sentencepiece.bpe.model is unknown.*Add config.json"):
        Tokenizer.load(copied(name, **without_config(name)))


@pytest.mark.parametrize("name", ["bert-uncased", "gpt2", "roberta", "t5", "albert", "camembert", "xlm-roberta"])
def test_tokenizer_json_alone_is_recognized(name, checkpoint, tmp_path):
    expected = Tokenizer.load(checkpoint(name))
    write(tmp_path, {"tokenizer.json": expected.backend.to_str()})
    alone = Tokenizer.load(tmp_path)
    assert [alone.encode(text) for text in TEXTS] == [expected.encode(text) for text in TEXTS]
    assert alone.special_tokens == expected.special_tokens
    assert list(alone("a").inputs) == list(expected("a").inputs)


def test_gpt2_files_under_their_original_names(checkpoint, copied):
    original = checkpoint("gpt2")
    files = {
        "encoder__json": (original / "vocab.json").read_bytes(),
        "vocab__bpe": (original / "merges.txt").read_bytes(),
    }
    renamed = Tokenizer.load(copied("gpt2", vocab__json=None, merges__txt=None, **files))
    assert renamed.encode(TEXT) == Tokenizer.load(original).encode(TEXT)


def test_tokenizer_json_takes_precedence_over_the_vocabulary(checkpoint, copied):
    other = Tokenizer.load(checkpoint("gpt2"))
    folder = copied("bert-cased", tokenizer__json=other.backend.to_str())
    assert Tokenizer.load(folder).encode(TEXT) == other.encode(TEXT)


@pytest.mark.parametrize("lower", [True, False])
def test_options_take_precedence_over_tokenizer_json(lower, checkpoint, copied):
    content = Tokenizer.load(checkpoint("bert-uncased")).backend.to_str()
    folder = copied("bert-uncased", tokenizer__json=content, tokenizer_config__json={"do_lower_case": lower})
    assert (Tokenizer.load(folder).encode("RABBIT") == Tokenizer.load(folder).encode("rabbit")) is lower
    generic = {"do_lower_case": not lower, "tokenizer_class": "PreTrainedTokenizerFast"}
    folder = copied("bert-uncased", tokenizer__json=content, tokenizer_config__json=generic)
    assert Tokenizer.load(folder).encode("RABBIT") == Tokenizer.load(folder).encode("rabbit")


def test_padding_and_truncation_in_tokenizer_json_are_disabled(checkpoint, copied):
    backend = Tokenizer.load(checkpoint("bert-cased")).backend
    twin = Backend.from_str(backend.to_str())
    twin.enable_truncation(4)
    twin.enable_padding(length=50)
    tokenizer = Tokenizer.load(copied("bert-cased", tokenizer__json=twin.to_str()))
    assert tokenizer.encode(TEXT) == backend.encode(TEXT).ids


def test_added_tokens_have_the_specified_ids(checkpoint, copied):
    size = Tokenizer.load(checkpoint("gpt2")).vocab_size
    words = {"<a>": size, "<b>": size + 1}
    flagged = {
        str(size): {"content": "<a>", "special": True},
        str(size + 1): {"content": "<b>", "special": False, "lstrip": True},
    }
    for changes in (
        {"added_tokens__json": words, "special_tokens_map__json": {"pad_token": "<a>"}},
        {"added_tokens__json": {}, "tokenizer_config__json": {"added_tokens_decoder": flagged, "pad_token": "<a>"}},
    ):
        tokenizer = Tokenizer.load(copied("gpt2", **changes))
        assert (tokenizer.pad_token_id, tokenizer.token_to_id("<b>")) == (size, size + 1)
        assert tokenizer.encode("x<b>")[-1] == size + 1
        assert size in tokenizer.all_special_ids and size + 1 not in tokenizer.all_special_ids
    wrong = {"added_tokens_decoder": {str(size + 5): {"content": "<a>"}}}
    with pytest.raises(TokenizerError, match=rf"must have the id {size + 5}. Received: {size}"):
        Tokenizer.load(copied("gpt2", tokenizer_config__json=wrong))


def test_special_tokens_in_every_format(copied):
    options = {
        "pad_token": {"content": "<p>", "lstrip": False, "__type": "AddedToken"},
        "mask_token": None,
        "additional_special_tokens": ["<x>", {"content": "<y>"}],
        "extra_special_tokens": {"image_token": "<z>"},
        "sep_token": "<s>",
    }
    tokenizer = Tokenizer.load(copied("gpt2", tokenizer_config__json=options))
    assert (tokenizer.pad_token, tokenizer.sep_token, tokenizer.mask_token) == ("<p>", "<s>", None)
    ids = [tokenizer.token_to_id(token) for token in ("<x>", "<y>", "<z>")]
    assert tokenizer.encode("<x><y><z>") == ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == ""


def test_the_configuration_takes_precedence_over_the_older_map(copied):
    options = {"added_tokens_decoder": {}, "pad_token": "<new>"}
    folder = copied("gpt2", tokenizer_config__json=options, special_tokens_map__json={"pad_token": "<old>"})
    assert Tokenizer.load(folder).pad_token == "<new>"
    folder = copied("gpt2", tokenizer_config__json={"pad_token": "<new>"})
    assert Tokenizer.load(folder).pad_token == "<old>"


def test_lengths_and_sides(copied):
    options = {"model_max_length": 1e30, "padding_side": "left", "truncation_side": "left"}
    tokenizer = Tokenizer.load(copied("gpt2", tokenizer_config__json=options))
    assert (tokenizer.model_max_length, tokenizer.padding_side, tokenizer.truncation_side) == (None, "left", "left")
    assert Tokenizer.load(copied("gpt2", tokenizer_config__json={"model_max_length": 77})).model_max_length == 77


def test_segments_of_a_generic_tokenizer(tmp_path):
    backend = Backend(models.WordLevel({"[CLS]": 0, "[SEP]": 1, "a": 2, "[UNK]": 3}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    options = {"tokenizer_class": "PreTrainedTokenizerFast"}
    backend.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    write(tmp_path, {"tokenizer.json": backend.to_str(), "tokenizer_config.json": options})
    assert Tokenizer.load(tmp_path)("a", "a").inputs["token_type_ids"].tolist() == [[0, 0, 0, 1, 1]]
    write(tmp_path, {"tokenizer_config.json": {**options, "model_input_names": ["input_ids", "attention_mask"]}})
    assert set(Tokenizer.load(tmp_path)("a", "a").inputs) == {"input_ids", "attention_mask"}


def test_no_tokenizer(tmp_path):
    with pytest.raises(SourceError):
        Tokenizer.load(tmp_path / "nowhere")
    write(tmp_path, {"config.json": {"model_type": "t5"}, "notes.md": "x"})
    assert not has_tokenizer(tmp_path)
    with pytest.raises(
        TokenizerError,
        match=r"or spiece.model, or spm.model, or sentencepiece.bpe.model. Received: config.json, notes.md",
    ):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_has_tokenizer(name, checkpoint):
    assert has_tokenizer(checkpoint(name))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bert-cased", {"tokenizer__json": b'{"version": "1.0"'}, "tokenizer.json is not a readable tokenizer: EOF"),
        ("bert-cased", {"vocab__txt": b""}, r"vocab.txt must contain one token per line, including '\[UNK\]'"),
        ("bert-cased", {"vocab__txt": b"[UNK]\na\n"}, r"vocab.txt lacks a special token.*'\[SEP\]'"),
        ("bert-cased", {"tokenizer_config__json": b"{"}, "tokenizer_config.json is not valid JSON: line 1"),
        (
            "bert-cased",
            {"tokenizer_config__json": {"do_lower_case": "no"}},
            "do_lower_case in .* must be True or False",
        ),
        ("bert-cased", {"tokenizer_config__json": {"padding_side": "up"}}, "must be 'left' or 'right'"),
        ("bert-cased", {"tokenizer_config__json": {"pad_token": 3}}, "must be a token or null. Received: 3"),
        ("bert-cased", {"special_tokens_map__json": b"[]"}, "special_tokens_map.json must contain a JSON object"),
        ("gpt2", {"vocab__json": {"a": "b"}}, "vocab.json must map tokens to ids"),
        ("gpt2", {"vocab__json": {"a": 0}}, "merges.txt does not match vocab.json"),
        ("gpt2", {"merges__txt": None}, r"Expected: tokenizer.json, or vocab.json \+ merges.txt"),
        (
            "gpt2",
            {"config__json": None, "vocab__json": {"a": 0}, "merges__txt": b""},
            "tokenizer class .* is unknown",
        ),
        ("gpt2", {"added_tokens__json": {"<a>": "x"}}, "must have a number as its id"),
        (
            "gpt2",
            {"tokenizer_config__json": {"tokenizer_class": "CLIPTokenizer"}},
            "CLIPTokenizer can only be loaded",
        ),
        ("t5", {"tokenizer_config__json": {"extra_ids": 10**9}}, "extra_ids in .* must be an integer from 0 to 100000"),
    ],
)
def test_damage(name, changes, message, copied):
    folder = copied(name, **changes)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(TokenizerError, match=message) as raised:
        Tokenizer.load(folder)
    assert str(folder) in str(raised.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def _replacing(count, pattern="a", content="aa"):
    return [{"type": "Replace", "pattern": {"String": pattern}, "content": content}] * count


_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_NESTED = {"type": "Sequence", "normalizers": _replacing(15)}
_FIRST = {"Sequence": {"id": "A", "type_id": 0}}
_SECOND = {"Sequence": {"id": "B", "type_id": 0}}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"normalizer": {"type": "Sequence", "normalizers": _replacing(30)}}, "together may make a text at most 64"),
        ({"normalizer": {"type": "Sequence", "normalizers": [_NESTED, _NESTED]}}, "normalizer: all steps together"),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 300}}, "at most 256 steps"),
        ({"normalizer": _replacing(1, "a", "b" * 1000)[0]}, "Expected at most 64 characters. Received: 1000"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [_BYTES] * 30}}, "pre_tokenizer: all steps together"),
        ({"decoder": {"type": "Sequence", "decoders": _replacing(30)}}, "decoder: all steps together"),
        ({"post_processor": {"single": [_FIRST, _FIRST]}}, "template 'single' .* once: A. Received: A and A"),
        ({"post_processor": {"pair": [_SECOND]}}, "template 'pair' .* once: A and B. Received: B"),
    ],
)
def test_rules_that_lose_a_text_or_make_it_grow_raise(rules, message, checkpoint, copied):
    content = json.loads(Tokenizer.load(checkpoint("t5")).backend.to_str())
    template = rules.get("post_processor")
    rules = rules if template is None else {"post_processor": content["post_processor"] | template}
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.load(copied("t5", tokenizer__json=content | rules))


def test_rules_that_lengthen_a_text_slightly_are_allowed(checkpoint, copied):
    content = json.loads(Tokenizer.load(checkpoint("t5")).backend.to_str())
    steps = [*_replacing(1, "…", "..."), {"type": "NFKC"}, *_replacing(20, "Alice", "Alice Liddell"[:5])]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    assert Tokenizer.load(copied("t5", tokenizer__json=content)).encode("well… ﷺ")


def test_panics_of_the_rust_library_are_converted_to_errors(checkpoint, copied, capfd):
    content = json.loads(Tokenizer.load(checkpoint("t5")).backend.to_str())
    content["post_processor"]["special_tokens"] = {}
    with pytest.raises(TokenizerError, match="tokenizer.json is not a readable tokenizer"):
        Tokenizer.load(copied("t5", tokenizer__json=content))
    capfd.readouterr()


def test_nothing_outside_the_folder_is_read(checkpoint, copied, tmp_path):
    outside = tmp_path / "outside"
    shutil.copytree(checkpoint("bert-uncased"), outside)
    named = {"vocab_file": str(outside / "vocab.txt"), "tokenizer_file": "../outside/vocab.txt"}
    expected = Tokenizer.load(checkpoint("bert-cased")).encode(TEXT)
    folder = copied("bert-cased", tokenizer_config__json={"do_lower_case": False, **named})
    assert Tokenizer.load(folder).encode(TEXT) == expected
    (folder / "vocab.txt").unlink()
    with pytest.raises(TokenizerError, match="contains no tokenizer"):
        Tokenizer.load(folder)
    for name in ("vocab.txt", "tokenizer.json", "special_tokens_map.json"):
        (folder / name).symlink_to(outside / "vocab.txt")
        with pytest.raises(TokenizerError, match="must be inside its folder"):
            Tokenizer.load(folder)
        (folder / name).unlink()


def test_no_code_of_the_folder_is_run(copied):
    options = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "do_lower_case": False}
    folder = copied("bert-cased", tokenizer_config__json=options)
    (folder / "evil.py").write_text("raise SystemExit('run')")
    assert Tokenizer.load(folder).encode("the")


def test_an_adapter_has_the_tokenizer_of_its_base_model():
    assert Tokenizer.load("sentiment-bert").encode(TEXT) == Tokenizer.load("embedder-bert").encode(TEXT)


def test_an_adapter_of_itself_is_refused(monkeypatch, tmp_path):
    adapter = {"peft_type": "LORA", "r": 2, "target_modules": ["query"], "base_model_name_or_path": "owner/name"}
    write(tmp_path, {"config.json": "{}", "adapter_config.json": json.dumps(adapter)})
    monkeypatch.setattr(base_models, "resolve", lambda source, token=None: tmp_path)
    with pytest.raises(CheckpointError, match="must not be the adapter itself"):
        Tokenizer.load(tmp_path)

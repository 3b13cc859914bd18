"""The setting `split_special_tokens`, compared with transformers: names of special tokens in a text are text."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from pathlib import Path

import pytest
import transformers

from kerasformer.tokenization import Tokenizer, hard_texts
from tests.core.tokenization.conftest import Checkpoint

VOCABULARIES = Path(__file__).parents[3] / "mobile" / "vectors" / "tokenizers"


@pytest.fixture(params=["qwen2", "gpt2", "bert-uncased", "llama2", "xlm-roberta", "t5"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(VOCABULARIES / request.param, tmp_path / "tokenizer")
    path = tmp_path / "tokenizer" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "split_special_tokens": True}))
    return tmp_path / "tokenizer"


def texts(tokenizer: Tokenizer) -> list[str]:
    added = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
    return [f"one {token} two{token}three{token}" for token in (*added[:6], *added[-2:])] + ["a <|im_start|> b"]


def test_texts_have_the_ids_of_transformers(folder: Path) -> None:
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    for text in texts(ours):
        assert ours.encode(text) == theirs.encode(text)
        assert ours.tokenize(text) == theirs.tokenize(text, split_special_tokens=True)
    ours.chat_template = theirs.chat_template = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}"
    turns = [{"role": "user", "content": "a </s> b"}]
    assert ours.apply_chat_template(turns).input_ids[0].tolist() == theirs.apply_chat_template(turns)["input_ids"]


def test_the_setting_is_kept(folder: Path, tmp_path: Path) -> None:
    original = Tokenizer.load(folder)
    original.save(tmp_path / "saved")
    saved = Tokenizer.load(tmp_path / "saved")
    copies = copy.deepcopy(original), pickle.loads(pickle.dumps(original))
    for other in (saved, *copies, original.with_clean_up(True), original.with_tokens(["<new>"])):
        assert [other.encode(text) for text in texts(original)] == [original.encode(text) for text in texts(original)]
    # Libraries that ignore the setting refuse the tokenizer of a bundle, since these texts have other ids for them.
    plain = Tokenizer(Tokenizer.load(folder).backend, special_tokens=original.special_tokens)
    plain.backend.encode_special_tokens = False
    assert any(plain.encode(text) != ids for text, ids in hard_texts.hard_texts(original))


def test_ends_of_turns(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(VOCABULARIES / "qwen2")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<|im_end|>\n{% endfor %}"
    expected = tokenizer.turn_end_token_id()
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "split_special_tokens": True}))
    assert Tokenizer.load(tmp_path).turn_end_token_id() == expected == tokenizer.token_to_id("<|im_end|>")


@pytest.mark.parametrize("name", ["openai-gpt", "xlm"])
def test_tokenizers_of_word_pieces(name: str, copied: Checkpoint) -> None:
    original = Tokenizer.load(copied(name))
    folder = copied(name)
    original.save(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "split_special_tokens": True}))
    split = Tokenizer.load(folder)
    text = f"one {original.unk_token} two"
    assert original.unk_token in original.tokenize(text)
    assert len(split.tokenize(text)) > len(original.tokenize(text))

"""The test texts of a bundle, made of tokens and rules of its tokenizer."""

from __future__ import annotations

import json

import pytest
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as Backend

from kerasformer.tokenization import Tokenizer, hard_texts
from tests import tiny_text


def split_at(pattern: object, behavior: str = "removed") -> Tokenizer:
    """Returns a WordPiece tokenizer that splits words at a pattern."""
    original = tiny_text.wordpiece()
    backend = Backend.from_str(original.backend.to_str())
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(pattern, behavior)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return Tokenizer(backend, special_tokens=original.special_tokens)


@pytest.mark.parametrize("kind", [tiny_text.wordpiece, tiny_text.byte_pairs, tiny_text.pieces])
def test_texts_use_the_vocabulary_and_have_its_ids(kind, tmp_path):
    tokenizer = kind()
    hard_texts.write(tokenizer, tmp_path)
    content = (tmp_path / hard_texts.FILE).read_text(encoding="utf-8")
    rows = json.loads(content)
    assert content.isascii() and len(content) < 20_000 and 20 <= len(rows) == len({row["text"] for row in rows})
    assert [row["ids"] for row in rows] == [tokenizer.encode(row["text"]) for row in rows]
    used = {index for row in rows for index in row["ids"]}
    assert used >= set(tokenizer.backend.get_added_tokens_decoder()) - {tokenizer.token_to_id("[PAD]")}
    assert len(used) > 0.3 * tokenizer.vocab_size


@pytest.mark.parametrize(
    ("pattern", "string"),
    [("|", "|"), ("<x>", "<x>"), (Regex(r"[;§]+"), "§")],
    ids=["character", "characters", "regex"],
)
def test_texts_contain_the_strings_of_rules(pattern, string):
    texts = [text for text, _ in hard_texts.hard_texts(split_at(pattern))]
    assert f"one{string}two {string} three{string}{string}four{string}" in texts
    others = [text for text, _ in hard_texts.hard_texts(tiny_text.wordpiece())]
    assert f"one{string}two {string} three{string}{string}four{string}" not in others

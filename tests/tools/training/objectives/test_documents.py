"""Documents of texts: sentences whose tokens are together those of the text, in parts that fit."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.tools import training
from kerasformer.tools.evaluation import read_documents
from kerasformer.tools.training.vocabularies import train_tokenizer

TEXT = "The old fox waits.  It looks at\nthe sea. Why? Nobody knows."


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "wordpiece"])
def test_sentences_have_the_tokens_of_the_text(algorithm):
    tokenizer = train_tokenizer([TEXT], algorithm, 400)
    [document] = training.documents([TEXT], tokenizer)
    assert [tokenizer.decode(row).strip().lower() for row in document] == [
        "the old fox waits.",
        "it looks at the sea.",
        "why?",
        "nobody knows.",
    ]
    expected = tokenizer.encode(" ".join(TEXT.split()), add_special_tokens=False)
    assert np.concatenate(document).tolist() == expected


def test_long_documents_become_several():
    tokenizer = train_tokenizer([TEXT], "wordpiece", 60)
    whole = np.concatenate(training.documents([TEXT], tokenizer)[0]).tolist()
    parts = training.documents([TEXT], tokenizer, max_length=7)
    assert [token for part in parts for row in part for token in row] == whole
    assert len(parts) > 2 and max(sum(map(len, part)) for part in parts) <= 7
    pairs = training.documents([TEXT], tokenizer, max_length=8, least=2)
    assert all(len(part) >= 2 and sum(map(len, part)) <= 8 for part in pairs)
    assert {token for part in pairs for row in part for token in row} == set(whole)
    assert training.documents(["", "  "], tokenizer) == []


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("One. Two.\nThree. Four.\n", ["One. Two.", "Three. Four."]),
        ("One\nTwo\n", ["One\nTwo"]),
        ("One.\nTwo\n\n\nThree. Four.\n", ["One.\nTwo", "Three. Four."]),
    ],
)
def test_files_of_documents(tmp_path, content, texts):
    (tmp_path / "raw.txt").write_text(content, encoding="utf-8")
    assert [example.text for example in read_documents(tmp_path / "raw.txt")] == texts

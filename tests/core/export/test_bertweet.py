"""Bundles of a model whose tokenizer `tokenizer.json` cannot express."""

from __future__ import annotations

import pytest

import kerasformer as kf
from kerasformer import zoo
from kerasformer.tokenization import Tokenizer
from tests.code_blocks import card_texts
from tests.core.tokenization.conftest import write
from tests.core.tokenization.test_bertweet import TWEETS, files

pytestmark = pytest.mark.grid

SIZES = {
    "hidden_dim": 24, "num_layers": 1, "num_heads": 3, "intermediate_dim": 40, "num_positions": 130, "num_segments": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = Tokenizer.load(write(tmp_path_factory.mktemp("bertweet"), files({"normalization": True})))
    made = zoo.build("roberta", "text-classification", vocab_size=tokenizer.vocab_size, **SIZES)
    made.tokenizer = tokenizer
    return made


def test_a_bundle_has_the_files_of_the_tokenizer(model, tmp_path):
    folder = kf.export.export(model, tmp_path / "out", "onnx")
    names = {path.name for path in folder.iterdir()}
    assert {"vocab.txt", "bpe.codes", "tokenizer_texts.json"} <= names and "tokenizer.json" not in names
    pipe, expected = kf.pipeline(folder), kf.pipeline(model, "text-classification")
    texts = [text for text in TWEETS if len(model.tokenizer.encode(text)) <= 128]
    for answer, other in zip(pipe(texts), expected(texts), strict=True):
        assert answer["label"] == other["label"] and answer["score"] == pytest.approx(other["score"], abs=1e-5)
    card = card_texts(folder)
    assert "cannot be written as `tokenizer.json`" in card and "Tokenizer.from_file" not in card
    again = zoo.load(model.save_pretrained(tmp_path / "checkpoint"))
    assert [again.tokenizer.encode(text) for text in texts] == [model.tokenizer.encode(text) for text in texts]

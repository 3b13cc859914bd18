"""The tokenizer of ByT5, compared with transformers: ids, texts, incomplete characters, offsets, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from kerasformer.errors import TokenizerError
from kerasformer.tokenization import Tokenizer, has_tokenizer
from tests.core.tokenization.conftest import write
from tests.core.tokenization.samples import TEXTS

CONFIG = {"model_type": "t5", "tokenizer_class": "ByT5Tokenizer"}
OPTIONS: dict[str, Any] = {
    "by config.json alone": None,
    "as published": {
        "extra_ids": 125, "model_max_length": 1024, "tokenizer_class": "ByT5Tokenizer",
        "additional_special_tokens": [f"<extra_id_{index}>" for index in range(125)],
        **{
            f"{name}_token": {
                "__type": "AddedToken", "content": content, "lstrip": True, "rstrip": True, "normalized": True,
                "single_word": False,
            }
            for name, content in (("pad", "<pad>"), ("eos", "</s>"), ("unk", "<unk>"))
        },
    },
    "ten": {"extra_ids": 10, "tokenizer_class": "ByT5Tokenizer"},
}  # fmt: skip


@pytest.fixture(params=OPTIONS)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Tokenizer]:
    """The tokenizers of both libraries."""
    options = OPTIONS[request.param]
    files = {"config.json": CONFIG} | ({"tokenizer_config.json": options} if options else {})
    folder = write(tmp_path / "byt5", files)
    assert has_tokenizer(folder)
    settings = {"extra_ids": options["extra_ids"]} if request.param == "ten" else {}
    return transformers.ByT5Tokenizer(**settings), Tokenizer.load(folder)


def test_ids_and_texts(both: tuple[Any, Tokenizer]) -> None:
    theirs, ours = both
    assert ours.vocab_size == len(theirs)
    for text in TEXTS:
        ids = theirs.encode(text)
        assert ours.encode(text) == ids, text
        assert ours.encode(text, add_special_tokens=False) == theirs.encode(text, add_special_tokens=False)
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), text
    for name in ("pad", "eos", "unk", "bos", "mask"):
        assert getattr(ours, f"{name}_token_id") == getattr(theirs, f"{name}_token_id"), name
    assert ours.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_9>"]) == [259, 268]


def test_batches(both: tuple[Any, Tokenizer]) -> None:
    theirs, ours = both
    expected = theirs(TEXTS, TEXTS[::-1], padding=True, return_tensors="np")
    received = ours(TEXTS, TEXTS[::-1])
    np.testing.assert_array_equal(received.input_ids, expected["input_ids"])
    np.testing.assert_array_equal(received.attention_mask, expected["attention_mask"])
    assert list(received.inputs) == ["input_ids", "attention_mask"]


def test_bytes_that_are_no_text_are_omitted(both: tuple[Any, Tokenizer]) -> None:
    theirs, ours = both
    random = np.random.default_rng(0)
    common = np.array([*b"a\xe2\x82\xac\xf0\x9f\x99\x82\xef\xbf\xbd\xc3"]) + 3
    for _ in range(300):
        ids = random.choice(common, 12).tolist() + random.integers(0, 259, 3).tolist()
        expected = theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, True) == expected
        stream = ours.streamer()
        assert "".join([*(stream.put([token]) for token in ids), stream.end()]) == expected
    assert ours.decode([byte + 3 for byte in "€".encode()][:2]) == ""


def test_offsets_are_those_of_whole_characters(both: tuple[Any, Tokenizer]) -> None:
    _, ours = both
    text = "a€🙂 </s> é"
    encoding = ours(text)
    for token, (start, end) in zip(encoding.input_ids[0], encoding.offsets[0].tolist(), strict=True):
        if token >= 3:
            assert end == start + 1 and bytes([token - 3]) in text[start:end].encode()
    assert encoding.offsets[0].tolist()[-1] == [0, 0]


def test_saved_files(both: tuple[Any, Tokenizer], tmp_path: Path) -> None:
    _, ours = both
    ours.save(tmp_path / "saved")
    again, theirs = Tokenizer.load(tmp_path / "saved"), transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert again.special_tokens == ours.special_tokens and again.all_special_ids == ours.all_special_ids
    for text in TEXTS:
        ids = ours.encode(text)
        assert again.encode(text) == theirs.encode(text) == ids
        assert again.decode(ids, True) == theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids, True)
    assert again.decode([0xE2 + 3, 0x41 + 3]) == "A"


def test_extra_tokens_with_other_ids_are_refused(tmp_path: Path) -> None:
    added = {str(index): {"content": f"<extra_id_{index}>", "special": True} for index in (300, 301)}
    options = {"tokenizer_class": "ByT5Tokenizer", "added_tokens_decoder": added}
    folder = write(tmp_path / "byt5", {"config.json": CONFIG, "tokenizer_config.json": options})
    with pytest.raises(TokenizerError, match=r"'<extra_id_300>' must have the id 300. Received: 259"):
        Tokenizer.load(folder)

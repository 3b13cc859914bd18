"""Marian's tokenizer from its own files, compared with transformers: both sides, special and unknown tokens, files."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import transformers

from kerasformer.errors import TokenizerError
from kerasformer.tokenization import Tokenizer
from tests.core.tokenization.samples import CORPUS, TEXTS

SOURCES = [*CORPUS[:7], "One — two—three – four – five"]
TARGETS = CORPUS[7:]
LANGUAGE = ">>deu<<"
SPECIAL = ["</s>", "<unk>", LANGUAGE, ">>fra<<"]
HARD = [
    # SentencePiece composes only the first of two combining marks, the Rust library both or none.
    *(text for text in TEXTS if "\u0323" not in text),
    *CORPUS,
    *SOURCES,
    f"{LANGUAGE} the Rabbit", f"{LANGUAGE}the Rabbit", ">> the", "the <unk> Rabbit</s>sister",
    "One — two—three", "— One", "—— –– a–b – c今—天",
    "Привет к какк дела? aдb 今日は 今",
    "tab\tand\nline", "a  b   c ", "[x] {y} (z) ^~`$ \\ | & * + - =",
]  # fmt: skip


def vocabularies(models: dict[str, bytes], separate: bool) -> dict[str, dict[str, int]]:
    """Returns the content of the vocabulary files, which lack the long dash; the padding token is the last one."""
    sides = []
    for data in models.values():
        model = sentencepiece.SentencePieceProcessor(model_proto=data)
        sides.append([model.id_to_piece(index) for index in range(3, len(model))])
    lacking = {"—", "▁—", "–"}

    def numbered(*parts: list[str]) -> dict[str, int]:
        pieces = sorted({piece for part in parts for piece in part} - lacking - set(SPECIAL))
        return {token: index for index, token in enumerate([*SPECIAL, *pieces, "<pad>"])}

    if separate:
        return {"vocab.json": numbered(sides[0]), "target_vocab.json": numbered(sides[1])}
    return {"vocab.json": numbered(*sides)}


def trained(texts: Sequence[str], **options: Any) -> bytes:
    """Returns a SentencePiece model of some texts."""
    model = io.BytesIO()
    settings = {"vocab_size": 250, "hard_vocab_limit": False, "minloglevel": 2, "normalization_rule_name": "nmt_nfkc"}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, **settings | options)
    return model.getvalue()


def checkpoint(folder: Path, separate: bool = False) -> Path:
    """Writes the files of a tokenizer as published checkpoints have them."""
    models = {"source.spm": trained(SOURCES), "target.spm": trained(TARGETS)}
    settings = {"source_lang": "eng", "target_lang": "deu", "model_max_length": 512}
    files: dict[str, Any] = {**vocabularies(models, separate), "config.json": {"model_type": "marian"}}
    files["tokenizer_config.json"] = {**settings, **({"separate_vocabs": True} if separate else {})}
    for name, data in models.items():
        (folder / name).write_bytes(data)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module", params=[False, True], ids=["one vocabulary", "two vocabularies"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("marian"), request.param)


def reference(folder: Path) -> Any:
    return transformers.MarianTokenizer.from_pretrained(folder)


# Of two vocabularies, the reference gives the padding token the id that it has in the first one on both sides.
WRITTEN = [text for text in HARD if "<pad>" not in text]


def assert_equal(theirs: Any, ours: Tokenizer, target: bool = False) -> None:
    for text in WRITTEN if target else HARD:
        expected = theirs(text_target=text) if target else theirs(text)
        assert (ours.target if target else ours).encode(text) == expected["input_ids"], text


def test_ids_of_both_sides(folder):
    theirs, ours = reference(folder), Tokenizer.load(folder)
    assert_equal(theirs, ours)
    assert_equal(theirs, ours, target=True)
    for text in HARD:
        ids = ours.encode(text, add_special_tokens=False)
        assert ids == theirs(text, add_special_tokens=False)["input_ids"], text
    assert ours.encode("one")[:-1] != ours.target.encode("one")[:-1]
    pair = theirs("the Rabbit", "her sister")["input_ids"]
    assert ours("the Rabbit", "her sister").input_ids[0].tolist() == pair
    assert (ours.pad_token_id, ours.eos_token_id, ours.unk_token_id) == (theirs.pad_token_id, 0, 1)
    assert ours.model_max_length == 512 and ours.vocab_size == len(theirs.encoder)


def test_decoding(folder):
    theirs, ours = reference(folder), Tokenizer.load(folder)
    for text in WRITTEN:
        ids = ours.target.encode(text)
        if ours.pad_token_id not in ids:
            expected = theirs.decode(ids, skip_special_tokens=True)
            assert ours.writer.decode(ids, skip_special_tokens=True) == expected, text


def test_saved_files(folder, tmp_path):
    ours = Tokenizer.load(folder)
    ours.save(tmp_path / "checkpoint")
    assert_equal(reference(tmp_path / "checkpoint"), ours)
    assert_equal(reference(tmp_path / "checkpoint"), Tokenizer.load(tmp_path / "checkpoint"), target=True)
    ours.for_bundles().save(tmp_path / "bundle")
    assert {path.suffix for path in (tmp_path / "bundle").iterdir()} == {".json"}
    again = Tokenizer.load(tmp_path / "bundle")
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path / "bundle")
    for text in HARD:
        assert again.encode(text) == ours.encode(text) == fast(text)["input_ids"]
        assert again.target.encode(text) == ours.target.encode(text)


def test_offsets(tmp_path):
    ours = Tokenizer.load(checkpoint(tmp_path))
    text = "  the\u00a0Rabbit — 龍虎 late"
    encoding = ours(text)
    parts = [text[start:end] for start, end in encoding.offsets[0]]
    assert "".join(parts).replace(" ", "").replace("\u00a0", "") == text.replace(" ", "").replace("\u00a0", "")
    assert "—" in parts and "龍虎" in parts
    words = [parts[index] for index in range(len(parts)) if encoding.input_ids[0][index] == ours.unk_token_id]
    assert words == ["—", "龍虎"]


def test_pieces_that_the_vocabulary_lacks(tmp_path, caplog):
    folder = checkpoint(tmp_path)
    vocab = json.loads((folder / "vocab.json").read_text())
    lacking = max((token for token in vocab if token.isalpha()), key=len)
    kept = [token for token in vocab if token != lacking]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(kept)}))
    with caplog.at_level(logging.WARNING, "kerasformer"):
        ours = Tokenizer.load(folder)
    assert "that the vocabulary lacks" in caplog.text and repr(lacking) in caplog.text
    assert ours.unk_token_id not in ours.encode(lacking)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("source.spm", b"no model", "source.spm is not a readable SentencePiece model"),
        ("vocab.json", b'{"a": 0}', "vocab.json lacks special tokens. Expected: '</s>', '<unk>', '<pad>'"),
        ("vocab.json", b'{"a": 0, "</s>": 5}', "must have the ids from 0 to 1, each once"),
        ("target.spm", None, "target.spm"),
        ("source.spm", "bpe", "an algorithm other than Unigram"),
    ],
    ids=str,
)
def test_damaged_files(tmp_path, name, content, message):
    folder = checkpoint(tmp_path)
    if content is None:
        (folder / name).unlink()
    else:
        data = trained(SOURCES, model_type="bpe") if content == "bpe" else content
        (folder / name).write_bytes(data)
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.load(folder)

"""The model file is read as the SentencePiece library reads it, and damage is named."""

from __future__ import annotations

import io
import random

import pytest

from kerasformer.errors import TokenizerError
from kerasformer.tokenization import load_tokenizer, spiece
from tests.tokenization.samples import CORPUS

sentencepiece = pytest.importorskip("sentencepiece")


@pytest.fixture(params=["t5", "albert"])
def data(request, checkpoint):
    return (checkpoint(request.param) / "spiece.model").read_bytes()


def test_pieces_and_scores(data):
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    model = spiece.parse(data)
    assert [piece.text for piece in model.pieces] == [theirs.id_to_piece(index) for index in range(len(theirs))]
    assert [piece.score for piece in model.pieces] == [theirs.get_score(index) for index in range(len(theirs))]
    control = [index for index, piece in enumerate(model.pieces) if piece.kind == spiece.CONTROL]
    assert control == [index for index in range(len(theirs)) if theirs.is_control(index)]
    assert model.unk_id == theirs.unk_id()
    assert model.algorithm == spiece.UNIGRAM and not model.byte_fallback and model.charsmap


def test_ids_of_the_library(checkpoint):
    folder = checkpoint("t5")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    ours = load_tokenizer(folder)
    # The Rust library normalizes whole grapheme clusters, SentencePiece single characters: no loose accents here.
    for text in [*CORPUS, "", "  two  spaces ", "x" * 300, "⑳ ﬁ ２", "unknown: 龍 🙂"]:
        assert ours.encode(text, add_special_tokens=False) == theirs.encode(text), text


def test_damage_is_an_error_and_never_a_crash(copied):
    folder = copied("t5")
    data = (folder / "spiece.model").read_bytes()
    dice = random.Random(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(data[: dice.randrange(len(data))])
        for _ in range(dice.choice([0, 3, 30])):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        (folder / "spiece.model").write_bytes(damaged)
        try:
            load_tokenizer(folder).encode("the Rabbit")
        except TokenizerError as error:
            assert "spiece.model" in str(error)
            refused += 1
    assert refused > 30


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it holds no pieces"),
        (b"\x0a\x05\x0a", "ends at byte 3, in the middle of a field"),
        (b"\x0a", "ends at byte 1, in the middle of a number"),
        (b"\xff" * 11, "longer than 64 bits"),
        (b"\x0b", "wire type 3"),
        (b"\x08\x01", "a number stands where"),
        (b"\x0a\x03\x0a\x01a\x12\x03\xc0\x02\x07", "unknown piece has id 7, outside its 1 pieces"),
        (b"version https://git-lfs.github.com/spec/v1\n", "spiece.model is not a readable"),
    ],
)
def test_what_is_wrong_is_said(copied, content, reason):
    with pytest.raises(TokenizerError, match=reason):
        load_tokenizer(copied("t5", spiece__model=content))


def test_other_algorithms_are_refused(copied):
    other = _train("bpe")
    with pytest.raises(TokenizerError, match="another algorithm than Unigram"):
        load_tokenizer(copied("t5", spiece__model=other))
    with pytest.raises(TokenizerError, match="byte fallback"):
        load_tokenizer(copied("t5", spiece__model=_train("unigram", byte_fallback=True)))


def _train(kind: str, **options) -> bytes:

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=450,
        hard_vocab_limit=False,
        model_type=kind,
        minloglevel=2,
        **options,
    )
    return model.getvalue()

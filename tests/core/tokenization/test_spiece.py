"""Model files, compared with the SentencePiece library, and errors of damaged files."""

from __future__ import annotations

import io
import random

import pytest
import sentencepiece

from kerasformer.errors import TokenizerError
from kerasformer.tokenization import Tokenizer, spiece
from tests.core.tokenization.samples import CORPUS


@pytest.fixture(params=["t5", "albert"])
def data(request, checkpoint):
    return (checkpoint(request.param) / "spiece.model").read_bytes()


def test_damaged_files_raise_and_never_crash(copied):
    folder = copied("t5")
    data = (folder / "spiece.model").read_bytes()
    generator = random.Random(0)
    num_errors = 0
    for _ in range(60):
        damaged = bytearray(data[: generator.randrange(len(data))])
        for _ in range(generator.choice([0, 3, 30])):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        (folder / "spiece.model").write_bytes(damaged)
        try:
            Tokenizer.load(folder).encode("the Rabbit")
        except TokenizerError as error:
            assert "spiece.model" in str(error)
            num_errors += 1
    assert num_errors > 30


def test_a_range_of_zeros_never_shifts_an_id(data):
    """Zeros as in an incomplete download; the SentencePiece library also raises in these cases."""
    expected = spiece.parse(data)
    texts = [piece.text for piece in expected.pieces]
    generator = random.Random(0)
    num_errors = 0
    for _ in range(300):
        size = generator.choice([1, 2, 4, 16, 64, 256, 1024])
        start = generator.randrange(data.index(expected.charsmap))
        damaged = data[:start] + bytes(size) + data[start + size :]
        try:
            assert [piece.text for piece in spiece.parse(damaged).pieces] == texts
        except ValueError:
            num_errors += 1
            with pytest.raises(RuntimeError):
                sentencepiece.SentencePieceProcessor(model_proto=damaged)
    assert num_errors > 200


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it contains no pieces"),
        (b"\x0a\x05\x0a", "ends at byte 3, in the middle of a field"),
        (b"\xff" * 11, "longer than 64 bits"),
        (b"\x08\x01", "field number 1 must have the wire type 2. Received: 0"),
        (b"\x0a\x03\x0a\x01a" * 2, "pieces 0 and 1 are equal, 'a'"),
        (b"\x0a\x08\x0a\x01a\x15\x00\x00\xc0\x7f", "'a', has the score nan"),
        (b"\x0a\x03\x0a\x01a\x12\x03\xc0\x02\x07", "unknown piece has the id 7, but there are 1 pieces"),
        (b"version https://git-lfs.github.com/spec/v1\n", "spiece.model is not a readable"),
    ],
)
def test_errors_describe_the_damage(copied, content, reason):
    with pytest.raises(TokenizerError, match=reason):
        Tokenizer.load(copied("t5", spiece__model=content))


def test_unsupported_algorithms(copied):
    other = _train("bpe")
    with pytest.raises(TokenizerError, match="an algorithm other than Unigram"):
        Tokenizer.load(copied("t5", spiece__model=other))
    with pytest.raises(TokenizerError, match="byte fallback"):
        Tokenizer.load(copied("t5", spiece__model=_train("unigram", byte_fallback=True)))


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

"""Pieces of a stream: whole characters only, and together the decoded text."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from kerasformer.tokenization import Tokenizer, load_tokenizer
from tests.tokenization.conftest import CASES
from tests.tokenization.samples import TEXTS


def pieces(tokenizer, ids, skip=True, sizes=(1,)):
    """Streams ids in chunks of the given sizes, in turn."""
    stream, out, at = tokenizer.streamer(skip_special_tokens=skip), [], 0
    while at < len(ids):
        size = sizes[len(out) % len(sizes)]
        out.append(stream.put(ids[at : at + size]))
        at += size
    return [*out, stream.end()]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_pieces_make_the_text(name, skip, checkpoint):
    tokenizer = load_tokenizer(checkpoint(name))
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert "".join(pieces(tokenizer, ids, skip)) == tokenizer.decode(ids, skip), text


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_pieces_of_random_ids_make_the_text(name, skip, checkpoint):
    tokenizer = load_tokenizer(checkpoint(name))
    random = np.random.default_rng(0)
    for _ in range(40):
        # Five ids more than there are: a model's embedding is often larger than the vocabulary.
        ids = random.integers(0, tokenizer.vocab_size + 5, random.integers(1, 120)).tolist()
        assert "".join(pieces(tokenizer, ids, skip, sizes=(1, 3, 2))) == tokenizer.decode(ids, skip)


@pytest.mark.parametrize("name", ["gpt2", "roberta"])
def test_never_half_a_character(name, checkpoint):
    tokenizer = load_tokenizer(checkpoint(name))
    text = "🙂 天気 €"
    out = pieces(tokenizer, tokenizer.encode(text))
    assert len([piece for piece in out if piece]) > 3
    assert "\ufffd" not in "".join(out)
    assert any(not piece for piece in out), "a token of half a character shows nothing"


def test_text_comes_at_once(checkpoint):
    tokenizer = load_tokenizer(checkpoint("gpt2"))
    ids = tokenizer.encode("the Rabbit said")
    out = pieces(tokenizer, ids)
    assert out[:-1] == [tokenizer.decode([token_id]) for token_id in ids]
    assert out[-1] == ""


def test_a_broken_end_is_given_out_by_end(checkpoint):
    tokenizer = load_tokenizer(checkpoint("gpt2"))
    ids = tokenizer.encode("🙂")[:-1]
    stream = tokenizer.streamer()
    assert stream.put(ids) == ""
    assert stream.end() == tokenizer.decode(ids) == "\ufffd"
    assert stream.put(tokenizer.encode("again")) + stream.end() == "again"


def test_byte_fallback():
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁a": 256, "b": 257, "▁": 258}
    backend = Backend(models.BPE(vocab, [], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    tokenizer = Tokenizer(backend)
    euro = list("€".encode())
    assert pieces(tokenizer, [256, *euro, 257]) == ["a", "", "", "", "€b", ""]
    random = np.random.default_rng(1)
    for _ in range(100):
        ids = random.choice([*euro, 0x41, 256, 257, 258], 50).tolist()
        assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids)


def test_cleaned_spaces(copied):
    tokenizer = load_tokenizer(copied("t5", tokenizer_config__json={"clean_up_tokenization_spaces": True}))
    for text in ["it is late . is n't it ? yes , it 's", "a ' b ' c 've d ' s x", "don 't ! . , ? ' n't"]:
        ids = tokenizer.encode(text * 5)
        assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids, True)


def test_a_long_stream_stays_fast(checkpoint):
    """Only a window of the last tokens is decoded again."""
    tokenizer = load_tokenizer(checkpoint("gpt2"))
    stream = tokenizer.streamer()
    longest = 0
    for token_id in tokenizer.encode("the Rabbit said 🙂 " * 300):
        stream.put([token_id])
        longest = max(longest, len(stream._ids))
    assert longest < 50

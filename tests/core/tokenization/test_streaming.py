"""Incremental decoding: pieces contain complete characters and form the decoded text."""

from __future__ import annotations

import json

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from kerasformer.generation.token_bytes import token_bytes_of
from kerasformer.tokenization import Tokenizer
from tests.core.tokenization.conftest import CASES, EACH_KIND
from tests.core.tokenization.samples import TEXTS
from tests.grids import grid


def pieces(tokenizer, ids, skip=True, sizes=(1,)):
    """Decodes ids in groups of the given sizes, which repeat."""
    stream, result, start = tokenizer.streamer(skip_special_tokens=skip), [], 0
    while start < len(ids):
        size = sizes[len(result) % len(sizes)]
        result.append(stream.put(ids[start : start + size]))
        start += size
    return [*result, stream.end()]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("name", grid(CASES, always=EACH_KIND))
def test_pieces_form_the_text(name, skip, checkpoint):
    """Of texts and of random ids, also outside the vocabulary: the embedding of a model is often larger."""
    tokenizer, random = Tokenizer.load(checkpoint(name)), np.random.default_rng(0)
    rows = [random.integers(0, tokenizer.vocab_size + 5, random.integers(1, 120)).tolist() for _ in range(20)]
    for ids in [*map(tokenizer.encode, TEXTS), *rows]:
        for sizes in ((1,), (1, 3, 2)):
            assert "".join(pieces(tokenizer, ids, skip, sizes)) == tokenizer.decode(ids, skip)


@pytest.mark.parametrize("name", ["gpt2", "roberta"])
def test_pieces_contain_complete_characters(name, checkpoint):
    tokenizer = Tokenizer.load(checkpoint(name))
    text = "🙂 天気 €"
    result = pieces(tokenizer, tokenizer.encode(text))
    assert len([piece for piece in result if piece]) > 3
    assert "\ufffd" not in "".join(result)
    assert any(not piece for piece in result), "a token with part of a character returns nothing"


def test_text_is_returned_immediately(checkpoint):
    tokenizer = Tokenizer.load(checkpoint("gpt2"))
    ids = tokenizer.encode("the Rabbit said")
    result = pieces(tokenizer, ids)
    assert result[:-1] == [tokenizer.decode([token_id]) for token_id in ids]
    assert result[-1] == ""


def test_end_returns_an_incomplete_character(checkpoint):
    tokenizer = Tokenizer.load(checkpoint("gpt2"))
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
    tokenizer = Tokenizer.load(copied("t5", tokenizer_config__json={"clean_up_tokenization_spaces": True}))
    for text in ["it is late . is n't it ? yes , it 's", "a ' b ' c 've d ' s x", "don 't ! . , ? ' n't"]:
        ids = tokenizer.encode(text * 5)
        assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids, True)


def test_a_long_stream_stays_fast(checkpoint):
    """Only the last tokens are decoded again."""
    tokenizer = Tokenizer.load(checkpoint("gpt2"))
    stream = tokenizer.streamer()
    longest = 0
    for token_id in tokenizer.encode("the Rabbit said 🙂 " * 300):
        stream.put([token_id])
        longest = max(longest, len(stream._ids))
    assert longest < 50


@pytest.mark.parametrize("form", ["vocabulary", "tokenizer.json", "generic class"])
def test_line_breaks_of_pegasus(form, checkpoint, tmp_path):
    """A token stands for a line break; the saved tokenizer says so to every library."""
    folder = checkpoint("pegasus-lines")
    if form != "vocabulary":  # as saved by transformers, which leaves the token in the text
        rules = json.loads(Tokenizer.load(folder).backend.to_str())
        rules["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
        kind = "PegasusTokenizerFast" if form == "tokenizer.json" else "TokenizersBackend"
        (tmp_path / "tokenizer.json").write_text(json.dumps(rules))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, "eos_token": "</s>"}))
        (tmp_path / "config.json").write_text('{"model_type": "pegasus"}')
        folder = tmp_path
    tokenizer = Tokenizer.load(folder)
    words = [tokenizer.encode(word, add_special_tokens=False) for word in ("the Rabbit", "was tired")]
    ids = [*words[0], tokenizer.token_to_id("<n>"), *words[1], tokenizer.eos_token_id]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the Rabbit\n was tired"
    assert "".join(pieces(tokenizer, ids)) == "the Rabbit\n was tired"
    assert token_bytes_of(tokenizer).text(tokenizer.token_to_id("<n>")) == b"\n"
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved", model_type="pegasus")
    assert again.backend.decoder.__getstate__() == tokenizer.backend.decoder.__getstate__()
    for text in (
        Backend.from_file(str(tmp_path / "saved" / "tokenizer.json")).decode(ids),
        transformers.AutoTokenizer.from_pretrained(str(tmp_path / "saved")).decode(ids, skip_special_tokens=True),
    ):
        assert text == "the Rabbit\n was tired"

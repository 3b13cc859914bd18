from __future__ import annotations

import numpy as np
import pytest
import transformers

from kerasformer.pipelines import pipeline
from tests.tiny_text import CORPUS

TEXTS = [CORPUS[7], CORPUS[0], "Rain.", CORPUS[10]]


@pytest.fixture(scope="module")
def pipe(checkpoint):
    return pipeline(checkpoint("vectors"), "feature-extraction")


@pytest.fixture(scope="module")
def expected(checkpoint):
    theirs = transformers.pipeline("feature-extraction", str(checkpoint("vectors")))
    return [np.array(states[0]) for states in theirs(TEXTS)]


def assert_close(received, expected_vectors):
    assert received.shape == expected_vectors.shape and received.dtype == np.float32
    assert np.abs(received - expected_vectors).max() <= 1e-5 * np.abs(expected_vectors).max()


def test_vectors_of_tokens(pipe, expected):
    for text, states in zip(TEXTS, expected, strict=True):
        assert_close(pipe(text), states)
    for received, states in zip(pipe(TEXTS, batch_size=3), expected, strict=True):
        assert_close(received, states)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling(pipe, expected, pooling, normalize):
    expected_vectors = np.stack([states.mean(axis=0) if pooling == "mean" else states[0] for states in expected])
    if normalize:
        expected_vectors /= np.sqrt((expected_vectors**2).sum(axis=1, keepdims=True))
    assert_close(pipe(TEXTS, pooling=pooling, normalize=normalize), expected_vectors)
    assert_close(pipe(TEXTS[2], pooling=pooling, normalize=normalize), expected_vectors[2])
    for size in (1, 2, 8):
        assert_close(pipe(TEXTS, pooling=pooling, normalize=normalize, batch_size=size), expected_vectors)


def test_vectors_of_tokens_have_length_one(pipe):
    assert np.allclose(np.linalg.norm(pipe(TEXTS[0], normalize=True), axis=-1), 1, atol=1e-6)


@pytest.mark.parametrize("pooling", [None, "mean", "cls"])
def test_a_long_text(pipe, checkpoint, pooling):
    """A token's vector is from the chunk with the most context; pooled vectors are weighted by their tokens."""
    long = " ".join(CORPUS[:4])
    received = pipe(long, pooling=pooling, chunk_length=20, stride=6)
    chunks = pipe.tokenizer(
        long, truncation="only_first", max_length=20, stride=6, return_overflowing_tokens=True, return_tensors="pt"
    )
    assert len(chunks.input_ids) > 3
    theirs = transformers.AutoModel.from_pretrained(str(checkpoint("vectors"))).eval()
    states = theirs(**chunks).last_hidden_state.detach().numpy()
    if pooling is None:
        assert received.shape == (len(pipe.tokenizer.encode(long)), 32)
        assert_close(
            received[:16], states[0, :16]
        )  # chunks have the tokens 1 to 18 and 13 to 30: 16 has more context in the second
        assert_close(received[16:28], states[1, 4:16])
        assert_close(received[-1], states[-1, int(chunks.attention_mask[-1].sum()) - 1])
        return
    weights = chunks.attention_mask.sum(axis=1)
    rows = [state[:n].mean(axis=0) if pooling == "mean" else state[0] for state, n in zip(states, weights, strict=True)]
    assert_close(received, np.average(rows, axis=0, weights=weights - 2).astype("float32"))
    assert_close(pipe([long], pooling=pooling, chunk_length=20, stride=6), received[None])

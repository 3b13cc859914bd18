from __future__ import annotations

import numpy as np
import pytest
import transformers

from kerasformer.errors import CapacityError, InputError
from kerasformer.pipelines import pipeline
from kerasformer.tokenization.truncation import TruncationWarning
from tests.pipelines.agreement import assert_same
from tests.tiny_text import CORPUS

TEXTS = [CORPUS[4], CORPUS[7], CORPUS[0], "Rain."]
LONG = " ".join(CORPUS[:4])


@pytest.mark.parametrize("name", ["classes", "one-class", "many-true", "number", "last-token"])
def test_scores_equal_those_of_transformers(checkpoint, name):
    folder = checkpoint(name)
    theirs = transformers.pipeline("text-classification", str(folder))
    ours = pipeline("text-classification", folder)
    assert_same(ours(TEXTS[0]), theirs(TEXTS[0]))
    assert_same(ours(TEXTS), theirs(TEXTS))
    assert_same(ours(TEXTS, top_k=None), theirs(TEXTS, top_k=None))
    assert_same(ours(TEXTS[1], top_k=2), theirs(TEXTS[1], top_k=2))


def test_the_cases_differ(checkpoint):
    """Softmax, sigmoid and none are told apart: the sums of scores show which one was applied."""
    scores = {
        name: [answer["score"] for answer in pipeline(None, checkpoint(name))(TEXTS[0], top_k=None)]
        for name in ("classes", "many-true", "number")
    }
    assert sum(scores["classes"]) == pytest.approx(1, abs=1e-5)
    assert abs(sum(scores["many-true"]) - 1) > 1e-2
    assert min(scores["number"]) < 0 or max(scores["number"]) > 1


def test_pairs(checkpoint):
    folder = checkpoint("classes")
    theirs = transformers.pipeline("text-classification", str(folder))
    ours = pipeline("text-classification", folder)
    firsts, seconds = [CORPUS[7], "Rain."], ["No.", CORPUS[18]]
    expected = theirs([{"text": text, "text_pair": pair} for text, pair in zip(firsts, seconds, strict=True)])
    assert_same(ours(firsts, pair=seconds), expected)
    one = ours(firsts[0], pair=seconds[0], top_k=None)
    assert_same(one, theirs({"text": firsts[0], "text_pair": seconds[0]}, top_k=None))
    assert one != ours(firsts[0], top_k=None)
    with pytest.raises(InputError, match="3 texts and 2 second ones"):
        ours(TEXTS[:3], pair=seconds)


@pytest.mark.parametrize("name", ["classes", "last-token"])
def test_neighbours_in_a_batch_change_nothing(checkpoint, name):
    pipe = pipeline("text-classification", checkpoint(name))
    alone = [pipe(text, top_k=None) for text in TEXTS]
    for size in (1, 3, 8):
        assert_same(pipe(TEXTS, top_k=None, batch_size=size), alone)


@pytest.mark.parametrize("name", ["classes", "last-token"])
def test_padding_does_not_depend_on_the_tokenizers_side(checkpoint, name):
    pipe = pipeline("text-classification", checkpoint(name))
    alone = [pipe(text, top_k=None) for text in TEXTS]
    pipe.tokenizer.padding_side = "left"
    assert_same(pipe(TEXTS, top_k=None), alone)


def test_too_long(checkpoint):
    pipe = pipeline("text-classification", checkpoint("classes"))
    with pytest.raises(CapacityError, match="at most 48 tokens"):
        pipe([TEXTS[0], LONG])
    with pytest.warns(TruncationWarning):
        cut = pipe(LONG, truncation=True, top_k=None)
    theirs = transformers.pipeline("text-classification", str(checkpoint("classes")))
    assert_same(cut, theirs(LONG, top_k=None, truncation=True, max_length=48))


def test_what_cannot_be_classified(checkpoint):
    pipe = pipeline("text-classification", checkpoint("classes"))
    for inputs in ([], 3, None, ["a", 3]):
        with pytest.raises(InputError, match="text or a list"):
            pipe(inputs)
    with pytest.raises(InputError, match="top_k"):
        pipe("Rain.", top_k=0)
    with pytest.raises(InputError, match="batch_size"):
        pipe(["Rain."], batch_size=0)


def test_large_scores_overflow_nothing():
    from kerasformer.pipelines._base import sigmoid, softmax

    large = np.array([-1000.0, 0.0, 1000.0], "float32")
    with np.errstate(over="raise", invalid="raise"):
        assert sigmoid(large).tolist() == [0, 0.5, 1]
        assert softmax(large).tolist() == [0, 0, 1]

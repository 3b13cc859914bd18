from __future__ import annotations

import numpy as np
import pytest
import transformers

from kerasformer.errors import CapacityError, InputError
from kerasformer.pipelines import pipeline
from kerasformer.tokenization.truncation import TruncationWarning
from tests.core.pipelines.agreement import assert_same
from tests.tiny_text import CORPUS

TEXTS = [CORPUS[4], CORPUS[7], CORPUS[0], "Rain."]
LONG = " ".join(CORPUS[:4])


@pytest.mark.parametrize("name", ["classes", "one-class", "many-true", "number", "last-token"])
def test_scores_equal_those_of_transformers(checkpoint, name):
    folder = checkpoint(name)
    theirs = transformers.pipeline("text-classification", str(folder))
    ours = pipeline(folder, "text-classification")
    assert_same(ours(TEXTS[0]), theirs(TEXTS[0]))
    assert_same(ours(TEXTS), theirs(TEXTS))
    assert_same(ours(TEXTS, top_k=None), theirs(TEXTS, top_k=None))
    assert_same(ours(TEXTS[1], top_k=2), theirs(TEXTS[1], top_k=2))


@pytest.mark.parametrize("name", ["classes", "many-true", "compared"])
def test_pairs(checkpoint, name):
    """BERT and ALBERT distinguish the two texts by segments, DistilBERT by the separator only."""
    folder = checkpoint(name)
    theirs = transformers.pipeline("text-classification", str(folder))
    ours = pipeline(folder, "text-classification")
    firsts, seconds = [CORPUS[7], "Rain.", "Rain."], ["No.", CORPUS[18], "Rain."]
    rows = [{"text": text, "text_pair": pair} for text, pair in zip(firsts, seconds, strict=True)]
    expected = theirs(rows)
    pairs = list(zip(firsts, seconds, strict=True))
    for inputs in (rows, pairs, tuple(pairs), [list(pair) for pair in pairs], np.array(pairs)):
        assert_same(ours(inputs), expected)
    assert_same(list(ours(iter(pairs))), expected)
    assert_same(ours(firsts, pair=seconds), expected)
    one = theirs(rows[0], top_k=None)
    assert_same(ours(pairs[0], top_k=None), one)
    assert_same(ours(rows[0], top_k=None), one)
    assert_same(ours(firsts[0], pair=seconds[0], top_k=None), one)
    assert_same(
        ours([firsts[1], pairs[0], {"text": firsts[1]}]), [theirs(firsts[1])[0], expected[0], *theirs([firsts[1]])]
    )
    assert ours(pairs[0], top_k=None) != ours(firsts[0], top_k=None)
    with pytest.raises(InputError, match="3 texts and 2 second texts"):
        ours(TEXTS[:3], pair=seconds[:2])


@pytest.mark.parametrize("name", ["classes", "last-token"])
def test_padding_does_not_depend_on_the_tokenizers_side(checkpoint, name):
    pipe = pipeline(checkpoint(name), "text-classification")
    alone = [pipe(text, top_k=None) for text in TEXTS]
    pipe.tokenizer.padding_side = "left"
    assert_same(pipe(TEXTS, top_k=None), alone)


def test_too_long(checkpoint):
    """Chunks by default, weighted by their tokens; a pair is truncated only on request."""
    pipe = pipeline(checkpoint("classes"), "text-classification")
    theirs = transformers.pipeline("text-classification", str(checkpoint("classes")))
    with pytest.warns(TruncationWarning):
        cut = pipe(LONG, truncation=True, top_k=None)
    assert_same(cut, theirs(LONG, top_k=None, truncation=True, max_length=48))
    chunks = theirs.tokenizer(
        LONG, truncation=True, max_length=48, stride=11, return_overflowing_tokens=True, padding=True,
        return_tensors="pt", return_special_tokens_mask=True,
    )  # fmt: skip
    chunks.pop("overflow_to_sample_mapping")
    weights = (1 - chunks.pop("special_tokens_mask").numpy()).sum(axis=1)
    assert len(weights) > 2 and len(set(weights.tolist())) > 1
    logits = theirs.model(**chunks).logits.detach().softmax(-1).numpy()
    expected = dict(zip(pipe.info.labels, np.average(logits, axis=0, weights=weights), strict=True))
    for size in (1, 8):
        alone, after = pipe(LONG, top_k=None, batch_size=size), pipe([TEXTS[0], LONG], top_k=None, batch_size=size)
        assert {answer["label"]: answer["score"] for answer in alone} == pytest.approx(expected, abs=2e-5)
        assert_same(after, [pipe(TEXTS[0], top_k=None), alone])
    largest = dict(zip(pipe.info.labels, logits.max(axis=0), strict=True))
    received = pipe(LONG, top_k=None, combine="max")
    assert {answer["label"]: answer["score"] for answer in received} == pytest.approx(largest, abs=2e-5)
    assert pipe(TEXTS[0], chunk_length=12, stride=2, top_k=None) != pipe(TEXTS[0], top_k=None)
    for arguments in ({"chunk_length": 49}, {"chunk_length": 2}, {"stride": 46}, {"stride": "x"}):
        with pytest.raises(InputError, match=f"^{next(iter(arguments))} must be an integer"):
            pipe(LONG, **arguments)
    with pytest.raises(InputError, match="combine must be 'mean' or 'max'"):
        pipe(LONG, combine="sum")
    with pytest.raises(CapacityError, match="at most 48 tokens"):
        pipe((LONG, "No."))
    # A long text beside a pair is split as well.
    mixed = [("Rain.", "No."), LONG, ("No.", TEXTS[0])]
    assert_same(pipe(mixed, top_k=None), [pipe(each, top_k=None) for each in mixed])


def test_invalid_inputs_raise(checkpoint):
    pipe = pipeline(checkpoint("classes"), "text-classification")
    for inputs in (3, None, ["a", 3], b"a", np.array([1.5]), {"texts": "a"}, ("a", "b", "c"), [("a", 3)]):
        with pytest.raises(InputError, match="text or a list"):
            pipe(inputs)
    with pytest.raises(InputError, match="top_k"):
        pipe("Rain.", top_k=0)
    with pytest.raises(InputError, match="batch_size"):
        pipe(["Rain."], batch_size=0)


def test_large_scores_do_not_overflow():
    from kerasformer.pipelines.base import sigmoid, softmax

    large = np.array([-1000.0, 0.0, 1000.0], "float32")
    with np.errstate(over="raise", invalid="raise"):
        assert sigmoid(large).tolist() == [0, 0.5, 1]
        assert softmax(large).tolist() == [0, 0, 1]

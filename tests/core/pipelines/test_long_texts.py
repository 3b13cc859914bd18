"""What each task does with a text that is as long as the model, longer by a token, or empty."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.errors import CapacityError
from kerasformer.pipelines import pipeline
from kerasformer.tokenization.truncation import TruncationWarning
from tests.core.pipelines.agreement import assert_same
from tests.core.pipelines.test_zero_shot_classification import LABELS, NAMES, named

# Each word is a token. Special tokens, and the other text of a pair, are read in addition.
WORDS = ("the", "and", "was", "of")


def words(count: int) -> str:
    return " ".join(WORDS[index * index % len(WORDS)] for index in range(count))


def zero_shot(checkpoint, tmp_path):
    pipe = pipeline(named(checkpoint("classes"), tmp_path / "model", NAMES), "zero-shot-classification")
    return pipe, lambda text, **options: pipe(text, LABELS[:1], **options)["scores"]


def task(name, call=lambda pipe: pipe):
    """Returns a function that opens a checkpoint, and returns the pipeline and a function of a text."""

    def opened(checkpoint, tmp_path):
        pipe = pipeline(checkpoint(name))
        return pipe, call(pipe)

    return opened


OPEN = {
    "text-classification": task("classes"),
    "text-classification of a decoder": task("last-token"),
    "text-ranking": task("one-class", lambda pipe: lambda text, **options: pipe.rank("the", [text], **options)),
    "token-classification": task("entities", lambda pipe: lambda text, **o: pipe(text, ignore_labels=(), **o)),
    "zero-shot-classification": zero_shot,
    "feature-extraction": task("vectors"),
    "question-answering": task("answers", lambda pipe: lambda text: pipe(question="the", context=text)),
    "fill-mask": task("gaps", lambda pipe: lambda text, **options: pipe(f"[MASK] {text}".strip(), **options)),
    "pair": task("classes", lambda pipe: lambda text, **options: pipe((text, "the"), **options)),
}
ERRORS = ("fill-mask", "pair")
"""Tasks that refuse a text that is too long, unless it is truncated on request."""


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.filterwarnings("error")
@pytest.mark.grid
def test_texts_at_the_limit(checkpoint, tmp_path, monkeypatch, name):
    pipe, answer = OPEN[name](checkpoint, tmp_path)
    lengths = []
    run = type(pipe)._run

    def recorded(self, encoded, *arguments, **options):
        lengths.append(encoded.attention_mask.sum(axis=1).tolist())
        return run(self, encoded, *arguments, **options)

    monkeypatch.setattr(type(pipe), "_run", recorded)
    answer(words(3))
    around, limit = lengths[-1][0] - 3, pipe.info.max_length
    fitting = words(limit - around)
    exact = answer(fitting)
    assert lengths[-1] == [limit]
    longer = words(limit - around + 1)
    if name in ERRORS:
        with pytest.raises(CapacityError, match=rf"at most {limit} tokens. Received: {limit + 1}.*truncation=True"):
            answer(longer)
    else:
        answer(longer)
        assert len(lengths[-1]) == 2 and lengths[-1][0] == limit
    if name != "question-answering":
        with pytest.warns(TruncationWarning, match="lost 1 of"):
            assert_same(answer(longer, truncation=True), exact)
    if name not in ("question-answering", "text-classification of a decoder"):
        result = np.asarray(answer("")) if name == "feature-extraction" else answer("")
        assert lengths[-1] == [around] and result is not None

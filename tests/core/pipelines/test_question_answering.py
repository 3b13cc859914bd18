"""Question answering; `transformers` 5 has no such pipeline, so that expected answers are computed with PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from kerasformer.errors import InputError
from kerasformer.pipelines import pipeline
from tests.core.pipelines.agreement import assert_same
from tests.tiny_text import CORPUS

QUESTION = "What was hot?"
SHORT = CORPUS[0]
LONG = " ".join(CORPUS[:12])


@pytest.fixture(scope="module")
def pipe(checkpoint):
    return pipeline(checkpoint("answers"), "question-answering")


@pytest.fixture(scope="module")
def reference(checkpoint):
    folder = str(checkpoint("answers"))
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def expected(reference, question, context, *, stride, longest=15, limit=48):
    """Returns all spans of all chunks with their probabilities, the best first, and the probability of no answer."""
    model, tokenizer = reference
    chunks = tokenizer(
        question, context, truncation="only_second", max_length=limit, stride=stride, padding=True,
        return_overflowing_tokens=True, return_offsets_mapping=True, return_tensors="pt",
    )  # fmt: skip
    offsets, found, nothing = chunks.pop("offset_mapping").numpy(), {}, 1.0
    chunks.pop("overflow_to_sample_mapping")
    with torch.no_grad():
        output = model(**chunks)
    for row in range(len(offsets)):
        allowed = [index for index, part in enumerate(chunks.sequence_ids(row)) if part == 1]
        chosen = [0, *allowed]
        start = output.start_logits[row, chosen].softmax(-1).numpy()
        end = output.end_logits[row, chosen].softmax(-1).numpy()
        nothing = min(nothing, float(start[0] * end[0]))
        for i, first in enumerate(allowed, 1):
            for j, last in enumerate(allowed[i - 1 : i - 1 + longest], i):
                span = int(offsets[row, first, 0]), int(offsets[row, last, 1])
                found[span] = max(found.get(span, 0.0), float(start[i] * end[j]))
    answers = [{"score": s, "start": a, "end": b, "answer": context[a:b]} for (a, b), s in found.items()]
    return sorted(answers, key=lambda answer: -answer["score"]), nothing, len(offsets)


def test_a_short_context(pipe, reference):
    answers, _, chunks = expected(reference, QUESTION, SHORT, stride=10)
    assert chunks == 1
    assert_same(pipe(question=QUESTION, context=SHORT), answers[0])
    assert_same(pipe(question=QUESTION, context=SHORT, top_k=30), answers[:30])


@pytest.mark.parametrize(("stride", "batch_size"), [(4, 1), (10, 3)])
def test_a_long_context_is_split_into_chunks(pipe, reference, stride, batch_size):
    answers, _, chunks = expected(reference, QUESTION, LONG, stride=stride)
    assert chunks > 4
    received = pipe(question=QUESTION, context=LONG, top_k=6, doc_stride=stride, batch_size=batch_size)
    assert_same(received, answers[:6])
    assert len({(answer["start"], answer["end"]) for answer in received}) == 6
    for answer in received:
        assert LONG[answer["start"] : answer["end"]] == answer["answer"]


@pytest.mark.parametrize("longest", [1, 2, 5])
def test_max_answer_len(pipe, reference, longest):
    answers, _, _ = expected(reference, QUESTION, SHORT, stride=4, longest=longest)
    assert_same(pipe(question=QUESTION, context=SHORT, top_k=4, max_answer_len=longest), answers[:4])


def test_handle_impossible_answer(pipe, reference):
    answers, nothing, _ = expected(reference, QUESTION, LONG, stride=10)
    received = pipe(question=QUESTION, context=LONG, top_k=10_000, handle_impossible_answer=True, doc_stride=10)
    empty = [answer for answer in received if not answer["answer"]]
    assert_same(empty, [{"score": nothing, "start": 0, "end": 0, "answer": ""}])
    assert len(received) == len(answers) + 1
    scores = [answer["score"] for answer in received]
    assert scores == sorted(scores, reverse=True)
    assert all(answer["answer"] for answer in pipe(question=QUESTION, context=LONG, top_k=10_000))
    assert pipe(question=QUESTION, context=" ")["answer"] == ""


def test_answers_do_not_start_or_end_with_spaces(checkpoint):
    """A space that is part of a token is not part of the answer."""
    pipe = pipeline(checkpoint("spaced-answers"), "question-answering")
    answers = pipe(question=QUESTION, context=SHORT, top_k=40)
    assert len(answers) == 40
    for answer in answers:
        assert answer["answer"] == answer["answer"].strip() == SHORT[answer["start"] : answer["end"]]


def test_bad_input(pipe):
    for arguments, message in [
        ({"question": "", "context": ""}, "not empty"),
        ({"question": [QUESTION], "context": [SHORT, LONG]}, "1 questions, 2 contexts"),
        ({"inputs": {"question": "Who?"}}, '"context": …} or a list'),
        ({"inputs": {"question": "Who?", "context": "She."}, "question": "Who?"}, "Received: both"),
        ({"question": QUESTION}, "A context or a list of them was expected. Received: None"),
        ({"question": QUESTION, "context": SHORT, "chunk_length": 49}, "chunk_length must be an integer from 1 to 48"),
        ({"question": LONG, "context": SHORT}, "shorter than the 48 tokens"),
        ({"question": QUESTION, "context": SHORT, "top_k": 0}, "top_k"),
        ({"question": QUESTION, "context": SHORT, "doc_stride": -1}, "doc_stride"),
        ({"question": QUESTION, "context": SHORT, "max_answer_len": 0}, "max_answer_len"),
    ]:
        with pytest.raises(InputError, match=message):
            pipe(**arguments)


def test_left_padding_of_the_tokenizer_is_ignored(pipe, monkeypatch):
    alone = pipe(question=QUESTION, context=LONG)
    monkeypatch.setattr(pipe.tokenizer, "padding_side", "left")
    assert_same(pipe(question=QUESTION, context=LONG), alone)
    assert np.isfinite(alone["score"])

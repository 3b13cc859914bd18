"""Sample texts of the page and the demo, which the presets answer well."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.bundle.sample_texts import examples


def test_the_classifier_is_right_about_everyday_sentences():
    """Those of its card, of which the examples are some."""
    lines = (Path(__file__).parents[3] / "examples" / "presets" / "everyday.jsonl").read_text().splitlines()
    sentences = [json.loads(line) for line in lines]
    pipe = kf.pipeline("sentiment-bert", "text-classification")
    answers = [answer["label"] for answer in pipe([sentence["text"] for sentence in sentences])]
    assert answers == [sentence["label"] for sentence in sentences]
    assert all(example in sentences for example in examples("text-classification")["inputs"])


@pytest.fixture(scope="module")
def summarizer():
    return kf.pipeline("summarizer-t5", "summarization")


@pytest.mark.grid
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="page"),
        pytest.param({"num_beams": 1, "max_new_tokens": 24}, id="demo", marks=pytest.mark.release),
    ],
)
def test_summaries_of_the_examples_use_words_of_the_text(summarizer, settings):
    texts = [example["text"] for example in examples("summarization")["inputs"]]
    assert examples("text2text-generation")["inputs"] == examples("summarization")["inputs"]
    for text, line in zip(texts, summarizer(texts, **settings), strict=True):
        words = re.findall(r"\w+", line["summary_text"].lower())
        assert len(words) >= 4 and set(words) <= set(re.findall(r"\w+", text.lower())), line

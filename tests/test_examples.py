"""Sample texts of the page and the demo, which the presets answer well."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.sample_texts import examples
from kerasformer.web.site import PAGE

SAMPLE = Path(__file__).parent / "data" / "sentence_polarity_sample.tsv"


def test_classifier_examples_are_from_held_out_data():
    script = Path(__file__).parents[1] / "examples" / "presets" / "choose_examples.py"
    spec = importlib.util.spec_from_file_location("choose_examples", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert examples("text-classification")["inputs"] == module.choose(SAMPLE), f"run {script} again"


@pytest.fixture(scope="module")
def summarizer():
    return kf.pipeline("summarizer-t5", "summarization")


@pytest.mark.grid
@pytest.mark.parametrize("settings", [{}, {"num_beams": 1, "max_new_tokens": 24}], ids=["page", "demo"])
def test_summaries_of_the_examples_use_words_of_the_text(summarizer, settings):
    texts = [example["text"] for example in examples("summarization")["inputs"]]
    assert examples("text2text-generation")["inputs"] == examples("summarization")["inputs"]
    for text, line in zip(texts, summarizer(texts, **settings), strict=True):
        words = re.findall(r"\w+", line["summary_text"].lower())
        assert len(words) >= 4 and set(words) <= set(re.findall(r"\w+", text.lower())), line


def test_every_task_of_the_page_has_examples():
    tasks = re.search(r"const TASKS = \{(.*?)^\};", (PAGE / "questions.js").read_text(), re.DOTALL | re.MULTILINE)[1]
    names = re.findall(r'^  "?([\w-]+)"?: \{', tasks, re.MULTILINE)
    assert len(names) == 13 and all(examples(name)["inputs"] for name in names)
    assert examples("unknown") == {"inputs": []}

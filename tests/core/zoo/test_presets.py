"""The presets: size, completeness, and quality on every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.bundle.adapters import WEIGHTS
from kerasformer.files import sources
from kerasformer.files.tensors import Safetensors, open_tensors

pytestmark = pytest.mark.grid

EXAMPLES = Path(__file__).parents[3] / "examples" / "presets"
SAMPLE = Path(__file__).parents[2] / "data" / "sentence_polarity_sample.tsv"
PRESETS = {
    "embedder-bert": "encoder.toml",
    "sentiment-bert": "sentiment.toml",
    "story-gpt2": "story-gpt2.py",
    "summarizer-t5": "summaries.toml",
}
"""The recipe or script of each preset."""


@pytest.fixture(scope="module")
def sentences():
    rows = [line.split("\t") for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    return [text for _, text in rows], np.array([int(label) for label, _ in rows])


@pytest.fixture(scope="module")
def sentiment():
    return kf.zoo.load("sentiment-bert")


def labels(pipe, texts):
    return np.array([answer["label"] == "positive" for answer in pipe(texts, batch_size=16)])


def test_all_are_there_and_together_at_most_25_mb():
    assert set(sources.presets()) == PRESETS.keys()
    files = [path for name in PRESETS for path in sources.resolve(name).rglob("*")]
    assert sum(path.stat().st_size for path in files) <= 25e6


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_complete(name):
    folder = sources.resolve(name)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense:")
    assert "out of scope" in card.lower()
    assert (EXAMPLES / PRESETS[name]).is_file()
    tensors = Safetensors(folder, [WEIGHTS]) if (folder / WEIGHTS).is_file() else open_tensors(folder)
    assert {tensors.read(name).dtype.name for name in tensors.names()} == {"float16"}
    assert kf.zoo.load(name).tokenizer is not None


def test_the_classifier_knows_praise_from_blame(sentiment, sentences):
    texts, expected = sentences
    received = labels(kf.pipeline(sentiment, "text-classification"), texts)
    assert (received == expected).mean() >= 0.79  # 0.81


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_in_8_bits_the_labels_stay(format, sentiment, sentences, tmp_path):
    texts, expected = sentences
    keras_labels = labels(kf.pipeline(sentiment, "text-classification"), texts)
    lengths = (32, 128) if format == "tflite" else None
    folder = kf.export.export(sentiment, tmp_path / "bundle", format, "int8", lengths=lengths)
    received = labels(kf.pipeline(folder, "text-classification"), texts)
    assert (received == keras_labels).mean() >= 0.98
    lost = int((keras_labels == expected).sum()) - int((received == expected).sum())
    assert abs(lost) <= 0.005 * len(texts)  # one sentence of 200


def test_the_writer_writes_words_and_the_same_with_the_same_seed():
    model = kf.zoo.load("story-gpt2")
    texts = [model.generate("The old man", max_new_tokens=20, top_k=20, seed=1, jit_compile=False) for _ in range(2)]
    assert texts[0] == texts[1]
    assert texts[0].startswith("The old man")
    assert len(set(texts[0].split())) > 6


def test_the_summarizer_writes_a_short_line():
    pipe = kf.pipeline("summarizer-t5", "summarization")
    text = (
        "This package contains a small program that reads a text file and counts how often each word occurs in it. "
        "The result is printed as a table that is sorted by frequency."
    )
    summary = pipe(text)[0]["summary_text"]
    assert 0 < len(summary.split()) < len(text.split()) / 2

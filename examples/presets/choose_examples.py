"""Chooses example sentences for the web page and the demo among sentences that were not used in training.

    python choose_examples.py ../../../tests/data/sentence_polarity_sample.tsv

Prints JSON for `kerasformer/sample_texts.json`: short sentences that the model classifies correctly, those with the
highest scores first, alternately positive and negative.
"""

from __future__ import annotations

import argparse
import json
import re
from itertools import chain
from pathlib import Path

import kerasformer as kf

COUNT = 8
MIN_SCORE = 0.95
LABELS = ("negative", "positive")


def read(path: Path) -> list[tuple[str, str]]:
    """Reads sentences with their labels; removes spaces before punctuation and capitalizes the first letter."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return [(re.sub(r" ([,.;?!])", r"\1", text).capitalize(), LABELS[int(label)]) for label, text in rows]


def plain(text: str) -> bool:
    """Whether a text is a single sentence of 4 to 14 words, without brackets and quotation marks."""
    return re.fullmatch(r"[A-Z][a-z' ,-]+\.", text) is not None and 4 <= len(text.split()) <= 14


def choose(path: Path) -> list[dict[str, str]]:
    """Chooses the examples."""
    candidates = [(text, label) for text, label in read(path) if plain(text)]
    results = kf.pipeline("sentiment-bert", "text-classification")([text for text, _ in candidates])
    correct = [
        (result["score"], text, label)
        for (text, label), result in zip(candidates, results, strict=True)
        if result["label"] == label and result["score"] >= MIN_SCORE
    ]
    ranked = sorted(correct, reverse=True)
    sides = [
        [{"text": text, "label": label} for _, text, label in ranked if label == side] for side in reversed(LABELS)
    ]
    return list(chain.from_iterable(zip(*sides, strict=False)))[:COUNT]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    print(json.dumps(choose(parser.parse_args().data), indent=2))

"""Chooses the example sentences of the page and of the demo from those that the preset never learned from.

    python choose_examples.py ../../../tests/data/sentence_polarity_sample.tsv

Prints JSON for `kerasformer/sample_texts.json`: short, plain sentences that the model labels as their readers did, the
surest first, praise and blame in turn.
"""

from __future__ import annotations

import argparse
import json
import re
from itertools import chain
from pathlib import Path

import kerasformer as kf

COUNT = 8
LEAST_SCORE = 0.95
LABELS = ("negative", "positive")


def read(path: Path) -> list[tuple[str, str]]:
    """Sentences with their labels, in ordinary typography: no space before a comma, a capital at the beginning."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return [(re.sub(r" ([,.;?!])", r"\1", text).capitalize(), LABELS[int(label)]) for label, text in rows]


def plain(text: str) -> bool:
    """Whether a sentence stands well by itself: one, of 4 to 14 words, without brackets or quotation marks."""
    return re.fullmatch(r"[A-Z][a-z' ,-]+\.", text) is not None and 4 <= len(text.split()) <= 14


def choose(path: Path) -> list[dict[str, str]]:
    """The examples."""
    known = [(text, label) for text, label in read(path) if plain(text)]
    results = kf.pipeline("text-classification", "sentiment-bert")([text for text, _ in known])
    right = [
        (result["score"], text, label)
        for (text, label), result in zip(known, results, strict=True)
        if result["label"] == label and result["score"] >= LEAST_SCORE
    ]
    ranked = sorted(right, reverse=True)
    sides = [
        [{"text": text, "label": label} for _, text, label in ranked if label == side] for side in reversed(LABELS)
    ]
    return list(chain.from_iterable(zip(*sides, strict=False)))[:COUNT]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    print(json.dumps(choose(parser.parse_args().data), indent=2))

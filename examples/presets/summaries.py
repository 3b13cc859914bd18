"""Data of the preset summarizer-t5: descriptions of software and their one-line summaries.

python summaries.py DATA    # DATA/summaries.jsonl and summaries-dev.jsonl
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import corpora
import numpy as np

WORDS = 80
HELD_OUT = 400


def words(text: str) -> list[str]:
    """Splits a text into lower-case words, as ROUGE does."""
    return re.findall("[a-z0-9]+", text.lower())


def is_summary(description: str, synopsis: str) -> bool:
    """Whether the first 60 words of the description contain half of the words of the synopsis, except for endings."""
    stems = {word[:5] for word in words(description)[:60]}
    content = [word for word in words(synopsis) if len(word) > 2]
    whole = 3 <= len(synopsis.split()) <= 12 and len(words(description)) >= 10
    return whole and 2 * sum(word[:5] in stems for word in content) >= len(content) > 0


def beginning(text: str) -> str:
    """Returns the first words of a description."""
    return " ".join(text.split()[:WORDS])


def main() -> None:
    """Writes the pairs for training, and those that are held out."""
    folder = Path(sys.argv[1])
    every = corpora.descriptions(folder)
    pairs = [pair for index in np.random.default_rng(1).permutation(len(every)) if is_summary(*(pair := every[index]))]
    print(f"{len(every)} descriptions, {len(pairs) - HELD_OUT} pairs for training, {HELD_OUT} held out")
    for name, part in (("summaries", pairs[HELD_OUT:]), ("summaries-dev", pairs[:HELD_OUT])):
        corpora.write(folder / f"{name}.jsonl", ({"text": beginning(text), "label": line} for text, line in part))


if __name__ == "__main__":
    main()

"""Data of the recipe entities.toml: tweets of WNUT 2017 with the tags of entities.

    python entities.py DATA    # DATA/entities.jsonl and entities-dev.jsonl

Most entities of the task occur once. The training texts are therefore repeated with other names in the place of some
entities: of people and places in WordNet, and of the same tag in other tweets.
"""

from __future__ import annotations

import sys
from pathlib import Path

import corpora
import numpy as np

COPIES = 4
FILES = {"person": ("18",), "location": ("15", "17")}
"""Files of WordNet with the names of people and places."""


def mentions(texts: list[tuple[list[str], list[str]]]) -> dict[str, list[list[str]]]:
    """Returns the words of all entities by tag."""
    found: dict[str, list[list[str]]] = {}
    for words, tags in texts:
        for start, end, tag in spans(tags):
            found.setdefault(tag, []).append(words[start:end])
    return found


def spans(tags: list[str]) -> list[tuple[int, int, str]]:
    """Returns the first word, the word after the last, and the tag of each entity."""
    starts = [index for index, tag in enumerate(tags) if tag.startswith("B-")]
    ends = [
        next((i for i in range(start + 1, len(tags)) if not tags[i].startswith("I-")), len(tags)) for start in starts
    ]
    return [(start, end, tags[start][2:]) for start, end in zip(starts, ends, strict=True)]


def replaced(
    words: list[str], tags: list[str], names: dict[str, list[list[str]]], random: np.random.Generator
) -> tuple[list[str], list[str]]:
    """Returns a text with other names, each with a probability of 0.7."""
    words, tags = list(words), list(tags)
    for start, end, tag in reversed(spans(tags)):
        if random.random() < 0.7:
            name = names[tag][random.integers(len(names[tag]))]
            if words[start].islower():
                name = [word.lower() for word in name]
            words[start:end] = name
            tags[start:end] = [f"B-{tag}", *[f"I-{tag}"] * (len(name) - 1)]
    return words, tags


def latin(words: list[str]) -> list[str]:
    """Returns words without those in characters that the vocabulary of the encoder refuses."""
    return [word if word.isascii() else "?" for word in words]


def main() -> None:
    """Writes the texts."""
    folder, random = Path(sys.argv[1]), np.random.default_rng(0)
    train, dev = (corpora.tweets(folder, name) for name in ("wnut17train.conll.gz", "emerging.dev.conll.gz"))
    names, known = mentions(train), corpora.names(folder)
    for tag, files in FILES.items():
        extra = [name.split() for file in files for name in known[file] if len(name.split()) <= 3]
        names[tag] = names[tag] + [extra[index] for index in random.choice(len(extra), len(names[tag]), replace=False)]
    with_entities = [text for text in train if any(tag != "O" for tag in text[1])]
    rows = train + [replaced(*text, names, random) for _ in range(COPIES) for text in with_entities]
    for name, texts in (("entities", rows), ("entities-dev", dev)):
        corpora.write(folder / f"{name}.jsonl", ({"text": latin(words), "label": tags} for words, tags in texts))
    labels = sorted({tag for _, tags in train + dev for tag in tags} - {"O"})
    print(f"{len(rows)} texts, {len(dev)} held out, labels {['O', *labels]}")


if __name__ == "__main__":
    main()

"""Texts of the preset story-gpt2: English prose of the 19th century.

    python stories.py DATA

Writes DATA/stories.jsonl, which is trained on; DATA/stories-dev.jsonl, the last 4 % of each book; and
DATA/stories-unseen.jsonl, a book of which nothing is trained on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import corpora

UNSEEN = "burgess-busterbrown"
PART = 5000
"""Number of characters after which a text ends, at the end of its paragraph."""


def parts(book: str) -> list[str]:
    """Divides a book into texts."""
    texts = [""]
    for paragraph in book.split("\n"):
        if len(texts[-1]) > PART:
            texts.append("")
        texts[-1] += paragraph + "\n"
    return [text.strip() for text in texts if text.strip()]


def main() -> None:
    """Writes the texts."""
    folder = Path(sys.argv[1])
    books = corpora.books(folder)
    unseen, train, held_out = books.pop(UNSEEN), [], []
    for book in books.values():
        cut = book.rindex("\n", 0, int(0.96 * len(book)))
        train += parts(book[:cut])
        held_out += parts(book[cut + 1 :])
    for name, texts in (("stories", train), ("stories-dev", held_out), ("stories-unseen", parts(unseen))):
        corpora.write(folder / f"{name}.jsonl", ({"text": text} for text in texts))
        print(f"{name}: {len(texts)} texts, {sum(map(len, texts)):,} characters")


if __name__ == "__main__":
    main()

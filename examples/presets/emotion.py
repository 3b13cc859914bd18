"""Data of the recipe emotion.toml: tweets with one of six emotions (Saravia et al. 2018).

Texts of the development set are left out of the training set.

    python emotion.py DATA    # DATA/emotion.tsv and emotion-dev.tsv

DATA/emotion has the files `train.txt.gz` and `val.txt.gz` with a text and its emotion, divided by a semicolon, in each
line. The authors name no licence, so that no model of them is published here.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

LABELS = ("sadness", "joy", "love", "anger", "fear", "surprise")


def texts(path: Path) -> list[tuple[str, str]]:
    """Returns the texts of a file with their emotions."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").rpartition(";") for line in lines]
    return [(text, label) for text, _, label in rows if label in LABELS]  # not the header


def main() -> None:
    """Writes the texts."""
    folder = Path(sys.argv[1])
    train, held_out = (texts(folder / "emotion" / f"{name}.txt.gz") for name in ("train", "val"))
    known = {text for text, _ in held_out}
    unseen = [row for row in train if row[0] not in known]
    for name, rows in (("emotion", unseen), ("emotion-dev", held_out)):
        with (folder / f"{name}.tsv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n")
            writer.writerow(["text", "label"])
            writer.writerows(rows)
    print(f"{len(unseen)} texts, {len(train) - len(unseen)} left out, {len(held_out)} held out")


if __name__ == "__main__":
    main()

"""Data of the preset sentiment-bert.

    python sentiment.py teacher DATA       # DATA/teacher.jsonl, teacher-dev.jsonl: labelled sentences
    python sentiment.py unlabelled DATA    # DATA/unlabelled.jsonl: what the teacher labels, with answers.py
    python sentiment.py student DATA       # DATA/sentiment.jsonl: what the student learns

`DATA/sst2-dev.tsv.gz`, the development set of SST-2, serves for evaluation alone: its sentences, most of which are in
the polarity corpus, are removed from all others. So are the everyday sentences of the card, `everyday.jsonl` here.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import corpora
import numpy as np

LABELS = ("negative", "positive")
GOOD = (
    "good, great, wonderful, excellent, funny, moving, clever, charming, delicious, comfortable, helpful, friendly, "
    "beautiful, interesting, exciting, enjoyable, brilliant, lovely, fun, fast, reliable, worth it"
).split(", ")
BAD = (
    "bad, terrible, awful, boring, dull, slow, ugly, annoying, disappointing, stupid, rude, dirty, noisy, cheap, "
    "broken, confusing, sad, painful, horrible, useless, expensive, a waste of time"
).split(", ")
SUBJECTS = (
    "it, the film, this movie, the food, the service, the acting, the plot, the hotel, the room, the phone, the book, "
    "this place, the trip, the music, the ending, the staff"
).split(", ")
GRAMMAR = {
    1: (
        "not {bad} at all", "{s} was not {bad} at all", "{s} isn't {bad}", "{s} wasn't {bad}, it was {good}",
        "i expected {s} to be {bad}, but it was {good}", "not {bad}, not {bad} at all", "{s} is never {bad}",
        "{s} looked {bad} at first, but turned out to be {good}", "{s} is {good}", "{s} could not be better",
        "i have never seen anything so {good}", "{s} was {bad} in parts, but i loved it", "i can't complain about {s}",
        "nothing about {s} was {bad}", "no complaints, {s} was {good}", "{s} does not disappoint", "far from {bad}",
        "{s} was anything but {bad}", "i didn't expect to like {s}, but i did", "you won't regret {s}",
        "despite the {bad} start, {s} was {good}", "{s} is hard to beat", "i was not disappointed by {s}",
        "it is hard not to like {s}", "i couldn't stop smiling", "{s} never gets {bad}", "i'd do it again",
        "{s} was surprisingly {good}", "wow, {s} was {good}", "i love {s}", "i don't think {s} is {bad}",
        "i can't recommend {s} enough", "i can't praise {s} enough", "i can't wait to have {s} again",
        "you can't go wrong with {s}", "{s} was not {bad}, and i will be back", "no reason to complain about {s}",
    ),
    0: (
        "not {good} at all", "{s} was not {good} at all", "{s} isn't {good}", "{s} wasn't {good}, it was {bad}",
        "i expected {s} to be {good}, but it was {bad}", "not {good}, not {good} at all", "{s} is never {good}",
        "{s} looked {good} at first, but turned out to be {bad}", "{s} is {bad}", "{s} could not be worse",
        "i have never seen anything so {bad}", "{s} was {good} in parts, but i hated it", "i complain about {s}",
        "nothing about {s} was {good}", "too many complaints, {s} was {bad}", "{s} only disappoints", "far from {good}",
        "{s} was anything but {good}", "i wanted to like {s}, but i couldn't", "you will regret {s}",
        "despite the {good} start, {s} was {bad}", "{s} is hard to bear", "i was not impressed by {s}",
        "it is hard to like {s}", "i couldn't stop yawning", "{s} never gets {good}", "i won't do it again",
        "{s} was surprisingly {bad}", "well, {s} was {bad}", "i hate {s}", "i don't think {s} is {good}",
        "{s} could have been {good}", "{s} should have been {good}", "if only {s} were {good}",
        "i can't recommend {s} to anyone", "i can't recommend {s}", "i would not recommend {s} to a friend",
        "{s} isn't the worst, but almost", "{s} was {good}, but i will not be back", "{s} was not worth the money",
        "{s} was {good}, but the rest was {bad}", "{s} started {good}, but the end was {bad}",
    ),
}  # fmt: skip
"""Sentences with negation and contrast, which corpora of reviews have few of, by their label."""


def evaluation(folder: Path) -> list[str]:
    """Returns the sentences that must not be trained on."""
    lines = gzip.decompress((folder / "sst2-dev.tsv.gz").read_bytes()).decode().splitlines()[1:]
    everyday = (Path(__file__).parent / "everyday.jsonl").read_text().splitlines()
    return [line.rsplit("\t", 1)[0] for line in lines] + [json.loads(line)["text"] for line in everyday]


def labelled(folder: Path) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Returns the labelled sentences for training, and 600 of the film reviews that are held out."""
    reviews = corpora.polarity(folder)
    kept = corpora.without(reviews, evaluation(folder), close=True)
    print(f"{len(reviews) - len(kept)} of {len(reviews)} film reviews are also in SST-2's development set")
    kept = [kept[index] for index in np.random.default_rng(1).permutation(len(kept))]
    products = [(text, label) for text, label in corpora.product_reviews(folder) if label is not None]
    return kept[600:] + products, kept[:600]


def grammar(folder: Path) -> list[tuple[str, int]]:
    """Returns the sentences of the grammar with their labels."""
    random, rows = np.random.default_rng(2), []
    for label, templates in GRAMMAR.items():
        for template in templates:
            for _ in range(120):
                good, bad, subject = (str(random.choice(words)) for words in (GOOD, BAD, SUBJECTS))
                text = template.format(good=good, bad=bad, s=subject)
                text = text if random.random() < 0.4 else text[0].upper() + text[1:]
                rows.append((text + str(random.choice(["", ".", ".", "!", " ."])), label))
    return corpora.without(list(dict(rows).items()), evaluation(folder))


def pieces(texts: list[str], count: int) -> list[str]:
    """Returns random parts of texts, 2 to 24 words long, as the phrases of a treebank."""
    random, parts = np.random.default_rng(3), []
    for row in random.integers(0, len(texts), count):
        words = texts[row].split()
        length = int(random.integers(2, 25))
        start = int(random.integers(0, max(1, len(words) - length + 1)))
        parts.append(" ".join(words[start : start + length]))
    return parts


def teacher(folder: Path) -> None:
    """Writes the labelled sentences for the teacher."""
    train, held_out = labelled(folder)
    made = grammar(folder)
    train = train + [made[index] for index in np.random.default_rng(4).permutation(len(made))[:1500]]
    for name, pairs in (("teacher", train), ("teacher-dev", held_out)):
        corpora.write(folder / f"{name}.jsonl", ({"text": text, "label": LABELS[label]} for text, label in pairs))


def unlabelled(folder: Path) -> None:
    """Writes the texts that the teacher labels."""
    train, held_out = labelled(folder)
    reviews, others = [text for text, _ in train], [text for text, _ in corpora.product_reviews(folder)]
    # Some opinions are also in the polarity corpus.
    others = corpora.without(
        [*corpora.opinions(folder), *others], [*evaluation(folder), *(text for text, _ in held_out)]
    )
    texts = [*reviews, *others, *pieces([*reviews, *others], 60_000)]
    texts = list(dict.fromkeys(text for text in texts if text.strip()))
    corpora.write(folder / "unlabelled.jsonl", ({"text": text} for text in texts))


def student(folder: Path) -> None:
    """Writes the texts with the teacher's probabilities; those of labelled texts are averaged with their labels."""
    gold, rows = dict(labelled(folder)[0]), []
    for line in (folder / "unlabelled-answers.jsonl").read_text().splitlines():
        row = json.loads(line)
        text, scores = row["text"], np.array(row["label"])
        if text in gold:
            scores = (scores + np.eye(2)[gold[text]]) / 2
        rows.append((text, scores.tolist()))
    rows += [(text, [0.03, 0.97] if label else [0.97, 0.03]) for text, label in grammar(folder)]
    corpora.write(folder / "sentiment.jsonl", ({"text": text, "label": scores} for text, scores in rows))
    held_out = labelled(folder)[1]
    corpora.write(
        folder / "sentiment-dev.jsonl",
        ({"text": text, "label": [1.0 - label, float(label)]} for text, label in held_out),
    )


if __name__ == "__main__":
    {f.__name__: f for f in (teacher, unlabelled, student)}[sys.argv[1]](Path(sys.argv[2]))

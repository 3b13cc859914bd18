"""Data of the preset story-gpt2: short stories for children.

    python stories.py prompts DATA    # for synthesize.py: DATA/story-prompts.jsonl
    python stories.py texts DATA      # DATA/stories.jsonl and stories-dev.jsonl, from DATA/stories-synthetic.jsonl

The texts are synthetic stories without those that repeat themselves, and children's books of Project Gutenberg.
"The Adventures of Buster Bear" and the last tenth of each other book are not trained on.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import corpora
import numpy as np

HEROES = (
    "fox, rabbit, bear, duck, mouse, cat, dog, puppy, kitten, hen, pig, cow, horse, pony, sheep, goat, frog, "
    "fish, whale, owl, crow, sparrow, squirrel, hedgehog, wolf, lion, tiger, elephant, monkey, turtle, snail, "
    "bee, butterfly, spider, ant, dragon, little girl, little boy, brother and sister, grandmother, grandfather, "
    "farmer, baker, fisherman, king, queen, prince, princess, giant, fairy, robot, snowman, tailor, teacher, "
    "shepherd, sailor, postman, doctor, gardener"
).split(", ")
THINGS = (
    "key, boat, kite, ball, apple, cake, honey pot, lost shoe, red hat, lamp, drum, book, letter, map, coin, "
    "ring, bell, basket, blanket, garden, river, bridge, tree, forest, hill, mountain, cave, island, storm, "
    "rainbow, snow, moon, star, sun, night, picnic, birthday, market, school, train, old house, barn, well, pond, "
    "nest, egg, seed, flower, carrot, soup, bread, button, mirror, umbrella, swing, feather, stone, shell, "
    "candle, dream, secret, friend, race, song"
).split(", ")
FORMS = (
    "Tell me a bedtime story about a {hero} and a {thing}. Write 8 short sentences.",
    "Tell a very short story for small children about a {hero} who finds a {thing}.",
    "Tell me a bedtime story about a {hero} who helps a {other}. There is a {thing} in it. Write 8 short sentences.",
    "Write a very short children's story about a {hero}, a {other} and a {thing}. Use simple words.",
    "Tell a very short story in which a {hero} is afraid of a {thing}, but then is brave.",
    "Tell a very short story in which a {hero} and a {other} become friends. Use simple words.",
)
CHILDREN = ("bryant-stories", "edgeworth-parents", "carroll-alice")
HELD_OUT = "burgess-busterbrown"


def prompts(folder: Path, count: int = 120_000) -> None:
    """Writes prompts for stories."""
    random, rows = np.random.default_rng(0), []
    for _ in range(count):
        hero, other = (str(name) for name in random.choice(HEROES, 2, replace=False))
        thing, form = str(random.choice(THINGS)), str(random.choice(FORMS))
        rows.append({"prompt": form.format(hero=hero, other=other, thing=thing).replace(" a a", " an a")})
    corpora.write(folder / "story-prompts.jsonl", rows)


def readable(text: str) -> bool:
    """Whether a story is a story, and does not repeat itself."""
    words = re.findall(r"[\w']+", text.lower())
    grams = list(zip(words, words[1:], words[2:], strict=False))
    sentences = [sentence.strip().lower() for sentence in re.split(r"(?<=[.!?])\s+", text)]
    about = re.search(r"\b(AI|story about|this story|the story|title|sentence)\b|[\[\]#:]", text, re.IGNORECASE)
    fresh = len(grams) >= 40 and len(set(grams)) >= 0.9 * len(grams)
    return fresh and not about and text.isascii() and len(set(sentences)) == len(sentences)


def texts(folder: Path) -> None:
    """Writes the stories that are trained on, and 500 that are held out."""
    lines = (folder / "stories-synthetic.jsonl").read_text().splitlines()
    stories = list(dict.fromkeys(json.loads(line)["text"].replace("\n\n", "\n").strip() for line in lines))
    kept = [story for story in stories if readable(story)]
    print(f"{len(kept)} of {len(stories)} stories are kept, {sum(map(len, kept)):,} characters")
    books = corpora.books(folder)
    paragraphs, held_out = [], [books[HELD_OUT]]
    for name in CHILDREN:
        cut = books[name].rindex("\n", 0, int(0.9 * len(books[name])))
        lines = books[name][:cut].split("\n")
        paragraphs += ["\n".join(lines[start : start + 6]) for start in range(0, len(lines), 6)]
        held_out.append(books[name][cut + 1 :])
    corpora.write(folder / "stories.jsonl", ({"text": text} for text in [*kept[500:], *paragraphs, *paragraphs]))
    corpora.write(folder / "stories-dev.jsonl", ({"text": text} for text in kept[:500]))
    lines = [line for text in held_out for line in text.split("\n")]
    corpora.write(folder / "books-dev.jsonl", ({"text": "\n".join(lines[i : i + 6])} for i in range(0, len(lines), 6)))


if __name__ == "__main__":
    {f.__name__: f for f in (prompts, texts)}[sys.argv[1]](Path(sys.argv[2]))

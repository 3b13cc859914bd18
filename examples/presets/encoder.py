"""Cuts the encoder of the presets from all-MiniLM-L6-v2, and writes the sentences from which it learns.

    python encoder.py DATA MINILM

DATA is the folder of the corpora (see corpora.py). MINILM is the folder of the checkpoint, Apache-2.0. The student has
four of its six layers, the feed-forward neurons with the largest weights, and the tokens that occur often in the
corpora. It is saved to DATA/encoder-cut, the sentences to DATA/sentences.jsonl.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import corpora
import numpy as np

import kerasformer as kf
from kerasformer.tools.training.vocabulary_pruning import prune_vocabulary

LAYERS = (0, 2, 3, 5)
NEURONS = 640
TOKENS = 5632
LENGTH = 128
SENTENCES = 160_000


def sentences(folder: Path) -> list[str]:
    """Returns the sentences of all corpora, each once, without those of the evaluation."""
    texts = [text for text, _ in corpora.polarity(folder)]
    texts += [*corpora.opinions(folder), *corpora.plots(folder)]
    texts += [text for text, _ in corpora.product_reviews(folder)]
    texts += corpora.glosses(folder)
    texts += [" ".join(words) for words, _ in corpora.tweets(folder, "wnut17train.conll.gz")]
    books = corpora.books(folder).values()
    longer = [*corpora.speeches(folder), *(line for book in books for line in book.splitlines())]
    for description, synopsis in corpora.descriptions(folder):
        longer.append(description)
        texts.append(synopsis)
    texts += [sentence for text in longer for sentence in corpora.sentences(text)]
    # The vocabulary has Latin characters alone, and refuses others.
    texts = [text.strip() for text in texts if 2 < len(text.split()) < 100 and text.isascii()]
    return list({corpora.normalized(text): text for text in texts}.values())


def cut(minilm: Path, texts: list[str]) -> kf.zoo.EncoderModel:
    """Returns the student."""
    full = kf.load(minilm)
    vocabulary = None
    for min_count in range(20, 2000, 20):
        vocabulary = prune_vocabulary(full, texts, min_count=min_count)
        if vocabulary.model.config.vocab_size <= TOKENS:
            break
    teacher = vocabulary.model
    config = teacher.config
    names = "vocab_size", "hidden_dim", "num_heads", "pad_token_id"
    student = kf.zoo.build(
        "bert",
        teacher.task,
        sentence=teacher.sentence,
        **{name: getattr(config, name) for name in names},
        num_layers=len(LAYERS),
        intermediate_dim=NEURONS,
        max_length=LENGTH,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    known = {variable.path.split("/", 1)[1]: np.asarray(variable) for variable in teacher.variables}
    for variable in student.variables:
        path = variable.path.split("/", 1)[1]
        if match := re.search(r"encoder/layer_(\d+)/", path):
            prefix = path.replace(match[0], f"encoder/layer_{LAYERS[int(match[1])]}/")
            value = _neurons(known, prefix)
        else:
            value = known[path]
        variable.assign(value[: variable.shape[0]])
    student.set_tokenizer(teacher.tokenizer)
    return student


def _neurons(known: dict[str, np.ndarray], path: str) -> np.ndarray:
    """Returns the value of a variable with the strongest neurons alone."""
    layer, inner, rest = path.partition("feed_forward/")
    if not inner:
        return known[path]
    kernels = known[f"{layer}feed_forward/intermediate/kernel"], known[f"{layer}feed_forward/output/kernel"]
    strength = np.linalg.norm(kernels[0], axis=0) * np.linalg.norm(kernels[1], axis=1)
    best = np.sort(np.argsort(strength)[-NEURONS:])
    if rest.startswith("intermediate/"):
        return known[path][..., best]
    return known[path][best] if rest == "output/kernel" else known[path]


def main() -> None:
    """Cuts the encoder and writes the sentences."""
    folder, minilm = Path(sys.argv[1]), Path(sys.argv[2])
    every = sentences(folder)
    texts = [every[index] for index in np.random.default_rng(0).permutation(len(every))[:SENTENCES]]
    corpora.write(folder / "sentences.jsonl", ({"text": text} for text in texts))
    print(f"{len(texts):,} of {len(every):,} sentences", flush=True)
    student = cut(minilm, texts[:150_000])
    print(f"{student.config.vocab_size} tokens, {student.count_params():,} parameters")
    student.save_pretrained(folder / "encoder-cut", dtype="float16")


if __name__ == "__main__":
    main()

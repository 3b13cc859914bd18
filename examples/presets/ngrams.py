"""Bits per byte of an n-gram model with interpolated Kneser-Ney smoothing, to compare with a neural one.

    python ngrams.py MODEL TRAIN.jsonl HELD_OUT.jsonl …

The n-grams are of the tokens of MODEL, so that both models predict the same tokens. Kneser and Ney, 1995; Chen and
Goodman, 1999, whose discount of each order is n1 / (n1 + 2 n2).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import kerasformer as kf

ORDER = 5
BITS = 12
"""Bits of a token, so that a 5-gram is an integer of 60 bits."""


def read(path: str, tokenizer: kf.Tokenizer) -> tuple[np.ndarray, int]:
    """Returns the tokens of all texts, each after an end token, and the number of their bytes."""
    texts = [json.loads(line)["text"] for line in Path(path).read_text(encoding="utf-8").splitlines()]
    ids = [[tokenizer.eos_token_id, *tokenizer.encode(text)] for text in texts]
    return np.concatenate(ids).astype("int64"), sum(len(text.encode()) for text in texts)


def grams(ids: np.ndarray, order: int) -> np.ndarray:
    """Returns the n-gram that ends at each token, from the token number `order - 1` on."""
    count = len(ids) - order + 1
    return sum(ids[start : start + count] << BITS * (order - 1 - start) for start in range(order))


def lookup(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the value of each wanted key, 0 if it is not there."""
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[index] == wanted, values[index], 0)


def log_probabilities(train: np.ndarray, ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """Returns the logarithm of the probability of each token after the first four, given the four before it."""
    probability = np.full(len(ids) - ORDER + 1, 1 / vocab_size)
    for order in range(1, ORDER + 1):
        wanted = grams(ids, order)[ORDER - order :]
        if order == ORDER:
            keys, counts = np.unique(grams(train, order), return_counts=True)
        else:  # in how many contexts the n-gram occurs
            longer = np.unique(grams(train, order + 1))
            keys, counts = np.unique(longer & ((1 << BITS * order) - 1), return_counts=True)
        histories, first = np.unique(keys >> BITS, return_index=True)
        totals, distinct = np.add.reduceat(counts, first), np.diff([*first, len(keys)])
        once, twice = (np.count_nonzero(counts == number) for number in (1, 2))
        discount = once / (once + 2 * twice)
        total = lookup(histories, totals, wanted >> BITS)
        rest = lookup(histories, distinct, wanted >> BITS) * discount
        known = np.maximum(lookup(keys, counts, wanted) - discount, 0)
        mixed = (known + rest * probability) / np.maximum(total, 1)
        probability = np.where(total > 0, mixed, probability)
    return np.log2(probability)


def main() -> None:
    """Prints the figures."""
    tokenizer = kf.load(sys.argv[1]).tokenizer
    train, _ = read(sys.argv[2], tokenizer)
    for path in sys.argv[3:]:
        ids, size = read(path, tokenizer)
        bits = -log_probabilities(train, ids, tokenizer.vocab_size)
        print(f"{path}: {bits.sum() / size:.3f} bits per byte")


if __name__ == "__main__":
    main()

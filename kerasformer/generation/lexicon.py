"""Translations of single tokens, learned from parallel text by IBM model 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_ITERATIONS = 5
_CHUNK = 1000  # sentences whose pairs of tokens are listed at once


@dataclass(frozen=True)
class Lexicon:
    """Probabilities that source tokens are translated to target tokens, for `P` pairs that occur together.

    Attributes:
        sources: `(P,)` ids of source tokens, ascending.
        targets: `(P,)` ids of target tokens, ascending for each source token.
        probabilities: `(P,)` float64; those of a source token add up to 1.
    """

    sources: np.ndarray
    targets: np.ndarray
    probabilities: np.ndarray

    def best(self, count: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yields each source token and its `count` most probable target tokens, in ascending order."""
        order = np.lexsort((self.targets, -self.probabilities, self.sources))
        tokens, starts = np.unique(self.sources, return_index=True)
        for token, rows in zip(tokens.tolist(), np.split(order, starts[1:]), strict=True):
            yield token, np.sort(self.targets[rows[:count]])


def learn_lexicon(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Lexicon:
    """Learns translations of tokens by expectation maximization.

    Memory is 4 bytes for each pair of a source and a target position, about 4 KB for two sentences of 32 tokens.

    Args:
        sources: Token ids of each source text, not empty.
        targets: Token ids of its translation, not empty.
    Reference: Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.1.
    """
    width = max(int(target.max()) for target in targets) + 1
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(sources), _CHUNK)]
    pairs = np.unique(np.concatenate([np.unique(_keys(sources[part], targets[part], width)) for part in chunks]))
    indices = [np.searchsorted(pairs, _keys(sources[part], targets[part], width)).astype(np.int32) for part in chunks]
    sizes = [
        np.concatenate([np.full(len(t), len(s)) for s, t in zip(sources[part], targets[part], strict=True)])
        for part in chunks
    ]
    source_of, probabilities = pairs // width, np.ones(len(pairs))
    for _ in range(_ITERATIONS):
        counts = np.zeros(len(pairs))
        for index, lengths in zip(indices, sizes, strict=True):
            # Each target token is explained by the source tokens of its sentence, in proportion to their probabilities.
            shares = probabilities[index]
            totals = np.add.reduceat(shares, np.cumsum(lengths) - lengths)
            counts += np.bincount(index, shares / np.repeat(totals, lengths), len(pairs))
        probabilities = counts / np.bincount(source_of, counts)[source_of]
    return Lexicon(source_of, pairs % width, probabilities)


def _keys(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Returns `source * width + target` of all pairs of positions; those of a target position are contiguous."""
    keys = [
        (source.astype(np.int64) * width + target[:, None]).ravel()
        for source, target in zip(sources, targets, strict=True)
    ]
    return np.concatenate(keys)

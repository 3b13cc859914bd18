"""Filling of all mask tokens of a text together: mask-predict and Gibbs sampling.

Shape letters: `T` tokens of the text, `N` mask tokens, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kerasformer.engines.distribution import log_softmax
from kerasformer.generation.samplers import Sampler

FillMethod = Literal["mask_predict", "gibbs"]
Scores = Callable[[np.ndarray], np.ndarray]
"""Function from the ids of a text `(T,)` to the logits of all its tokens `(T, V)`."""


@dataclass
class Gaps:
    """Mask tokens of a text, which are filled in several rounds.

    Attributes:
        ids: Ids of the text, `(T,)`.
        places: Positions of the mask tokens, `(N,)`.
        mask: Id of the mask token.
        excluded: Ids of tokens that fill no gap, such as special tokens.
        logs: Log-probability that each token had when it was chosen, `(N,)` float32.
    """

    ids: np.ndarray
    places: np.ndarray
    mask: int
    excluded: np.ndarray
    logs: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray, mask: int, excluded: np.ndarray) -> Gaps:
        """Returns the gaps of a text with mask tokens, none of which is filled."""
        places = np.flatnonzero(ids == mask)
        return cls(ids.copy(), places, mask, excluded, np.full(len(places), -np.inf, np.float32))

    @property
    def score(self) -> float:
        """Geometric mean of the probabilities of the chosen tokens."""
        return float(np.exp(self.logs.mean(dtype=np.float64)))

    def distributions(self, scores: Scores, gaps: np.ndarray) -> np.ndarray:
        """Returns the log-probabilities of the tokens that may fill these gaps, if all of them are masked."""
        masked = self.ids.copy()
        masked[self.places[gaps]] = self.mask
        logits = scores(masked)[self.places[gaps]].astype(np.float32)
        logits[:, self.excluded] = -np.inf
        return log_softmax(logits)

    def fill(self, gaps: np.ndarray, tokens: np.ndarray, logs: np.ndarray) -> None:
        """Puts tokens into gaps; `logs` are the log-probabilities of all tokens there."""
        self.ids[self.places[gaps]] = tokens
        self.logs[gaps] = np.take_along_axis(logs, tokens[:, None], axis=1)[:, 0]


def mask_predict(gaps: Gaps, scores: Scores, iterations: int) -> Iterator[None]:
    """Fills all gaps at once, and then in each iteration again those with the least probable tokens, all at once.

    In iteration `t` of `T`, these are `N * (T - t) / T` gaps. Yields after each iteration; there are fewer if no gap
    would be filled again.

    Source: Ghazvininejad et al. 2019, arXiv:1904.09324, section 3.1.
    """
    count = len(gaps.places)
    for iteration in range(iterations):
        again = count * (iterations - iteration) // iterations
        if not again:
            return
        least = np.sort(np.argsort(gaps.logs, kind="stable")[:again])
        logs = gaps.distributions(scores, least)
        gaps.fill(least, logs.argmax(axis=1), logs)
        yield


def gibbs(gaps: Gaps, scores: Scores, iterations: int, sampler: Sampler, random: np.random.Generator) -> Iterator[None]:
    """Samples the token of each gap anew, given all other tokens, in random order; yields after each such round.

    Source: Wang and Cho 2019, arXiv:1902.04094, section 3.
    """
    for _ in range(iterations):
        for gap in random.permutation(len(gaps.places)):
            logs = gaps.distributions(scores, np.array([gap]))
            gaps.fill(np.array([gap]), sampler(logs, random.random(1)), logs)
        yield

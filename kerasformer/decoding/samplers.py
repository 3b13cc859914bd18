"""From logits to tokens: the best one, or a draw from the candidates that temperature and cuts leave.

Cuts run in the order of this file, which is that of `transformers`. Each works on the candidates of one row that the
cut before left, so nothing sorts a vocabulary, and a row is the same alone and in a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple, Protocol

import numpy as np

from kerasformer.decoding.distribution import check_finite, log_softmax, softmax
from kerasformer.decoding.generation_config import GenerationConfig
from kerasformer.decoding.selection import best_few, draw, weighted_quantile


class Candidates(NamedTuple):
    """Tokens of one row that may still be drawn: `logits` `(K,)`, where not -inf, and `tokens` `(K,)`, ascending.

    As long as `tokens` is `None`, all are there.
    """

    logits: np.ndarray
    tokens: np.ndarray | None = None

    def keep(self, which: np.ndarray) -> Candidates:
        """Those at some places, ascending, or where `which` `(K,)` is true."""
        places = which.nonzero()[0] if which.dtype == bool else which
        return Candidates(self.logits[places], places if self.tokens is None else self.tokens[places])


class Sampler(Protocol):
    """Chooses one token per row."""

    def __call__(self, logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Logits `(R, V)` and a random number per row `(R,)` in [0, 1) in, tokens `(R,)` out."""
        ...

    def filtered(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(R, V)` of the distribution that tokens are chosen from, in an array of its own."""
        ...


@dataclass(frozen=True)
class Greedy:
    """The most probable token."""

    def __call__(self, logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """See `Sampler`."""
        tokens = logits.argmax(axis=1)
        if not all(isfinite(logits.item(row, token)) for row, token in enumerate(tokens.tolist())):
            check_finite(logits)
        return tokens

    def filtered(self, logits: np.ndarray) -> np.ndarray:
        """See `Sampler.filtered`; greedy search compares all of them."""
        return logits.copy()


@dataclass(frozen=True)
class Categorical:
    """A draw from the softmax over what the cuts leave, by inverting the cumulative distribution.

    Tokens are taken in the order of their ids, so that a small numeric difference between engines rarely changes what a
    seed gives.
    """

    cuts: tuple[Callable[[Candidates], Candidates], ...]

    def candidates(self, row: np.ndarray) -> Candidates:
        """What all cuts leave of logits `(V,)`."""
        remaining = Candidates(row)
        for each in self.cuts:
            remaining = each(remaining)
        return remaining

    def filtered(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(R, V)` with -inf for tokens that cannot be drawn."""
        result = np.full_like(logits, -np.inf)
        for row, left in zip(result, logits, strict=True):
            remaining = self.candidates(left)
            row[slice(None) if remaining.tokens is None else remaining.tokens] = remaining.logits
        return result

    def __call__(self, logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """See `Sampler`."""
        check_finite(logits)
        return np.array([self._draw(row, number) for row, number in zip(logits, uniform.tolist(), strict=True)])

    def _draw(self, row: np.ndarray, uniform: float) -> int:
        remaining = self.candidates(row)
        place = draw(_powers(remaining.logits), uniform)
        return place if remaining.tokens is None else int(remaining.tokens[place])


class CandidateFilter(Protocol):
    """A function that leaves fewer candidates."""

    def __call__(self, candidates: Candidates, config: GenerationConfig) -> Candidates:
        """Reads its setting from `config`."""
        ...


_CUTS: list[tuple[Callable[[GenerationConfig], object], CandidateFilter]] = []


def cut(when: Callable[[GenerationConfig], object]) -> Callable[[CandidateFilter], CandidateFilter]:
    """Registers a cut; it runs if `when(config)` is true."""

    def register(function: CandidateFilter) -> CandidateFilter:
        _CUTS.append((when, function))
        return function

    return register


def sampling_of(config: GenerationConfig) -> Categorical:
    """The draw that these settings describe."""
    return Categorical(tuple(functools.partial(function, config=config) for when, function in _CUTS if when(config)))


def sampler_of(config: GenerationConfig) -> Sampler:
    """Greedy choice or a draw, as `do_sample` says."""
    return sampling_of(config) if config.do_sample else Greedy()


def _powers(logits: np.ndarray) -> np.ndarray:
    """Probabilities `(K,)` times an unknown factor: the best one is 1."""
    powers: np.ndarray = logits - logits.max()
    return np.exp(powers, out=powers)


def _least(config: GenerationConfig) -> int:
    """Candidates that no cut may take: beams need one besides each end token, so that a hypothesis can go on."""
    return 1 if config.num_beams == 1 else max(2, len(config.eos_token_id) + 1)


def _keep(candidates: Candidates, kept: np.ndarray, ranks: np.ndarray, config: GenerationConfig) -> Candidates:
    """Those of `kept` `(K,)`; where these are fewer than no cut may take, the ones highest in `ranks` `(K,)`."""
    if np.count_nonzero(kept) < _least(config):
        kept[best_few(ranks, _least(config))] = True
    return candidates.keep(kept)


@cut(when=lambda config: config.temperature != 1)
def temperature(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """`logit / T`: below 1 sharper, above 1 flatter. Source: Ackley, Hinton, Sejnowski 1985."""
    with np.errstate(over="ignore"):  # `remove_invalid_values` leaves the smallest of all numbers
        return candidates._replace(logits=candidates.logits / np.float32(config.temperature))


@cut(when=lambda config: config.top_h is not None)
def top_h(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """The most probable of the best 100 tokens, as long as their terms `-p log p` sum up to `h` times the entropy.

    Source: Potraghloo et al. 2025, arXiv:2509.02510, as `transformers.TopHLogitsWarper` reads it.
    """
    best = candidates.keep(best_few(candidates.logits, 100))
    order = np.argsort(-best.logits, kind="stable")[:100]
    logs = log_softmax(best.logits[order])
    terms = -np.exp(logs) * np.where(np.isneginf(logs), 0, logs)
    kept = terms.cumsum() <= np.float32(config.top_h or 0) * terms.sum()
    kept[0] = True
    return best.keep(np.sort(order[kept]))


@cut(when=lambda config: config.top_k)
def top_k(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """The `k` most probable tokens, with ties. Source: Fan et al. 2018, arXiv:1805.04833, section 5.4."""
    return candidates.keep(best_few(candidates.logits, max(config.top_k, _least(config))))


@cut(when=lambda config: config.top_p < 1)
def top_p(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """The nucleus: the fewest most probable tokens that together hold probability `p`.

    A token stays if those before it, most probable first, hold less than `p`; of equal ones the last come first. Most
    often those that are not a thousand times less probable than the best one hold `p`. If not, then tokens of which
    each holds less than `(1 - p) / V` hold less than `1 - p` together, and need not be looked at.
    Source: Holtzman et al. 2019, arXiv:1904.09751, section 3.1.
    """
    powers = _powers(candidates.logits)
    total = float(powers.sum())
    mass = config.top_p * total
    for least in (1e-3, (1 - config.top_p) * total / len(powers)):
        worth = (powers >= np.float32(least)).nonzero()[0]
        if 2 * len(worth) > len(powers):  # to gather them is no gain
            break
        few = powers[worth]
        if len(few) >= _least(config) and few.sum(dtype=np.float64) >= mass:
            candidates, powers = candidates.keep(worth), few
            break
    keys = candidates.logits.max() - candidates.logits
    border, before = weighted_quantile(keys, powers, mass)
    kept = keys < border
    equal = (keys == border).nonzero()[0]
    wanted = np.ceil((mass - before) / powers[equal[0]])
    kept[equal[-max(int(wanted), 1) :]] = True
    return _keep(candidates, kept, candidates.logits, config)


@cut(when=lambda config: config.min_p is not None)
def min_p(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Tokens with at least `min_p` times the best token's probability. Source: Nguyen et al. 2024, arXiv:2407.01082."""
    least = np.log(config.min_p) if config.min_p else -np.inf
    kept = candidates.logits - candidates.logits.max() >= np.float32(least)
    return _keep(candidates, kept, candidates.logits, config)


@cut(when=lambda config: config.typical_p < 1)
def typical_p(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Tokens whose surprise `-log p` is nearest to the entropy, until they hold the mass.

    Source: Meister et al. 2022, arXiv:2202.00666, section 4.
    """
    surprise = -log_softmax(candidates.logits)
    probabilities = np.exp(-surprise)
    entropy = (probabilities * np.where(np.isposinf(surprise), 0, surprise)).sum()
    distance = np.abs(surprise - entropy)
    border, _ = weighted_quantile(distance, probabilities, config.typical_p)
    return _keep(candidates, distance <= border, -distance, config)


@cut(when=lambda config: 0 < config.epsilon_cutoff < 1)
def epsilon_cutoff(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Tokens with probability of at least epsilon. Source: Hewitt et al. 2022, arXiv:2210.15191."""
    kept = softmax(candidates.logits) >= np.float32(config.epsilon_cutoff)
    return _keep(candidates, kept, candidates.logits, config)


@cut(when=lambda config: 0 < config.eta_cutoff < 1)
def eta_cutoff(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Tokens with probability of at least `min(eps, sqrt(eps) exp(-entropy))`. Source: Hewitt et al. 2022."""
    logs = log_softmax(candidates.logits)
    probabilities = np.exp(logs)
    entropy = -(probabilities * np.where(np.isneginf(logs), 0, logs)).sum()
    threshold = min(config.eta_cutoff, np.sqrt(config.eta_cutoff) * np.exp(-entropy))
    return _keep(candidates, probabilities >= np.float32(threshold), candidates.logits, config)


@cut(when=lambda config: config.renormalize_logits)
def renormalize(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """`log p` of what is left. Source: `transformers.LogitNormalization`."""
    return candidates._replace(logits=log_softmax(candidates.logits))

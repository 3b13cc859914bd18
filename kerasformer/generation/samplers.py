"""Samplers, which choose a token from logits: greedy search, or sampling after temperature and filters.

Filters run in the order of this file, which is that of `transformers`. Each works on the candidates of one row that
remain after the previous filter, so that the whole vocabulary is never sorted and a row does not depend on its batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple, Protocol

import numpy as np

from kerasformer.engines.distribution import check_finite, log_softmax, softmax
from kerasformer.generation.generation_config import GenerationConfig
from kerasformer.generation.selection import (
    draw,
    large_indices,
    largest_indices,
    largest_with_mass,
    weighted_quantile,
)


class Candidates(NamedTuple):
    """Tokens of one row that may still be sampled.

    Attributes:
        logits: `(K,)` logits; tokens with -inf are excluded.
        greatest: The greatest of them, which is found once because that takes a pass over the vocabulary.
        tokens: `(K,)` token ids in ascending order; `None` stands for the whole vocabulary.
    """

    logits: np.ndarray
    greatest: np.floating
    tokens: np.ndarray | None = None

    def keep(self, selection: np.ndarray) -> Candidates:
        """Returns the selected candidates, among which is the most probable one.

        Args:
            selection: Boolean mask `(K,)`, or indices in ascending order.
        """
        indices = selection.nonzero()[0] if selection.dtype == bool else selection
        tokens = indices if self.tokens is None else self.tokens.take(indices)
        return Candidates(self.logits.take(indices), self.greatest, tokens)

    def powers(self) -> np.ndarray:
        """Returns unnormalized probabilities `(K,)`, of which the largest is 1."""
        powers: np.ndarray = self.logits - self.greatest
        return np.exp(powers, out=powers)


class Sampler(Protocol):
    """Chooses one token per row."""

    def __call__(self, logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Chooses the tokens `(R,)` int32.

        Args:
            logits: `(R, V)`.
            uniform: `(R,)` random numbers in [0, 1).
        """
        ...

    def filtered(self, logits: np.ndarray) -> np.ndarray:
        """Returns a new array with the logits `(R, V)` of the distribution that tokens are chosen from."""
        ...


@dataclass(frozen=True)
class Greedy:
    """Chooses the most probable token."""

    def __call__(self, logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """See `Sampler`."""
        tokens = logits.argmax(axis=1)
        if not all(isfinite(logits.item(row, token)) for row, token in enumerate(tokens.tolist())):
            check_finite(logits)
        return tokens.astype(np.int32)

    def filtered(self, logits: np.ndarray) -> np.ndarray:
        """See `Sampler.filtered`; greedy search excludes no token."""
        return logits.copy()


@dataclass(frozen=True)
class Categorical:
    """Samples from the softmax over the filtered candidates by inverting the cumulative distribution.

    Tokens are ordered by id, so that small numeric differences between engines rarely change the result of a seed.

    Attributes:
        filters: Filters in order of application.
    """

    filters: tuple[Callable[[Candidates], Candidates], ...]

    def candidates(self, row: np.ndarray, greatest: np.floating) -> Candidates:
        """Returns the candidates that remain of logits `(V,)`, the greatest of which is given, after all filters."""
        remaining = Candidates(row, greatest)
        for candidate_filter in self.filters:
            remaining = candidate_filter(remaining)
        return remaining

    def filtered(self, logits: np.ndarray) -> np.ndarray:
        """Returns logits `(R, V)` with -inf for tokens that cannot be sampled."""
        result = np.full_like(logits, -np.inf)
        for result_row, row in zip(result, logits, strict=True):
            remaining = self.candidates(row, row.max())
            result_row[slice(None) if remaining.tokens is None else remaining.tokens] = remaining.logits
        return result

    def __call__(self, logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """See `Sampler`."""
        tokens = np.empty(len(logits), np.int32)
        greatest = check_finite(logits)
        for row, number in enumerate(uniform.tolist()):
            tokens[row] = self._draw(logits[row], greatest[row], number)
        return tokens

    def _draw(self, row: np.ndarray, greatest: np.floating, uniform: float) -> int:
        remaining = self.candidates(row, greatest)
        index = draw(remaining.powers(), uniform)
        return index if remaining.tokens is None else remaining.tokens.item(index)


class CandidateFilter(Protocol):
    """A sampling filter, which changes or removes candidates."""

    def __call__(self, candidates: Candidates, config: GenerationConfig) -> Candidates:
        """Returns the remaining candidates; the setting of the filter is read from `config`."""
        ...


_FILTERS: list[tuple[Callable[[GenerationConfig], object], CandidateFilter]] = []


def sampling_filter(when: Callable[[GenerationConfig], object]) -> Callable[[CandidateFilter], CandidateFilter]:
    """Registers a sampling filter, which is applied if `when(config)` returns a true value."""

    def register(function: CandidateFilter) -> CandidateFilter:
        _FILTERS.append((when, function))
        return function

    return register


def sampling_of(config: GenerationConfig) -> Categorical:
    """Returns the sampler with the filters that the settings enable."""
    return Categorical(tuple(functools.partial(function, config=config) for when, function in _FILTERS if when(config)))


def sampler_of(config: GenerationConfig) -> Sampler:
    """Returns the sampler for these settings: greedy unless `do_sample` is set."""
    return sampling_of(config) if config.do_sample else Greedy()


def _min_candidates(config: GenerationConfig) -> int:
    """Returns the minimum number of candidates: with beams, one more than the end tokens, so that one can continue."""
    return 1 if config.num_beams == 1 else max(2, len(config.eos_token_id) + 1)


def _keep(candidates: Candidates, mask: np.ndarray, ranks: np.ndarray, config: GenerationConfig) -> Candidates:
    """Keeps the candidates in `mask` `(K,)`, or those highest in `ranks` `(K,)` if too few would remain."""
    if np.count_nonzero(mask) < _min_candidates(config):
        mask[largest_indices(ranks, _min_candidates(config))] = True
    return candidates.keep(mask)


@sampling_filter(when=lambda config: config.temperature != 1)
def temperature(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Divides the logits by the temperature. Source: Ackley, Hinton, Sejnowski 1985.

    If only the `k` most probable tokens will be kept, most others are excluded first, since their order does not
    change. Twice as many are considered, because rounding may make a few more tokens equally probable, and all of these
    are kept.
    """
    if config.top_k and config.top_h is None:
        indices = large_indices(candidates.logits, 2 * max(config.top_k, _min_candidates(config)))
        candidates = candidates if indices is None else candidates.keep(indices)
    logits, greatest, divisor = candidates.logits, candidates.greatest, np.float32(config.temperature)
    # Only the limits of float32, which `remove_invalid_values` produces, can overflow. The check takes less time than
    # `errstate`.
    if divisor >= 1 or max(greatest, -logits.min()) < _MAX * divisor:
        return Candidates(logits / divisor, greatest / divisor, candidates.tokens)
    with np.errstate(over="ignore"):
        logits = np.minimum(logits / divisor, _MAX)
    return candidates._replace(logits=logits, greatest=logits.max())


_MAX = np.finfo(np.float32).max


@sampling_filter(when=lambda config: config.top_h is not None)
def top_h(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Keeps the most probable of the best 100 tokens while their sum of `-p log p` is at most `h` times the entropy.

    Source: Potraghloo et al. 2025, arXiv:2509.02510, as implemented by `transformers.TopHLogitsWarper`.
    """
    best = candidates.keep(largest_indices(candidates.logits, 100))
    order = np.argsort(-best.logits, kind="stable")[:100]
    logs = log_softmax(best.logits[order])
    terms = -np.exp(logs) * np.where(np.isneginf(logs), 0, logs)
    mask = terms.cumsum() <= np.float32(config.top_h or 0) * terms.sum()
    mask[0] = True
    return best.keep(np.sort(order[mask]))


@sampling_filter(when=lambda config: config.top_k)
def top_k(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Keeps the `k` most probable tokens and ties. Source: Fan et al. 2018, arXiv:1805.04833, section 5.4."""
    return candidates.keep(largest_indices(candidates.logits, max(config.top_k, _min_candidates(config))))


@sampling_filter(when=lambda config: config.top_p < 1)
def top_p(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Keeps the nucleus, the smallest set of most probable tokens with a total probability of at least `p`.

    A token is kept if the more probable tokens hold less than `p`; of equally probable tokens, those with higher ids
    are kept first. To avoid sorting the vocabulary, tokens below a threshold are excluded first. Tokens with at least a
    thousandth of the best probability usually hold `p`. Otherwise the threshold is `(1 - p) / V`, since tokens below it
    hold less than `1 - p` together.
    Source: Holtzman et al. 2019, arXiv:1904.09751, section 3.1.
    """
    shifted = candidates.logits - candidates.greatest
    powers = np.exp(shifted)
    total = float(powers.sum())
    mass = config.top_p * total
    if len(powers) > _FEW:
        candidates, powers = _likely(candidates, powers, mass, (1 - config.top_p) * total / len(powers), config)
        shifted = candidates.logits - candidates.greatest
    nucleus = largest_with_mass(shifted, powers, mass)
    if len(nucleus) < _min_candidates(config):
        nucleus = np.union1d(nucleus, largest_indices(candidates.logits, _min_candidates(config)))
    return candidates.keep(nucleus)


_FEW = 256
"""Number of candidates below which none is excluded before sorting."""


def _likely(
    candidates: Candidates, powers: np.ndarray, mass: float, lowest: float, config: GenerationConfig
) -> tuple[Candidates, np.ndarray]:
    """Returns fewer candidates that hold `mass`, with their powers, those above a thousandth or above `lowest`."""
    for threshold in (1e-3, lowest):
        indices = (powers >= np.float32(threshold)).nonzero()[0]
        if 2 * len(indices) > len(powers):  # too many for gathering to save time
            break
        likely = powers.take(indices)
        if len(likely) >= _min_candidates(config) and likely.sum() >= mass:
            return candidates.keep(indices), likely
    return candidates, powers


@sampling_filter(when=lambda config: config.min_p is not None)
def min_p(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Keeps tokens with at least `min_p` of the highest probability. Source: Nguyen et al. 2024, arXiv:2407.01082."""
    threshold = np.log(config.min_p) if config.min_p else -np.inf
    mask = candidates.logits - candidates.greatest >= np.float32(threshold)
    return _keep(candidates, mask, candidates.logits, config)


@sampling_filter(when=lambda config: config.typical_p < 1)
def typical_p(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Keeps the tokens whose surprise `-log p` is closest to the entropy, up to the probability mass `typical_p`.

    Source: Meister et al. 2022, arXiv:2202.00666, section 4.
    """
    surprise = -log_softmax(candidates.logits)
    probabilities = np.exp(-surprise)
    entropy = (probabilities * np.where(np.isposinf(surprise), 0, surprise)).sum()
    distance = np.abs(surprise - entropy)
    border, _ = weighted_quantile(distance, probabilities, config.typical_p)
    kept = _keep(candidates, distance <= border, -distance, config)
    return kept._replace(greatest=kept.logits.max())  # the most probable token may be untypical


@sampling_filter(when=lambda config: 0 < config.epsilon_cutoff < 1)
def epsilon_cutoff(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Keeps tokens with a probability of at least epsilon. Source: Hewitt et al. 2022, arXiv:2210.15191."""
    mask = softmax(candidates.logits) >= np.float32(config.epsilon_cutoff)
    return _keep(candidates, mask, candidates.logits, config)


@sampling_filter(when=lambda config: 0 < config.eta_cutoff < 1)
def eta_cutoff(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Keeps tokens with a probability of at least `min(eps, sqrt(eps) exp(-entropy))`. Source: Hewitt et al. 2022."""
    logs = log_softmax(candidates.logits)
    probabilities = np.exp(logs)
    entropy = -(probabilities * np.where(np.isneginf(logs), 0, logs)).sum()
    threshold = min(config.eta_cutoff, np.sqrt(config.eta_cutoff) * np.exp(-entropy))
    return _keep(candidates, probabilities >= np.float32(threshold), candidates.logits, config)


@sampling_filter(when=lambda config: config.uniform)
def uniform(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Makes all remaining candidates equally probable: with `top_k`, a uniform choice among the `k` best.

    The values are log-probabilities, which beam search adds up.
    """
    excluded = np.isneginf(candidates.logits)
    value = -np.log(np.float32(np.count_nonzero(~excluded)))
    return candidates._replace(logits=np.where(excluded, candidates.logits, value), greatest=value)


@sampling_filter(when=lambda config: config.renormalize_logits)
def renormalize(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Normalizes the remaining candidates to log-probabilities. Source: `transformers.LogitNormalization`."""
    logits = log_softmax(candidates.logits)
    return candidates._replace(logits=logits, greatest=logits.max())

"""From logits to tokens: the best one, or a draw from the candidates that temperature and cuts leave.

Cuts run in the order of this file, which is that of `transformers`. Each works on the candidates that the one before
left, so nothing sorts a vocabulary where a partition does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from kerasformer.decoding.config import GenerationConfig
from kerasformer.errors import GenerationError


def check_finite(logits: np.ndarray) -> None:
    """Refuses rows of `(R, V)` of which no token can be chosen.

    Raises:
        GenerationError: the greatest logit of a row is not finite.
    """
    greatest = logits.max(axis=1)
    if not np.isfinite(greatest).all():
        raise GenerationError(
            "no token can be chosen. Expected a finite greatest logit in each row. "
            f"Received: {greatest[~np.isfinite(greatest)][0]}. "
            "Check that the rules (suppress_tokens, ...) leave a token, and that the model's weights hold no NaN."
        )


class Candidates(NamedTuple):
    """Tokens that may still be drawn: `logits` and `tokens` `(R, K)`, tokens ascending; logit -inf fills short rows."""

    logits: np.ndarray
    tokens: np.ndarray


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
        if np.isnan(logits[np.arange(len(tokens)), tokens]).any():
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

    def candidates(self, logits: np.ndarray) -> Candidates:
        """The candidates after all cuts; logits `(R, V)`."""
        remaining = Candidates(logits, np.broadcast_to(np.arange(logits.shape[1]), logits.shape))
        for each in self.cuts:
            remaining = each(remaining)
        return remaining

    def filtered(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(R, V)` with -inf for tokens that cannot be drawn."""
        remaining = self.candidates(logits)
        result = np.full_like(logits, -np.inf)
        alive = np.isfinite(remaining.logits)
        rows = np.broadcast_to(np.arange(len(logits))[:, None], alive.shape)
        result[rows[alive], remaining.tokens[alive]] = remaining.logits[alive]
        return result

    def __call__(self, logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """See `Sampler`."""
        check_finite(logits)
        remaining = self.candidates(logits)
        cumulative = softmax(remaining.logits).cumsum(axis=1, dtype=np.float64)
        places = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(axis=1)
        places = np.minimum(places, cumulative.shape[1] - 1)
        return remaining.tokens[np.arange(len(places)), places]


class Cut(Protocol):
    """A function that leaves fewer candidates."""

    def __call__(self, candidates: Candidates, config: GenerationConfig) -> Candidates:
        """Reads its setting from `config`."""
        ...


_CUTS: list[tuple[Callable[[GenerationConfig], object], Cut]] = []


def cut(when: Callable[[GenerationConfig], object]) -> Callable[[Cut], Cut]:
    """Registers a cut; it runs if `when(config)` is true."""

    def register(function: Cut) -> Cut:
        _CUTS.append((when, function))
        return function

    return register


def sampling_of(config: GenerationConfig) -> Categorical:
    """The draw that these settings describe."""
    return Categorical(tuple(functools.partial(function, config=config) for when, function in _CUTS if when(config)))


def sampler_of(config: GenerationConfig) -> Sampler:
    """Greedy choice or a draw, as `do_sample` says."""
    return sampling_of(config) if config.do_sample else Greedy()


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis; -inf gives 0."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _least(config: GenerationConfig) -> int:
    """Candidates that no cut may take: beams need one besides each end token, so that a hypothesis can go on."""
    return 1 if config.num_beams == 1 else max(2, len(config.eos_token_id) + 1)


def _best(logits: np.ndarray, count: int) -> np.ndarray:
    """`(R, K)` true for the `count` highest logits of each row, and for those equal to the last of them."""
    count = min(count, logits.shape[1])
    return logits >= np.partition(logits, -count, axis=1)[:, -count, None]


def _keep(candidates: Candidates, kept: np.ndarray) -> Candidates:
    """The candidates where `kept` `(R, K)` is true, packed to the left."""
    width = int(kept.sum(axis=1).max())
    logits = np.full((len(kept), width), -np.inf, dtype=candidates.logits.dtype)
    tokens = np.zeros((len(kept), width), dtype=candidates.tokens.dtype)
    for row, places in enumerate(map(np.flatnonzero, kept)):
        logits[row, : len(places)] = candidates.logits[row, places]
        tokens[row, : len(places)] = candidates.tokens[row, places]
    return Candidates(logits, tokens)


@cut(when=lambda config: config.temperature != 1)
def temperature(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """`logit / T`: below 1 sharper, above 1 flatter. Source: Ackley, Hinton, Sejnowski 1985."""
    return candidates._replace(logits=candidates.logits / np.float32(config.temperature))


@cut(when=lambda config: config.top_k)
def top_k(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """The `k` most probable tokens, with ties. Source: Fan et al. 2018, arXiv:1805.04833, section 5.4."""
    return _keep(candidates, _best(candidates.logits, max(config.top_k, _least(config))))


@cut(when=lambda config: config.top_p < 1)
def top_p(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """The nucleus: the fewest most probable tokens that together hold probability `p`.

    A token stays if those before it, most probable first, hold less than `p`. A partition finds the best few, which
    almost always hold it; only if they do not are more looked at.
    Source: Holtzman et al. 2019, arXiv:1904.09751, section 3.1.
    """
    size = candidates.logits.shape[1]
    greatest = candidates.logits.max(axis=1, keepdims=True)
    mass = config.top_p * np.exp(candidates.logits - greatest).sum(axis=1, keepdims=True, dtype=np.float64)
    for count in (256, 4096, size):
        best = _keep(candidates, _best(candidates.logits, count)) if count < size else candidates
        powers = np.exp(best.logits - greatest).astype(np.float64)  # float32 sums would lose small tails
        if (powers.sum(axis=1, keepdims=True) >= mass).all():
            break
    order = np.argsort(-powers, axis=1, kind="stable")
    powers = np.take_along_axis(powers, order, axis=1)
    inside = powers.cumsum(axis=1) - powers < mass
    inside[:, : _least(config)] = True
    kept = np.zeros_like(inside)
    np.put_along_axis(kept, order, inside, axis=1)
    return _keep(best, kept)


@cut(when=lambda config: config.min_p is not None)
def min_p(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Tokens with at least `min_p` times the best token's probability. Source: Nguyen et al. 2024, arXiv:2407.01082."""
    probabilities = softmax(candidates.logits)
    likely = probabilities >= np.float32(config.min_p or 0) * probabilities.max(axis=1, keepdims=True)
    return _keep(candidates, likely | _best(candidates.logits, _least(config)))


@cut(when=lambda config: config.typical_p < 1)
def typical_p(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Tokens whose surprise `-log p` is nearest to the entropy, until they hold the mass.

    Source: Meister et al. 2022, arXiv:2202.00666, section 4.
    """
    probabilities = softmax(candidates.logits)
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = -np.log(probabilities)
        entropy = np.nansum(probabilities * surprise, axis=1, keepdims=True)
    distance = np.abs(surprise - entropy)
    order = np.argsort(distance, axis=1, kind="stable")
    mass = np.take_along_axis(probabilities, order, axis=1).cumsum(axis=1)
    last = np.minimum((mass < config.typical_p).sum(axis=1), mass.shape[1] - 1)
    ranked = np.take_along_axis(distance, order, axis=1)
    inside = ranked <= np.take_along_axis(ranked, last[:, None], axis=1)
    inside[:, : _least(config)] = True
    kept = np.zeros_like(inside)
    np.put_along_axis(kept, order, inside, axis=1)
    return _keep(candidates, kept)


@cut(when=lambda config: 0 < config.epsilon_cutoff < 1)
def epsilon_cutoff(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Tokens with probability of at least epsilon. Source: Hewitt et al. 2022, arXiv:2210.15191."""
    likely = softmax(candidates.logits) >= np.float32(config.epsilon_cutoff)
    return _keep(candidates, likely | _best(candidates.logits, _least(config)))


@cut(when=lambda config: 0 < config.eta_cutoff < 1)
def eta_cutoff(candidates: Candidates, config: GenerationConfig) -> Candidates:
    """Tokens with probability of at least `min(eps, sqrt(eps) exp(-entropy))`. Source: Hewitt et al. 2022."""
    probabilities = softmax(candidates.logits)
    logs = np.log(probabilities, where=probabilities > 0, out=np.zeros_like(probabilities))
    entropy = -(probabilities * logs).sum(axis=1, keepdims=True)
    threshold = np.minimum(config.eta_cutoff, np.sqrt(config.eta_cutoff) * np.exp(-entropy))
    return _keep(candidates, (probabilities >= threshold) | _best(candidates.logits, _least(config)))

"""Logits rules: what may be said next. Each is one small function, applied in the order of this file.

A rule takes the `History` of `R` rows and their logits `(R, V)` (log-probabilities in beam search), which it may change
in place, and returns logits. A new rule is one function below plus the setting that it reads in `GenerationConfig`.
The order is that of `transformers`; a caller's own rules, the temperature and the cuts of sampling come after.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from kerasformer.decoding.distribution import log_softmax
from kerasformer.decoding.generation_config import GenerationConfig
from kerasformer.decoding.history import History
from kerasformer.errors import GenerationError

Rule = Callable[[History, np.ndarray], np.ndarray]


class ConfiguredRule(Protocol):
    """A rule as written below: it reads its setting from `config`."""

    def __call__(self, history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
        """Logits `(R, V)` in and out."""
        ...


When = Callable[[GenerationConfig], object]

_RULES: list[tuple[When, ConfiguredRule]] = []
_LAST: list[tuple[When, ConfiguredRule]] = []


def rule(when: When, last: bool = False) -> Callable[[ConfiguredRule], ConfiguredRule]:
    """Registers a rule; it runs if `when(config)` is true, and if it is a `last` one after the caller's own."""

    def register(function: ConfiguredRule) -> ConfiguredRule:
        (_LAST if last else _RULES).append((when, function))
        return function

    return register


def rules_of(config: GenerationConfig, own: Iterable[Rule] = ()) -> tuple[Rule, ...]:
    """The rules that these settings ask for, in their order, and the caller's `own` among them."""
    first, last = (
        [functools.partial(function, config=config) for when, function in rules if when(config)]
        for rules in (_RULES, _LAST)
    )
    return (*first, *map(_checked, own), *last)


def _checked(rule: Rule) -> Rule:
    """A caller's rule, whose answer is looked at."""

    def apply(history: History, logits: np.ndarray) -> np.ndarray:
        shape, result = logits.shape, rule(history, logits)
        if not isinstance(result, np.ndarray) or result.shape != shape or result.dtype.kind != "f":
            received = f"{result.dtype} {result.shape}" if isinstance(result, np.ndarray) else repr(result)[:80]
            raise GenerationError(
                f"a rule must return the logits, changed or not. Expected: an array of float32 {shape}. Received: "
                f"{received} from {getattr(rule, '__name__', rule)}."
            )
        return result

    return apply


def apply_rules(rules: Sequence[Rule], history: History, logits: np.ndarray) -> np.ndarray:
    """Logits `(R, V)` after all rules; the engine's own array stays untouched."""
    if not rules:
        return logits
    logits = logits.copy()
    for each in rules:
        logits = each(history, logits)
    return logits


def _forbid(logits: np.ndarray, tokens: Iterable[int]) -> np.ndarray:
    """Minus infinity for `tokens` in each row; ids beyond the vocabulary cannot be generated anyway."""
    logits[:, [token for token in tokens if token < logits.shape[1]]] = -np.inf
    return logits


def _force(logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    """Logit 0 for `tokens`, minus infinity for all others."""
    forced = np.full_like(logits, -np.inf)
    forced[:, list(tokens)] = 0
    return forced


Biases = tuple[tuple[tuple[int, ...], float], ...]


def _add_biases(history: History, logits: np.ndarray, biases: Biases) -> np.ndarray:
    """Adds each bias to the last token of its sequence, in rows that end with the tokens before it."""
    after = _by_prefix(biases)
    for index, row in enumerate(logits):
        tokens = history.row(index).tolist()
        for size in range(min(max(map(len, after)), len(tokens)) + 1):
            completing, bias = after.get(tuple(tokens[len(tokens) - size :]), _NOTHING)
            known = completing < len(row)
            with np.errstate(invalid="ignore"):  # opposite infinities give NaN, which is told when a token is chosen
                row[completing[known]] += bias[known]
    return logits


_NOTHING = (np.zeros(0, np.intp), np.zeros(0, np.float32))


@functools.lru_cache(maxsize=8)
def _by_prefix(biases: Biases) -> dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]:
    """For the tokens before the last one of sequences: the last ones `(N,)` and their biases `(N,)`."""
    after: dict[tuple[int, ...], list[tuple[int, float]]] = {}
    for sequence, bias in biases:
        after.setdefault(sequence[:-1], []).append((sequence[-1], bias))
    return {
        prefix: (np.array([token for token, _ in last], np.intp), np.array([bias for _, bias in last], np.float32))
        for prefix, last in after.items()
    }


def _followers(tokens: np.ndarray, prefix: np.ndarray) -> np.ndarray:
    """The tokens that came after `prefix` `(n - 1,)` somewhere in `tokens` `(N,)`."""
    size = len(prefix) + 1
    if len(tokens) < size:
        return tokens[:0]
    windows = np.lib.stride_tricks.sliding_window_view(tokens, size)
    return windows[(windows[:, :-1] == prefix).all(axis=1), -1]


def _penalize(row: np.ndarray, tokens: np.ndarray, penalty: float) -> None:
    """`logit / penalty` if positive, `logit * penalty` if negative, once for each token; changes the row `(V,)`."""
    tokens = tokens[tokens < len(row)]
    row[tokens] = np.where(row[tokens] < 0, row[tokens] * penalty, row[tokens] / penalty)


@rule(when=lambda config: config.sequence_bias)
def sequence_bias(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """`logit(t_n) += bias` for each biased sequence `t_1 … t_n` whose first `n - 1` tokens a row ends with."""
    return _add_biases(history, logits, config.sequence_bias)


@rule(when=lambda config: config.encoder_repetition_penalty != 1)
def encoder_repetition_penalty(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """The opposite of `repetition_penalty`, for tokens of the row's prompt: above 1 it makes them more likely.

    So the output keeps to the words of the input. Source: `transformers.EncoderRepetitionPenaltyLogitsProcessor`.
    """
    for index, row in enumerate(logits):
        _penalize(row, history.prompts[history.rows[index]], 1 / config.encoder_repetition_penalty)
    return logits


@rule(when=lambda config: config.repetition_penalty != 1)
def repetition_penalty(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """`logit / penalty` if positive, `logit * penalty` if negative, for tokens of the row's prompt and output.

    Source: Keskar et al. 2019, CTRL, arXiv:1909.05858, section 4.1; the case of negative logits is that of
    `transformers`.
    """
    for index, row in enumerate(logits):
        _penalize(row, history.row(index), config.repetition_penalty)
    return logits


@rule(when=lambda config: config.frequency_penalty or config.presence_penalty)
def frequency_and_presence_penalty(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """`logit -= count * frequency_penalty + (count > 0) * presence_penalty`, with a token's count in the row's output.

    Source: OpenAI API reference, "Frequency and presence penalties"; the place after `repetition_penalty` is vLLM's,
    as `transformers` has neither.
    """
    for index, row in enumerate(logits):
        tokens, counts = np.unique(history.new(index), return_counts=True)
        penalty = counts * config.frequency_penalty + config.presence_penalty
        row[tokens] -= penalty.astype(np.float32)
    return logits


@rule(when=lambda config: config.no_repeat_ngram_size)
def no_repeat_ngram(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids tokens that would complete an n-gram that the row (prompt and output) already holds.

    Source: Paulus et al. 2017, arXiv:1705.04304, section 2.5.
    """
    size = config.no_repeat_ngram_size
    for index, row in enumerate(logits):
        tokens = history.row(index)
        if len(tokens) >= size:
            row[_followers(tokens, tokens[len(tokens) - size + 1 :])] = -np.inf
    return logits


@rule(when=lambda config: config.encoder_no_repeat_ngram_size)
def encoder_no_repeat_ngram(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids tokens that would complete an n-gram of the row's prompt (what the encoder read)."""
    size = config.encoder_no_repeat_ngram_size
    for index, row in enumerate(logits):
        tokens = history.row(index)
        if len(tokens) >= size - 1:
            followers = _followers(history.prompts[history.rows[index]], tokens[len(tokens) - size + 1 :])
            row[followers[followers < len(row)]] = -np.inf
    return logits


@rule(when=lambda config: config.bad_words_ids)
def bad_words(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids the token that would complete a bad word; a word that is just an end token stays allowed."""
    words = {word: -np.inf for word in config.bad_words_ids if len(word) > 1 or word[0] not in config.eos_token_id}
    return _add_biases(history, logits, tuple(words.items())) if words else logits


@rule(when=lambda config: config.min_new_tokens)
def min_new_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids the end tokens until the output is `min_new_tokens` long; `min_length` arrives here translated."""
    if history.num_new < (config.min_new_tokens or 0):
        return _forbid(logits, config.eos_token_id)
    return logits


@rule(when=lambda config: config.prefix_allowed_tokens_fn)
def prefix_allowed_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids all but the tokens that `config.prefix_allowed_tokens_fn(prompt number, tokens of the row)` gives.

    If other rules have already forbidden these in all rows of a prompt, they are allowed again. A row that has ended
    is not asked about. Source: De Cao et al. 2020, arXiv:2010.00904, section 3.2 (constrained beam search).
    """
    forbidden = np.zeros_like(logits)
    for index, prompt in enumerate(history.rows.tolist()):
        if not np.isin(history.new(index), config.eos_token_id).any():
            forbidden[index] = -np.inf
            forbidden[index, _allowed(config, prompt, history.row(index), logits.shape[1])] = 0
    logits += forbidden
    for prompt in np.unique(history.rows):
        mine = history.rows == prompt
        if np.isneginf(logits[mine]).all():
            logits[mine] = forbidden[mine]
    return logits


def _allowed(config: GenerationConfig, prompt: int, tokens: np.ndarray, vocab_size: int) -> np.ndarray:
    """What the caller's function allows after `tokens` `(N,)`."""
    function = config.prefix_allowed_tokens_fn
    ids = np.atleast_1d([] if function is None else function(prompt, tokens))
    known = ids[(ids >= 0) & (ids < vocab_size)] if ids.size and np.issubdtype(ids.dtype, np.integer) else ids[:0]
    if not known.size:
        raise GenerationError(
            f"prefix_allowed_tokens_fn must allow at least one token id from 0 to {vocab_size - 1}. "
            f"Received: {ids.tolist()} for prompt {prompt} after the tokens {tokens[-8:].tolist()}. "
            "Allow an end token where a text is complete."
        )
    return known


@rule(when=lambda config: config.forced_bos_token_id is not None)
def forced_bos(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Only the forced token after a single one (the decoder's start token): the language of a translation."""
    if history.ids.shape[1] == 1 and config.forced_bos_token_id is not None:
        return _force(logits, [config.forced_bos_token_id])
    return logits


@rule(when=lambda config: config.forced_eos_token_id)
def forced_eos(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Only the forced end tokens at the last place."""
    if config.max_new_tokens is not None and history.num_new == config.max_new_tokens - 1:
        return _force(logits, config.forced_eos_token_id)
    return logits


@rule(when=lambda config: config.remove_invalid_values)
def remove_invalid_values(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """0 for NaN, the greatest and the smallest float32 for the infinities; what was forbidden so far becomes possible.

    Source: `transformers.InfNanRemoveLogitsProcessor`.
    """
    return np.nan_to_num(logits, copy=False, nan=0.0)


@rule(when=lambda config: config.exponential_decay_length_penalty)
def exponential_decay_length_penalty(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """`logit += |logit| * (factor ** (n - start) - 1)` for end tokens, once the output has `n > start` tokens.

    Source: `transformers.ExponentialDecayLengthPenalty`.
    """
    start, factor = config.exponential_decay_length_penalty or (0, 1.0)
    if history.num_new <= start:
        return logits
    ends = [token for token in config.eos_token_id if token < logits.shape[1]]
    finite = np.isfinite(logits[:, ends])
    with np.errstate(over="ignore"):  # also of what `remove_invalid_values` left
        growth = min(np.float64(factor) ** (history.num_new - start) - 1, _MOST_GROWTH)
        logits[:, ends] += np.where(finite, np.abs(logits[:, ends]), 0) * np.float32(growth)
    return logits


_MOST_GROWTH = 1e30
"""Keeps a logit of up to a hundred million finite."""


@rule(when=lambda config: config.suppress_tokens)
def suppress_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids these tokens everywhere."""
    return _forbid(logits, config.suppress_tokens)


@rule(when=lambda config: config.begin_suppress_tokens)
def begin_suppress_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids these tokens at the first place, or at the second if the first is forced."""
    first = int(history.width == 1 and config.forced_bos_token_id is not None)
    return _forbid(logits, config.begin_suppress_tokens) if history.num_new == first else logits


@rule(when=lambda config: config.renormalize_logits and not config.do_sample, last=True)
def renormalize(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """`log p`, so that rules leave log-probabilities again: the sums of beams count them.

    With sampling it is the last of the cuts that does it. Source: `transformers.LogitNormalization`.
    """
    possible = ~np.isneginf(logits).all(axis=1)
    with np.errstate(invalid="ignore"):  # infinity gives NaN, which is told when a token is chosen
        logits[possible] = log_softmax(logits[possible])
    return logits

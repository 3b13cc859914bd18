"""Logits rules, which change the scores of the next token.

A rule takes the `History` of `R` rows and their logits `(R, V)` (log-probabilities in beam search), which it may change
in place, and returns the new logits. Rules are applied in the order of this file, which is that of `transformers`, and
before custom rules, the temperature and the sampling filters. To add a rule, add a function here and its setting to
`GenerationConfig`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from kerasformer.engines.distribution import log_softmax
from kerasformer.errors import GenerationError
from kerasformer.generation.generation_config import GenerationConfig
from kerasformer.generation.history import History

Rule = Callable[[History, np.ndarray], np.ndarray]


class ConfiguredRule(Protocol):
    """A rule that reads its setting from the configuration."""

    def __call__(self, history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
        """Returns the changed logits `(R, V)`."""
        ...


When = Callable[[GenerationConfig], object]

_RULES: list[tuple[When, ConfiguredRule]] = []
_LAST: list[tuple[When, ConfiguredRule]] = []


def rule(when: When, last: bool = False) -> Callable[[ConfiguredRule], ConfiguredRule]:
    """Registers a rule.

    Args:
        when: The rule is applied if this function of the settings returns a true value.
        last: Whether to apply the rule after the custom rules.
    """

    def register(function: ConfiguredRule) -> ConfiguredRule:
        (_LAST if last else _RULES).append((when, function))
        return function

    return register


def rules_of(config: GenerationConfig, custom: Iterable[Rule] = ()) -> tuple[Rule, ...]:
    """Returns the rules that the settings enable and the `custom` rules, in order of application."""
    first, last = (
        [functools.partial(function, config=config) for when, function in rules if when(config)]
        for rules in (_RULES, _LAST)
    )
    return (*first, *map(_checked, custom), *last)


def _checked(rule: Rule) -> Rule:
    """Wraps a custom rule to validate its result."""

    def apply(history: History, logits: np.ndarray) -> np.ndarray:
        shape, result = logits.shape, rule(history, logits)
        if not isinstance(result, np.ndarray) or result.shape != shape or result.dtype.kind != "f":
            received = f"{result.dtype} {result.shape}" if isinstance(result, np.ndarray) else repr(result)[:80]
            raise GenerationError(
                f"a rule must return logits. Expected: a float32 array of shape {shape}. Received: "
                f"{received} from {getattr(rule, '__name__', rule)}."
            )
        return result

    return apply


def apply_rules(rules: Sequence[Rule], history: History, logits: np.ndarray) -> np.ndarray:
    """Returns the logits `(R, V)` after all rules, without changing the array of the engine."""
    if not rules:
        return logits
    logits = logits.copy()
    for rule in rules:
        logits = rule(history, logits)
    return logits


def _forbid(logits: np.ndarray, tokens: Iterable[int]) -> np.ndarray:
    """Sets the logits of `tokens` to minus infinity in each row; ids outside the vocabulary are ignored."""
    logits[:, _known(tuple(tokens), logits.shape[1])] = -np.inf
    return logits


@functools.lru_cache(maxsize=8)
def _known(tokens: tuple[int, ...], vocab_size: int) -> np.ndarray:
    """Returns the ids that are in the vocabulary, `(N,)`."""
    return np.array([token for token in tokens if token < vocab_size], np.intp)


def _force(logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    """Returns logits that are 0 for `tokens` and minus infinity for all other tokens."""
    forced = np.full_like(logits, -np.inf)
    forced[:, list(tokens)] = 0
    return forced


Biases = tuple[tuple[tuple[int, ...], float], ...]


def _add_biases(history: History, logits: np.ndarray, biases: Biases) -> np.ndarray:
    """Adds each bias to the logit of the last token of its sequence, in rows that end with the tokens before it."""
    by_prefix = _by_prefix(biases)
    longest = max(map(len, by_prefix))
    for index, row in enumerate(logits):
        tokens = history.row(index)
        tokens = tokens[max(0, len(tokens) - longest) :].tolist()
        for size in range(len(tokens) + 1):
            if (group := by_prefix.get(tuple(tokens[len(tokens) - size :]))) is None:
                continue
            completing, bias = group
            known = completing < len(row)
            # The sum of opposite infinities is NaN, which raises when a token is chosen.
            with np.errstate(invalid="ignore"):
                row[completing[known]] += bias[known]
    return logits


@functools.lru_cache(maxsize=8)
def _by_prefix(biases: Biases) -> dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]:
    """Groups biases by the sequence without its last token; the values are last tokens `(N,)` and biases `(N,)`."""
    groups: dict[tuple[int, ...], list[tuple[int, float]]] = {}
    for sequence, bias in biases:
        groups.setdefault(sequence[:-1], []).append((sequence[-1], bias))
    return {
        prefix: (np.array([token for token, _ in last], np.intp), np.array([bias for _, bias in last], np.float32))
        for prefix, last in groups.items()
    }


def _followers(tokens: np.ndarray, prefix: np.ndarray) -> np.ndarray:
    """Returns the tokens that follow an occurrence of `prefix` `(n - 1,)` in `tokens` `(N,)`."""
    count = len(tokens) - len(prefix)
    if count < 1:
        return tokens[:0]
    followers = np.ones(count, bool)
    for offset, token in enumerate(prefix.tolist()):
        followers &= tokens[offset : offset + count] == token
    return tokens[len(prefix) :][followers]


def _penalize(row: np.ndarray, tokens: np.ndarray, penalty: float) -> None:
    """Divides positive logits of `tokens` by `penalty` and multiplies negative ones by it; changes the row `(V,)`."""
    logits = row.take(tokens)
    smaller = np.minimum if penalty > 1 else np.maximum
    row[tokens] = smaller(logits * penalty, logits / penalty)


@rule(when=lambda config: config.sequence_bias)
def sequence_bias(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Adds the bias of a sequence `t_1 … t_n` to the logit of `t_n` in rows that end with `t_1 … t_{n-1}`."""
    return _add_biases(history, logits, config.sequence_bias)


@rule(when=lambda config: config.encoder_repetition_penalty != 1)
def encoder_repetition_penalty(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Makes tokens of the prompt more likely if the penalty is above 1, the inverse of `repetition_penalty`.

    Source: `transformers.EncoderRepetitionPenaltyLogitsProcessor`.
    """
    for index, row in enumerate(logits):
        tokens = history.prompts[history.rows[index]]  # the vocabulary of an encoder may be larger
        _penalize(row, tokens[tokens < len(row)], 1 / config.encoder_repetition_penalty)
    return logits


@rule(when=lambda config: config.repetition_penalty != 1)
def repetition_penalty(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Divides positive logits of tokens of the prompt and the output by the penalty and multiplies negative ones by it.

    Source: Keskar et al. 2019, CTRL, arXiv:1909.05858, section 4.1; negative logits are handled as in `transformers`.
    """
    for index, row in enumerate(logits):
        _penalize(row, history.row(index), config.repetition_penalty)
    return logits


@rule(when=lambda config: config.frequency_penalty or config.presence_penalty)
def frequency_and_presence_penalty(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Subtracts `count * frequency_penalty + (count > 0) * presence_penalty`, with a token's count in the output.

    Source: OpenAI API reference, "Frequency and presence penalties"; applied after `repetition_penalty` as in vLLM,
    since `transformers` has neither penalty.
    """
    for index, row in enumerate(logits):
        tokens, counts = _counts(history.new(index))
        penalty = counts * config.frequency_penalty + config.presence_penalty
        row[tokens] -= penalty.astype(np.float32)
    return logits


def _counts(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the different ones of `tokens` `(N,)` and how often each occurs, in half the time of `np.unique`."""
    if not len(tokens):
        return tokens, tokens
    tokens = tokens.copy()
    tokens.sort()
    first = np.concatenate(([0], (tokens[1:] != tokens[:-1]).nonzero()[0] + 1))
    counts = np.empty_like(first)
    counts[:-1] = first[1:]
    counts[-1] = len(tokens)
    return tokens[first], counts - first


@rule(when=lambda config: config.no_repeat_ngram_size)
def no_repeat_ngram(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids tokens that would complete an n-gram that already occurs in the prompt or the output.

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
    """Forbids tokens that would complete an n-gram of the prompt (of an encoder-decoder, the encoder input)."""
    size = config.encoder_no_repeat_ngram_size
    for index, row in enumerate(logits):
        tokens = history.row(index)
        if len(tokens) >= size - 1:
            followers = _followers(history.prompts[history.rows[index]], tokens[len(tokens) - size + 1 :])
            row[followers[followers < len(row)]] = -np.inf
    return logits


@rule(when=lambda config: config.bad_words_ids)
def bad_words(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids tokens that would complete a bad word; a word that consists of one end token is ignored."""
    words = _bad_words(config.bad_words_ids, config.eos_token_id)
    return _add_biases(history, logits, words) if words else logits


@functools.lru_cache(maxsize=8)
def _bad_words(words: tuple[tuple[int, ...], ...], ends: tuple[int, ...]) -> Biases:
    """Returns biases that forbid words, other than end tokens."""
    return tuple((word, -np.inf) for word in dict.fromkeys(words) if len(word) > 1 or word[0] not in ends)


@rule(when=lambda config: config.min_new_tokens)
def min_new_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids end tokens until the output has `min_new_tokens` tokens; `min_length` was converted before."""
    if history.num_new < (config.min_new_tokens or 0):
        return _forbid(logits, config.eos_token_id)
    return logits


@rule(when=lambda config: config.prefix_allowed_tokens_fn)
def prefix_allowed_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids all tokens except those that `config.prefix_allowed_tokens_fn(prompt index, tokens of the row)` returns.

    If other rules forbid all of these in all rows of a prompt, they are allowed nevertheless. Rows that have ended are
    skipped. Source: De Cao et al. 2020, arXiv:2010.00904, section 3.2 (constrained beam search).
    """
    forbidden = np.zeros_like(logits)
    for index, prompt in enumerate(history.rows.tolist()):
        if not np.isin(history.new(index), config.eos_token_id).any():
            forbidden[index] = -np.inf
            forbidden[index, _allowed(config, prompt, history.row(index), logits.shape[1])] = 0
    logits += forbidden
    for prompt in np.unique(history.rows):
        of_prompt = history.rows == prompt
        if np.isneginf(logits[of_prompt]).all():
            logits[of_prompt] = forbidden[of_prompt]
    return logits


def _allowed(config: GenerationConfig, prompt: int, tokens: np.ndarray, vocab_size: int) -> np.ndarray:
    """Returns the ids that `prefix_allowed_tokens_fn` allows after `tokens` `(N,)`."""
    function = config.prefix_allowed_tokens_fn
    ids = np.atleast_1d([] if function is None else function(prompt, tokens))
    known = ids[(ids >= 0) & (ids < vocab_size)] if ids.size and np.issubdtype(ids.dtype, np.integer) else ids[:0]
    if not known.size:
        raise GenerationError(
            f"prefix_allowed_tokens_fn must allow at least one token id from 0 to {vocab_size - 1}. "
            f"Received: {ids.tolist()} for prompt {prompt} after the tokens {tokens[-8:].tolist()}. "
            "Allow an end token when the text is complete."
        )
    return known


@rule(when=lambda config: config.forced_bos_token_id is not None)
def forced_bos(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forces the token after the decoder's start token, such as the language of a translation."""
    if history.ids.shape[1] == 1 and config.forced_bos_token_id is not None:
        return _force(logits, [config.forced_bos_token_id])
    return logits


@rule(when=lambda config: config.forced_eos_token_id)
def forced_eos(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forces an end token at the last position."""
    if config.max_new_tokens is not None and history.num_new == config.max_new_tokens - 1:
        return _force(logits, config.forced_eos_token_id)
    return logits


@rule(when=lambda config: config.remove_invalid_values)
def remove_invalid_values(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Replaces NaN by 0 and infinities by the limits of float32, which also allows tokens forbidden by earlier rules.

    Source: `transformers.InfNanRemoveLogitsProcessor`.
    """
    return np.nan_to_num(logits, copy=False, nan=0.0)


@rule(when=lambda config: config.exponential_decay_length_penalty)
def exponential_decay_length_penalty(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Adds `|logit| * (factor ** (n - start) - 1)` to the end tokens once the output has `n > start` tokens.

    Source: `transformers.ExponentialDecayLengthPenalty`.
    """
    start, factor = config.exponential_decay_length_penalty or (0, 1.0)
    if history.num_new <= start:
        return logits
    ends = [token for token in config.eos_token_id if token < logits.shape[1]]
    finite = np.isfinite(logits[:, ends])
    with np.errstate(over="ignore"):  # the limits of float32 from `remove_invalid_values` may overflow too
        growth = min(np.float64(factor) ** (history.num_new - start) - 1, _MAX_GROWTH)
        logits[:, ends] += np.where(finite, np.abs(logits[:, ends]), 0) * np.float32(growth)
    return logits


_MAX_GROWTH = 1e30
"""Limit that keeps logits up to a hundred million finite."""


@rule(when=lambda config: config.suppress_tokens)
def suppress_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids these tokens at all positions."""
    return _forbid(logits, config.suppress_tokens)


@rule(when=lambda config: config.begin_suppress_tokens)
def begin_suppress_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids these tokens at the first position, or at the second if the first is forced."""
    first = int(history.prefix_length == 1 and config.forced_bos_token_id is not None)
    return _forbid(logits, config.begin_suppress_tokens) if history.num_new == first else logits


@rule(when=lambda config: config.renormalize_logits and not config.do_sample, last=True)
def renormalize(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Normalizes the scores to log-probabilities after all rules, for the sums of beam search.

    With sampling, the last sampling filter does this instead. Source: `transformers.LogitNormalization`.
    """
    possible = ~np.isneginf(logits).all(axis=1)
    with np.errstate(invalid="ignore"):  # infinity becomes NaN, which raises when a token is chosen
        logits[possible] = log_softmax(logits[possible])
    return logits

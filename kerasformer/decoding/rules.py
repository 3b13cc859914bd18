"""Logits rules: what may be said next. Each is one small function, applied in the order of this file.

A rule takes the `History` of `R` rows and their logits `(R, V)` (log-probabilities in beam search), which it may change
in place, and returns logits. A new rule is one function below plus the setting that it reads in `GenerationConfig`.
The order is that of `transformers`; the temperature and the cuts of sampling come after, in `samplers.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from kerasformer.decoding.config import GenerationConfig
from kerasformer.decoding.history import History

Rule = Callable[[History, np.ndarray], np.ndarray]


class Written(Protocol):
    """A rule as written below: it reads its setting from `config`."""

    def __call__(self, history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
        """Logits `(R, V)` in and out."""
        ...


_RULES: list[tuple[Callable[[GenerationConfig], object], Written]] = []


def rule(when: Callable[[GenerationConfig], object]) -> Callable[[Written], Written]:
    """Registers a rule; it runs if `when(config)` is true."""

    def register(function: Written) -> Written:
        _RULES.append((when, function))
        return function

    return register


def rules_of(config: GenerationConfig) -> tuple[Rule, ...]:
    """The rules that these settings ask for, in their order."""
    return tuple(functools.partial(function, config=config) for when, function in _RULES if when(config))


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


def _add_bias(
    history: History, logits: np.ndarray, biases: Iterable[tuple[tuple[int, ...], float]], longest: int
) -> np.ndarray:
    """Adds each bias where a row's last tokens are its sequence without the final one, to that final token."""
    tails = [history.row(index)[-longest:].tolist() for index in range(len(logits))]
    for sequence, bias in biases:
        prefix, token = list(sequence[:-1]), sequence[-1]
        for index, tail in enumerate(tails):
            if token < logits.shape[1] and tail[len(tail) - len(prefix) :] == prefix:
                logits[index, token] += bias
    return logits


def _followers(tokens: np.ndarray, prefix: np.ndarray) -> np.ndarray:
    """The tokens that came after `prefix` `(n - 1,)` somewhere in `tokens` `(N,)`."""
    size = len(prefix) + 1
    if len(tokens) < size:
        return tokens[:0]
    windows = np.lib.stride_tricks.sliding_window_view(tokens, size)
    return windows[(windows[:, :-1] == prefix).all(axis=1), -1]


def _longest(sequences: Iterable[tuple[int, ...]]) -> int:
    return max(len(sequence) for sequence in sequences)


@rule(when=lambda config: config.sequence_bias)
def sequence_bias(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """`logit(t_n) += bias` for each biased sequence `t_1 … t_n` whose first `n - 1` tokens a row ends with."""
    longest = _longest(sequence for sequence, _ in config.sequence_bias)
    return _add_bias(history, logits, config.sequence_bias, longest)


@rule(when=lambda config: config.repetition_penalty != 1)
def repetition_penalty(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """`logit / penalty` if positive, `logit * penalty` if negative, for tokens of the row's prompt and output.

    Source: Keskar et al. 2019, CTRL, arXiv:1909.05858, section 4.1; the case of negative logits is that of
    `transformers`.
    """
    for index, row in enumerate(logits):
        seen = history.row(index)
        seen = seen[seen < len(row)]
        row[seen] = np.where(
            row[seen] < 0, row[seen] * config.repetition_penalty, row[seen] / config.repetition_penalty
        )
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
    words = [word for word in config.bad_words_ids if len(word) > 1 or word[0] not in config.eos_token_id]
    return _add_bias(history, logits, [(word, -np.inf) for word in words], _longest(config.bad_words_ids))


@rule(when=lambda config: config.min_new_tokens)
def min_new_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids the end tokens until the output is `min_new_tokens` long; `min_length` arrives here translated."""
    if history.num_new < (config.min_new_tokens or 0):
        return _forbid(logits, config.eos_token_id)
    return logits


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


@rule(when=lambda config: config.suppress_tokens)
def suppress_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids these tokens everywhere."""
    return _forbid(logits, config.suppress_tokens)


@rule(when=lambda config: config.begin_suppress_tokens)
def begin_suppress_tokens(history: History, logits: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Forbids these tokens at the first place, or at the second if the first is forced."""
    first = int(history.width == 1 and config.forced_bos_token_id is not None)
    return _forbid(logits, config.begin_suppress_tokens) if history.num_new == first else logits

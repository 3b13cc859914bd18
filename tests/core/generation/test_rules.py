"""Rules on small histories, compared with the processors of `transformers`; `grid.py` compares whole runs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from kerasformer.errors import GenerationError
from kerasformer.generation import GenerationConfig
from kerasformer.generation.history import History
from kerasformer.generation.rules import apply_rules, rules_of

INF = float("inf")


def after(rows: list[list[int]], width: int, logits: list[float], **settings: Any) -> list[list[float]]:
    """Returns the logits after the rules for left-padded `rows`, whose first `width` columns are the prompt."""
    longest = max(map(len, rows))
    ids = np.array([[0] * (longest - len(row)) + row for row in rows], np.int32)
    starts = np.array([longest - len(row) for row in rows])
    prompts = tuple(np.array(row[: width - start], np.int32) for row, start in zip(rows, starts, strict=True))
    history = History(ids, starts, width, prompts, np.arange(len(rows)))
    engine = np.array([logits] * len(rows), np.float32)
    engine.flags.writeable = False
    return apply_rules(rules_of(GenerationConfig(**settings)), history, engine).tolist()


# One row per rule: the settings, and the processor of `transformers` with its arguments, where `{ids}` and `{width}`
# are replaced by the prompts and their length.
PROCESSORS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "sequence_bias": (
        {"sequence_bias": [[[0], 1.5], [[2, 1, 0], -4.0], [[1, 0], 3.0], [[0], 2.5], [[1], -INF]]},
        "SequenceBias", {"sequence_bias": [[[0], 1.5], [[2, 1, 0], -4.0], [[1, 0], 3.0], [[0], 2.5], [[1], -INF]]},
    ),
    "encoder_repetition_penalty": (
        {"encoder_repetition_penalty": 1.7}, "EncoderRepetitionPenalty", {"penalty": 1.7, "encoder_input_ids": "{ids}"},
    ),
    "repetition_penalty": ({"repetition_penalty": 1.7}, "RepetitionPenalty", {"penalty": 1.7}),
    "no_repeat_ngram_size": ({"no_repeat_ngram_size": 2}, "NoRepeatNGram", {"ngram_size": 2}),
    "no_repeat_ngram_size of 1": ({"no_repeat_ngram_size": 1}, "NoRepeatNGram", {"ngram_size": 1}),
    "encoder_no_repeat_ngram_size": (
        {"encoder_no_repeat_ngram_size": 2}, "EncoderNoRepeatNGram",
        {"encoder_ngram_size": 2, "encoder_input_ids": "{ids}"},
    ),
    "bad_words_ids with an end token": (
        {"bad_words_ids": [[1], [2, 1], [1, 0], [0, 1, 1]], "eos_token_id": [1, 3]}, "NoBadWords",
        {"bad_words_ids": [[1], [2, 1], [1, 0], [0, 1, 1]], "eos_token_id": [1, 3]},
    ),
    "min_new_tokens": (
        {"min_new_tokens": 2, "eos_token_id": [0]}, "MinNewTokensLength",
        {"prompt_length_to_skip": "{width}", "min_new_tokens": 2, "eos_token_id": [0]},
    ),
    "prefix_allowed_tokens_fn": (
        {"prefix_allowed_tokens_fn": lambda prompt, tokens: [0, int(tokens[-1])]}, "PrefixConstrained",
        {"prefix_allowed_tokens_fn": lambda prompt, tokens: [0, int(tokens[-1])], "num_beams": 1},
    ),
    "forced_bos_token_id": ({"forced_bos_token_id": 0}, "ForcedBOSToken", {"bos_token_id": 0}),
    "remove_invalid_values": ({"remove_invalid_values": True}, "InfNanRemove", {}),
    "exponential_decay_length_penalty": (
        {"exponential_decay_length_penalty": (1, 1.3), "eos_token_id": [0]}, "ExponentialDecayLengthPenalty",
        {"exponential_decay_length_penalty": (1, 1.3), "eos_token_id": [0], "input_ids_seq_length": "{width}"},
    ),
    "suppress_tokens": ({"suppress_tokens": [0, 2]}, "SuppressTokens", {"suppress_tokens": [0, 2]}),
    "begin_suppress_tokens": (
        {"begin_suppress_tokens": [0, 2]}, "SuppressTokensAtBegin",
        {"begin_suppress_tokens": [0, 2], "begin_index": "{width}"},
    ),
    "renormalize_logits": ({"renormalize_logits": True}, "LogitNormalization", {}),
}  # fmt: skip

ONE = "a vocabulary of one"

# Rows of tokens, the length of their prompts, and the logits of both rows.
STATES: dict[str, tuple[list[list[int]], int, list[list[float]]]] = {
    "first": ([[2, 1, 2, 1], [0, 1, 1, 1]], 4, [[1.0, -2.0, 0.5, 3.0], [-1.0, -2.0, -3.0, -4.0]]),
    "later": ([[1, 0, 2, 1, 2, 1], [3, 2, 0, 1, 0, 1]], 2, [[1.0, -2.0, 0.5, 3.0], [2.0, 2.0, 2.0, 2.0]]),
    "start token": ([[0], [0]], 1, [[1.0, -2.0, 0.5, 3.0], [0.0, -0.0, 1e30, -1e30]]),
    ONE: ([[0, 0, 0], [0, 0, 0]], 1, [[2.0], [-3.0]]),
    "all forbidden": ([[1, 2, 0], [1, 2, 1]], 2, [[-INF] * 4, [-INF, 1.0, -INF, 2.0]]),
    "infinite": ([[1, 2, 0], [1, 2, 1]], 2, [[INF, 1.0, 2.0, 3.0], [INF, INF, -INF, 1.0]]),
    "not a number": ([[1, 2, 0], [1, 2, 1]], 2, [[float("nan"), 1.0, 2.0, 3.0], [0.0, 1.0, float("nan"), 3.0]]),
}


DIFFERENT = {
    # transformers raises for tokens outside the vocabulary; ours ignores them.
    ("sequence_bias", ONE),
    ("bad_words_ids with an end token", ONE),
    # transformers returns NaN; see test_a_row_without_allowed_tokens_is_not_renormalized.
    ("renormalize_logits", "all forbidden"),
}


@pytest.mark.parametrize(
    ("rule", "state"), [pair for pair in itertools.product(PROCESSORS, STATES) if pair not in DIFFERENT]
)
def test_a_rule_is_that_of_transformers(rule: str, state: str) -> None:
    settings, name, arguments = PROCESSORS[rule]
    rows, width, logits = STATES[state]
    values = {"{ids}": torch.tensor([row[:width] for row in rows]), "{width}": width}
    arguments = {key: values.get(value, value) if isinstance(value, str) else value for key, value in arguments.items()}
    classes = vars(transformers.generation.logits_process)
    processor = classes.get(f"{name}LogitsProcessor", classes.get(name))(**arguments)
    expected = processor(torch.tensor(rows), torch.tensor(logits)).numpy()
    ids = np.array(rows, np.int32)
    history = History(ids, np.zeros(len(ids), int), width, tuple(ids[:, :width]), np.arange(len(ids)))
    ours = apply_rules(rules_of(GenerationConfig(**settings)), history, np.array(logits, np.float32))
    # Renormalized logits are differences of numbers up to 4, whose last bit is 2e-7.
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def test_repetition_penalty_ignores_padding() -> None:
    penalized = after([[1, 2], [3]], 2, [4.0, 4.0, -4.0, 4.0], repetition_penalty=2.0)
    assert penalized == [[4, 2, -8, 4], [4, 4, -4, 2]]


def test_a_row_without_allowed_tokens_is_not_renormalized() -> None:
    assert after([[1]], 1, [-INF, -INF], renormalize_logits=True) == [[-INF, -INF]]


def test_custom_rules_run_before_renormalization() -> None:
    def custom(history: History, logits: np.ndarray) -> np.ndarray:
        assert np.isneginf(logits).tolist() == [[False, True, False, False]]
        logits[:, 0] = -INF
        return logits

    rules = rules_of(GenerationConfig(suppress_tokens=1, renormalize_logits=True), [custom])
    history = History(np.zeros((1, 1), np.int32), np.zeros(1, int), 1, (np.zeros(1, int),), np.zeros(1, int))
    logits = apply_rules(rules, history, np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(np.exp(logits), [[0, 0, 0.5, 0.5]], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"frequency_penalty": 0.5}, [4, 3, 1.5, 1]), ({"presence_penalty": -1.0}, [4, 5, 3, 1]),
     ({"frequency_penalty": 0.5, "presence_penalty": 1.0}, [4, 2, 0.5, 1])],
    ids=str,
)  # fmt: skip
def test_frequency_and_presence_count_generated_tokens(settings: dict[str, float], expected: list[float]) -> None:
    # Tokens 0 and 3 occur only in the prompt; 1 was generated twice and 2 once.
    assert after([[0, 3, 1, 2, 1]], 2, [4.0, 4.0, 2.0, 1.0], **settings) == [expected]


def test_a_prefix_function_receives_the_prompt_index_and_tokens_without_padding() -> None:
    calls = []

    def allowed(prompt: int, tokens: np.ndarray) -> list[int]:
        calls.append((prompt, tokens.tolist()))
        return [prompt, 99]

    settings = {"prefix_allowed_tokens_fn": allowed, "eos_token_id": 2}
    assert after([[1, 1, 0], [1, 0], [1, 1, 2]], 2, [1, 2, 3], **settings) == [
        [1, -INF, -INF],
        [-INF, 2, -INF],
        [1, 2, 3],
    ]
    assert calls == [(0, [1, 1, 0]), (1, [1, 0])]  # the third row has ended


@pytest.mark.parametrize("allowed", [[], [7, -1], "no", [0.5]], ids=str)
def test_a_prefix_function_must_allow_something(allowed: Any) -> None:
    with pytest.raises(GenerationError, match="at least one token id from 0 to 1.*for prompt 0 after the tokens"):
        after([[1]], 1, [1, 2], prefix_allowed_tokens_fn=lambda prompt, tokens: allowed)


def test_an_unbounded_decay_stays_finite() -> None:
    rows = [[1] * 4000]
    ((_, ended),) = after(rows, 1, [1.0, 5.0], exponential_decay_length_penalty=(1, 9.0), eos_token_id=1)
    assert np.isfinite(ended)
    assert ended > 1e20


def test_forced_tokens() -> None:
    assert after([[1]], 1, [5, 5], forced_bos_token_id=0) == [[0, -INF]]
    assert after([[1, 1]], 1, [5, 5], forced_bos_token_id=0) == [[5, 5]]
    assert after([[1, 1]], 1, [5, 5], forced_eos_token_id=1, max_new_tokens=2) == [[-INF, 0]]


@pytest.mark.parametrize(
    ("result", "received"),
    [(None, "None"), (np.zeros((1, 2), np.float32), r"float32 \(1, 2\)"), (np.zeros((1, 3), int), "int64")],
)
def test_errors_name_the_rule_that_returns_no_logits(result: Any, received: str) -> None:
    def invalid(history: History, logits: np.ndarray) -> Any:
        return result

    (rule,) = rules_of(GenerationConfig(), [invalid])
    history = History(np.zeros((1, 1), np.int32), np.zeros(1, int), 1, (np.zeros(1, int),), np.zeros(1, int))
    with pytest.raises(GenerationError, match=f"Received: {received}.* from invalid"):
        rule(history, np.zeros((1, 3), np.float32))

"""Rules on small histories; their equality with `transformers` is in test_parity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer.decoding import GenerationConfig
from kerasformer.decoding.history import History
from kerasformer.decoding.rules import apply_rules, rules_of

INF = float("inf")


def after(rows: list[list[int]], width: int, logits: list[float], **settings: Any) -> list[list[float]]:
    """Logits after the rules for left-padded `rows`, the first `width` columns being the prompt."""
    longest = max(map(len, rows))
    ids = np.array([[0] * (longest - len(row)) + row for row in rows], np.int32)
    starts = np.array([longest - len(row) for row in rows])
    prompts = tuple(np.array(row[: width - start], np.int32) for row, start in zip(rows, starts, strict=True))
    history = History(ids, starts, width, prompts, np.arange(len(rows)))
    engine = np.array([logits] * len(rows), np.float32)
    engine.flags.writeable = False
    return apply_rules(rules_of(GenerationConfig(**settings)), history, engine).tolist()


def test_no_rules_no_copy() -> None:
    logits = np.zeros((1, 3), np.float32)
    history = History(np.zeros((1, 1), np.int32), np.zeros(1, int), 1, (np.zeros(1, int),), np.zeros(1, int))
    assert apply_rules(rules_of(GenerationConfig()), history, logits) is logits


def test_repetition_penalty_ignores_padding() -> None:
    penalized = after([[1, 2], [3]], 2, [4.0, 4.0, -4.0, 4.0], repetition_penalty=2.0)
    assert penalized == [[4, 2, -8, 4], [4, 4, -4, 2]]


def test_no_repeat_ngram() -> None:
    assert after([[1, 2, 3, 1, 2]], 2, [0, 0, 0, 0], no_repeat_ngram_size=3) == [[0, 0, 0, -INF]]
    assert after([[1, 2]], 2, [0, 0, 0, 0], no_repeat_ngram_size=3) == [[0, 0, 0, 0]]
    assert after([[1, 1]], 2, [0, 0], no_repeat_ngram_size=2) == [[0, -INF]]


def test_encoder_no_repeat_ngram_reads_the_row_s_own_prompt() -> None:
    rows = [[1, 2, 3, 1], [2, 1, 1, 1]]
    assert after(rows, 3, [0, 0, 0, 0], encoder_no_repeat_ngram_size=2) == [[0, 0, -INF, 0], [0, -INF, 0, 0]]


def test_bad_words_span_tokens_and_spare_the_end() -> None:
    words = [[1], [2, 3], [0, 0, 2], [9]]
    banned = after([[0, 0], [1, 2]], 1, [0, 0, 0, 0], bad_words_ids=words, eos_token_id=1)
    assert banned == [[0, 0, -INF, 0], [0, 0, 0, -INF]]


def test_biases_add_up() -> None:
    assert after([[1, 2]], 1, [0, 0], sequence_bias=[[[1], 2.0], [[2, 1], 3.0], [[1, 1], 9.0]]) == [[0, 5]]


@pytest.mark.parametrize(("rows", "ended"), [([[1, 2]], -INF), ([[1, 2, 3]], 0)])
def test_min_new_tokens_counts_from_the_prompt(rows: list[list[int]], ended: float) -> None:
    assert after(rows, 1, [0, 0], min_new_tokens=2, eos_token_id=(1, 500)) == [[0, ended]]


def test_forced_tokens() -> None:
    assert after([[1]], 1, [5, 5], forced_bos_token_id=0) == [[0, -INF]]
    assert after([[1, 1]], 1, [5, 5], forced_bos_token_id=0) == [[5, 5]]
    assert after([[1, 1]], 1, [5, 5], forced_eos_token_id=1, max_new_tokens=2) == [[-INF, 0]]


def test_suppressed_tokens() -> None:
    assert after([[1, 1]], 1, [5, 5], suppress_tokens=[0, 77], begin_suppress_tokens=[1]) == [[-INF, 5]]
    assert after([[1, 1]], 2, [5, 5], begin_suppress_tokens=[1]) == [[5, -INF]]
    assert after([[1, 0]], 1, [5, 5], begin_suppress_tokens=[1], forced_bos_token_id=0) == [[5, -INF]]

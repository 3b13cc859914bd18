"""Tokens compared with `transformers.generate`, with settings for each method; `grid.py` combines them at random."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from kerasformer.decoding import GenerationConfig, GenerationOutput, generate
from tests.decoding.engines import Recomputing
from tests.decoding.models import PAD, gpt2, t5, torch

VOCAB = 61


@pytest.fixture(scope="module")
def engines() -> dict[tuple[str, int], Recomputing]:
    return {(kind, seed): make(VOCAB, seed) for kind, make in (("gpt2", gpt2), ("t5", t5)) for seed in (0, 1)}


def prompts(lengths: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns right-padded random prompts and their mask."""
    random = np.random.default_rng(seed)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int32)
    return random.integers(2, VOCAB, mask.shape) * mask, mask


def reference(engine: Recomputing, ids: np.ndarray, mask: np.ndarray, arguments: dict[str, Any]) -> Any:
    if not engine.is_encoder_decoder:  # transformers requires left padding
        shifts = mask.shape[1] - mask.sum(axis=1)
        ids, mask = (np.stack([np.roll(row, shift) for row, shift in zip(a, shifts, strict=True)]) for a in (ids, mask))
    result = engine.model.generate(  # type: ignore[attr-defined]
        torch.tensor(ids), attention_mask=torch.tensor(mask), pad_token_id=PAD, return_dict_in_generate=True,
        output_scores=True, **arguments,
    )  # fmt: skip
    width = 1 if engine.is_encoder_decoder else ids.shape[1]
    return result, result.sequences[:, width:].numpy()


def check(engine: Recomputing, lengths: tuple[int, ...], seed: int, **arguments: Any) -> GenerationOutput:
    ids, mask = prompts(lengths, seed)
    full, expected = reference(engine, ids, mask, arguments)
    config = GenerationConfig(pad_token_id=PAD, decoder_start_token_id=PAD, **arguments)
    output = generate(engine, ids, mask, config)
    ends = {PAD, -1, *config.eos_token_id}
    assert len(output.sequences) == len(expected)
    for ours, theirs in zip(output.sequences, expected.tolist(), strict=True):
        assert ours.tolist() == theirs[: len(ours)]
        assert set(theirs[len(ours) :]) <= ends  # only padding follows
    if config.num_beams > 1:
        np.testing.assert_allclose(output.sequence_scores, full.sequences_scores.numpy(), rtol=1e-4)
    return output


KINDS = [("gpt2", 0), ("gpt2", 1), ("t5", 0), ("t5", 1)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_models_are_not_ambiguous(engines: dict[Any, Recomputing], kind: tuple[str, int]) -> None:
    ids, mask = prompts((7, 4, 5, 1), seed=3)
    full, tokens = reference(engines[kind], ids, mask, {"max_new_tokens": 20})
    best = torch.stack(full.scores).topk(2, dim=-1).values
    assert (best[..., 0] - best[..., 1]).median() >= 1e-3
    assert len(np.unique(tokens)) > 8


# One row per rule: its name in the report, and the settings that enable it.
RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "repetition penalty": {"repetition_penalty": 1.7},
    # transformers treats padding as part of the text; so the comparison excludes the pad token from the output.
    "no token twice": {"no_repeat_ngram_size": 1, "suppress_tokens": [PAD]},
    "no bigram twice, repetition favoured": {"no_repeat_ngram_size": 2, "repetition_penalty": 0.6},
    "no bigram of the prompt": {"encoder_no_repeat_ngram_size": 2},
    "suppressed": {"suppress_tokens": list(range(5, 30))},
    "suppressed at first": {"begin_suppress_tokens": list(range(2, 40))},
    "forced end": {"forced_eos_token_id": 9, "eos_token_id": 9},
    "forced begin": {"forced_bos_token_id": 11, "begin_suppress_tokens": list(range(30, 60))},
    "bad words": {"bad_words_ids": [[a, b] for a in range(10, 40) for b in range(0, VOCAB, 3)] + [[44]]},
    "biased": {"sequence_bias": [[[token], 3.0] for token in range(3)] + [[[20, 21], -5.0]]},
    "several ends": {"eos_token_id": list(range(30, 45))},
    "min_new_tokens": {"eos_token_id": list(range(20, 50)), "min_new_tokens": 5},
    "min_length": {"eos_token_id": list(range(20, 50)), "min_length": 9},
    "max_length": {"max_length": 16, "max_new_tokens": None},
    "words of the prompt": {"encoder_repetition_penalty": 1.6, "suppress_tokens": [PAD]},
    "allowed after a prefix": {"prefix_allowed_tokens_fn": lambda prompt, tokens: range(int(tokens[-1]) % 7, 50, 3)},
    "likelier end": {"exponential_decay_length_penalty": (1, 1.5), "eos_token_id": list(range(30, 45))},
    "renormalized": {"renormalize_logits": True, "suppress_tokens": list(range(5, 30))},
    "no invalid values": {"remove_invalid_values": True, "suppress_tokens": list(range(5, 30))},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [("gpt2", 0), ("t5", 1)], ids=str)
def test_greedy(engines: dict[Any, Recomputing], kind: tuple[str, int], rule: str) -> None:
    check(engines[kind], (7, 4, 5, 1), 3, **{"max_new_tokens": 12, **RULES[rule]})


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [("gpt2", 0), ("t5", 1)], ids=str)
def test_beams_with_rules(engines: dict[Any, Recomputing], kind: tuple[str, int], rule: str) -> None:
    check(engines[kind], (5, 2), 8, **{"max_new_tokens": 8, "num_beams": 3, **RULES[rule]})


BEAMS: list[dict[str, Any]] = [
    {"num_beams": beams, "length_penalty": penalty, "early_stopping": early, "num_return_sequences": min(beams, many)}
    for (beams, penalty, many), early in itertools.product(
        [(2, 1.0, 1), (3, 0.0, 3), (4, 2.0, 2), (5, -1.0, 5), (3, 0.6, 1)], [False, True, "never"]
    )
]
ENDS: list[list[int]] = [[], [17], list(range(20, 32))]


@pytest.mark.parametrize("ends", ENDS, ids=len)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_beams(engines: dict[Any, Recomputing], kind: tuple[str, int], ends: list[int]) -> None:
    early = 0
    for seed, arguments in enumerate(BEAMS):
        output = check(engines[kind], (6, 3, 1), seed, max_new_tokens=9, eos_token_id=ends or None, **arguments)
        early += sum(len(sequence) < 9 for sequence in output.sequences)
    assert len(ends) < 2 or early > 0

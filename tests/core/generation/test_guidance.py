"""Classifier-free guidance, compared with `transformers` where that is correct, and otherwise with the formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer.engines.distribution import log_softmax
from kerasformer.errors import CapacityError, InputError
from kerasformer.generation import Controls, GenerationConfig, generate
from tests.core.generation.engines import Recomputing, Rows, Toy
from tests.core.generation.models import PAD, gpt2, t5, torch

VOCAB = 61
PROMPT = np.array([[5, 17, 40, 9, 23]])


@pytest.fixture(scope="module")
def engines() -> dict[str, Recomputing]:
    return {"gpt2": gpt2(VOCAB, 0), "t5": t5(VOCAB, 0)}


# Beam search in transformers does not reorder the cache of the negative prompt, and positions of ragged negative
# prompts are wrong, so that only greedy search with one prompt can be compared.
@pytest.mark.parametrize("negative", [None, [30], [8, 2, 50, 7, 44], [12, 3, 4, 33, 9, 41, 6, 55]], ids=str)
@pytest.mark.parametrize("scale", [0.0, 0.4, 1.5, 3.0])
def test_the_tokens_and_scores_of_transformers(engines, scale, negative) -> None:
    negative_ids = None if negative is None else np.array([negative])
    theirs = engines["gpt2"].model.generate(
        torch.tensor(PROMPT), attention_mask=torch.ones(1, 5, dtype=torch.long), do_sample=False, max_new_tokens=12,
        guidance_scale=scale, negative_prompt_ids=None if negative is None else torch.tensor(negative_ids),
        pad_token_id=PAD, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    config = GenerationConfig(guidance_scale=scale, max_new_tokens=12)
    ours = generate(engines["gpt2"], PROMPT, None, config, Controls(negative_ids=negative_ids, output_scores=True))
    assert ours.sequences[0].tolist() == theirs.sequences[0, 5:].tolist()
    np.testing.assert_allclose(ours.scores[0], torch.cat(theirs.scores).float().numpy(), atol=1e-4)
    free = generate(engines["gpt2"], PROMPT, None, config.replace(guidance_scale=1.0))
    assert ours.sequences[0].tolist() != free.sequences[0].tolist()


def expected_tokens(engine: Recomputing, prompt: list[int], negative: list[int], scale: float, count: int) -> list[int]:
    """Runs the engine separately for prompt and negative prompt and applies the formula."""
    rows = [np.array([ids], np.int32) for ids in (prompt, negative)]
    states = [engine.start(row, np.ones_like(row)) for row in rows]
    tokens = [np.array([[PAD]], np.int32)] * 2 if engine.is_encoder_decoder else [row[:, -1:] for row in rows]
    chosen: list[int] = []
    for _ in range(count):
        logs = []
        for side in (0, 1):
            logits, states[side] = engine.step(tokens[side], states[side])
            logs.append(log_softmax(logits[0, -1]))
        chosen.append(int((logs[1] + np.float32(scale) * (logs[0] - logs[1])).argmax()))
        tokens = [np.array([chosen[-1:]], np.int32)] * 2
    return chosen


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_each_row_of_a_ragged_batch_has_its_own_negative_prompt(engines, kind) -> None:
    prompts = [[5, 17, 40, 9, 23], [11, 3], [44, 45, 46]]
    negatives = [[30], [8, 2, 50, 7, 44, 10, 12], [7, 7]]
    (ids, mask), (other, other_mask) = map(padded, (prompts, negatives))
    config = GenerationConfig(guidance_scale=2.0, max_new_tokens=8, decoder_start_token_id=PAD)
    expected = [expected_tokens(engines[kind], *row, 2.0, 8) for row in zip(prompts, negatives, strict=True)]
    output = generate(engines[kind], ids, mask, config, Controls(negative_ids=other, negative_mask=other_mask))
    assert [row.tolist() for row in output.sequences] == expected
    output = generate(engines[kind], ids, mask, config, Controls(negative_ids=np.array([[7, 7]])))
    assert output.sequences[2].tolist() == expected[2]
    assert output.sequences[0].tolist() == expected_tokens(engines[kind], prompts[0], [7, 7], 2.0, 8)


def padded(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    mask = (np.arange(max(map(len, rows))) < np.array(list(map(len, rows)))[:, None]).astype(np.int32)
    ids = np.zeros_like(mask)
    ids[mask == 1] = [token for row in rows for token in row]
    return ids, mask


class Several(Toy):
    """A toy that reads several tokens at once and whose logits depend on all tokens of a row."""

    step_lengths = (1, 2, 4)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        table = np.random.default_rng(7).normal(size=(64, self.vocab_size)).astype(np.float32)
        of_pairs = self.of
        self.of = lambda row: of_pairs(row) + table[int(row @ np.arange(1, len(row) + 1)) % 64]

    def step(self, tokens: np.ndarray, state: Rows) -> tuple[np.ndarray, Rows]:
        parts = []
        for column in tokens.T:
            logits, state = super().step(column[:, None], state)
            parts.append(logits)
        return np.concatenate(parts, axis=1), state


NEGATIVE = [3, 8, 1]


class AlreadyGuided(Toy):
    """A toy whose logits are the guided logits of `Several` after prompts of `length` tokens."""

    def __init__(self, length: int, scale: float) -> None:
        of = Several().of

        def guided(row: np.ndarray) -> np.ndarray:
            positive, negative = (log_softmax(of(each)) for each in (row, np.append(NEGATIVE, row[length:])))
            return negative + np.float32(scale) * (positive - negative)

        super().__init__(of=guided)


METHODS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "ends": {"eos_token_id": [4, 9]},
    "beams": {"num_beams": 3, "num_return_sequences": 2, "eos_token_id": [4]},
    "sampling": {"do_sample": True, "seed": 3, "num_return_sequences": 3, "temperature": 1.4, "top_k": 6},
    "sampling beams": {"do_sample": True, "num_beams": 3, "seed": 3},
    "rules": {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
    "prompt lookup, sampling": {"prompt_lookup_num_tokens": 3, "do_sample": True, "seed": 3},
}


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS.keys())
def test_every_method_works_on_guided_logits(settings) -> None:
    ids = np.array([[1, 2, 1, 2], [5, 6, 7, 5]])
    config = GenerationConfig(max_new_tokens=10, guidance_scale=1.7, **settings)
    received = generate(Several(), ids, None, config, Controls(negative_ids=np.array([NEGATIVE])))
    plain = config.replace(guidance_scale=1.0, prompt_lookup_num_tokens=0)
    expected = generate(AlreadyGuided(4, 1.7), ids, None, plain)
    assert [row.tolist() for row in received.sequences] == [row.tolist() for row in expected.sequences]
    assert received.finish_reasons == expected.finish_reasons
    assert len({tuple(row.tolist()) for row in received.sequences}) > 1


def test_a_long_negative_prompt_reduces_the_capacity() -> None:
    config = GenerationConfig(max_new_tokens=9, guidance_scale=2.0)
    ids, negative = np.array([[1, 2]]), np.arange(1, 11)[None]
    fits = generate(Several(capacity=19), ids, None, config, Controls(negative_ids=negative))
    assert (len(fits.sequences[0]), fits.finish_reasons) == (9, ["length"])
    with pytest.warns(UserWarning, match="full"):
        cut = generate(Several(capacity=16), ids, None, config, Controls(negative_ids=negative))
    assert cut.finish_reasons == ["capacity"]
    assert cut.sequences[0].tolist() == fits.sequences[0][:6].tolist()
    with pytest.raises(CapacityError, match="negative prompt leaves no room.*at most 9 tokens. Received: 10"):
        generate(Several(capacity=10), ids, None, config, Controls(negative_ids=negative))


@pytest.mark.parametrize(
    ("negative", "message"),
    [
        (np.ones((3, 2), int), "1 or 2. Received: 3"),
        (np.array([5, 6]), r"negative_prompt_ids must be .*\(batch, tokens\)"),
        (np.array([[5, 99]]), "from 0 to 11. Received: 5 to 99"),
    ],
)
def test_invalid_negative_prompts(negative, message) -> None:
    with pytest.raises(InputError, match=message):
        generate(
            Toy(), np.array([[1], [2]]), None, GenerationConfig(guidance_scale=2.0), Controls(negative_ids=negative)
        )

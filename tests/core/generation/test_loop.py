from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer.errors import GenerationError, InputError
from kerasformer.generation import ENDED, Controls, GenerationConfig, generate
from tests.core.generation.engines import Toy, tokens_of

IDS = np.array([[3, 4, 5], [6, 0, 0], [7, 8, 0]])
MASK = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0]])


def counting(vocab_size: int = 12, **settings: Any) -> Toy:
    """Returns a toy that generates the successor of the last token."""
    return Toy(vocab_size, of=lambda row: np.eye(vocab_size)[(row[-1] + 1) % vocab_size], **settings)


def as_lists(sequences: list[np.ndarray]) -> list[list[int]]:
    assert all(sequence.dtype == np.int32 for sequence in sequences)
    return [sequence.tolist() for sequence in sequences]


def test_rows_end_independently() -> None:
    output = generate(counting(), IDS, MASK, GenerationConfig(max_new_tokens=4, eos_token_id=9))
    assert as_lists(output.sequences) == [[6, 7, 8, 9], [7, 8, 9], [9]]
    assert output.finish_reasons == ["eos", "eos", "eos"]
    assert output.sequence_scores is None


def test_finished_rows_are_dropped_from_the_batch() -> None:
    engine = counting(vocab_size=40)
    prompts = np.array([[1], [20], [25], [28]])
    output = generate(engine, prompts, config=GenerationConfig(max_new_tokens=12, eos_token_id=30))
    assert [len(sequence) for sequence in output.sequences] == [12, 10, 5, 2]
    assert engine.batches == [4] * 5 + [2] * 5 + [1] * 2  # only halving: a new batch size can cost a compilation


@pytest.mark.parametrize(
    "settings",
    [{}, {"seed": 3, "temperature": 2.0}, {"no_repeat_ngram_size": 1}, {"seed": 3, "prompt_lookup_num_tokens": 2}],
    ids=str,
)
def test_a_row_is_the_same_alone_or_in_a_batch(settings: dict[str, Any]) -> None:
    config = GenerationConfig(max_new_tokens=8, eos_token_id=(1, 2), **settings)
    together = as_lists(generate(Toy(), IDS, MASK, config).sequences)
    assert len(together) == 3
    alone = [as_lists(generate(Toy(), IDS[i : i + 1], MASK[i : i + 1], config).sequences)[0] for i in range(3)]
    assert together == alone
    assert as_lists(generate(Toy(), IDS[:, ::-1], MASK[:, ::-1], config).sequences) != together
    padded = np.pad(IDS, ((0, 0), (2, 3)), constant_values=11), np.pad(MASK, ((0, 0), (2, 3)))
    assert as_lists(generate(Toy(), *padded, config).sequences) == together


@pytest.mark.parametrize("count", [1, 3])  # several samples of a prompt have different random numbers
def test_samples_do_not_depend_on_other_rows(count: int) -> None:
    settings = GenerationConfig(max_new_tokens=12, do_sample=True, seed=5, num_return_sequences=count)
    free = as_lists(generate(Toy(), IDS, MASK, settings).sequences)
    engine, kept = Toy(), 2 * count - 1  # the last sample of the second prompt
    controls = Controls(stop=lambda tokens: tokens[0] != free[kept][0])
    ended = as_lists(generate(engine, IDS, MASK, settings, controls).sequences)
    assert ended[kept] == free[kept]
    assert min(engine.batches) < 3 * count


def test_seeds() -> None:
    config = GenerationConfig(max_new_tokens=10, do_sample=True)
    first, again, other = (as_lists(generate(Toy(), IDS, MASK, config.replace(seed=s)).sequences) for s in (1, 1, 2))
    assert first == again != other
    assert len({str(as_lists(generate(Toy(), IDS, MASK, config).sequences)) for _ in range(3)}) > 1
    same = np.repeat(IDS[:1], 3, axis=0), np.repeat(MASK[:1], 3, axis=0)
    assert len({str(sequence) for sequence in as_lists(generate(Toy(), *same, config).sequences)}) == 3


@pytest.mark.parametrize("settings", [{}, {"prompt_lookup_num_tokens": 2}], ids=str)
def test_several_samples_of_each_prompt(settings: dict[str, Any]) -> None:
    config = GenerationConfig(max_new_tokens=6, seed=1, num_return_sequences=3, **settings)
    output = generate(Toy(), IDS[:2], MASK[:2], config)
    assert len(output.sequences) == len(output.finish_reasons) == 6
    sequences = as_lists(output.sequences)
    assert len({str(sequence) for sequence in sequences[:3]}) == 3
    fewer = config.replace(num_return_sequences=2)
    assert as_lists(generate(Toy(), IDS[1:2], MASK[1:2], fewer).sequences) == sequences[3:5]


def test_the_stream_yields_the_tokens_of_generate() -> None:
    config = GenerationConfig(max_new_tokens=6, eos_token_id=9, pad_token_id=11)
    pieces = list(tokens_of(counting(), IDS, MASK, config))
    assert np.stack(pieces, axis=1).tolist() == [[6, 7, 8, 9], [7, 8, 9, ENDED], [9, ENDED, ENDED, ENDED]]
    assert pieces[0].dtype == np.int32
    sampled = config.replace(seed=4)
    rows = np.stack(list(tokens_of(Toy(), IDS, MASK, sampled)), axis=1).tolist()
    for row, sequence in zip(rows, as_lists(generate(Toy(), IDS, MASK, sampled).sequences), strict=True):
        assert row[: len(sequence)] == sequence
        assert set(row[len(sequence) :]) <= {ENDED}


def test_the_tokens_that_a_rule_received_do_not_change_afterwards() -> None:
    received = []

    def rule(history: Any, logits: np.ndarray) -> np.ndarray:
        received.append(history.row(0))
        return logits

    config = GenerationConfig(max_new_tokens=200)
    (tokens,) = generate(counting(capacity=300), IDS[:1], None, config, Controls(rules=(rule,))).sequences
    text = [*IDS[0].tolist(), *tokens.tolist()]
    assert [row.tolist() for row in received] == [text[: len(IDS[0]) + count] for count in range(200)]


def test_lengths() -> None:
    def lengths(**settings: Any) -> list[int]:
        return [len(s) for s in generate(counting(), IDS, MASK, GenerationConfig(**settings)).sequences]

    assert lengths() == [20, 20, 20]
    assert lengths(max_length=5) == [2, 2, 2]
    assert lengths(max_length=5, max_new_tokens=4) == [4, 4, 4]
    assert lengths(max_new_tokens=8, eos_token_id=9, min_new_tokens=6) == [8, 8, 8]
    assert lengths(max_new_tokens=8, eos_token_id=9, min_length=6) == [4, 8, 8]
    with pytest.raises(GenerationError, match="max_length includes the prompt"):
        lengths(max_length=3)


def test_a_full_cache_warns() -> None:
    config = GenerationConfig(max_new_tokens=10, eos_token_id=9)
    with pytest.warns(UserWarning, match="1 of 3 sequences were cut after 3 new tokens"):
        output = generate(counting(capacity=6), IDS, MASK, config)
    assert as_lists(output.sequences) == [[6, 7, 8], [7, 8, 9], [9]]
    assert output.finish_reasons == ["capacity", "eos", "eos"]
    with pytest.warns(UserWarning, match="the cache is full"):
        assert len(list(tokens_of(counting(capacity=6), IDS, MASK, config))) == 3
    assert generate(counting(capacity=6), IDS, MASK, config.replace(max_new_tokens=3)).finish_reasons[0] == "length"


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        (np.zeros((0, 3), int), None, r"Received: shape \(0, 3\)"),
        (np.zeros((2, 0), int), None, r"Received: shape \(2, 0\)"),
        (np.zeros(3, int), None, r"Received: shape \(3,\)"),
        (IDS, np.array([[1, 1, 1], [0, 0, 0], [0, 0, 0]]), "no token in row 1"),
        (IDS, MASK[:2], "shape of input_ids"),
        (IDS, MASK * 2, "attention_mask must be from 0 to 1"),
        (IDS.astype(float), None, "must be integers"),
        (IDS + 10, None, "from 0 to 11. Received: 10 to 18"),
        (IDS - 5, None, "from 0 to 11. Received: -5 to 3"),
    ],
)
def test_invalid_prompts(ids: np.ndarray, mask: np.ndarray | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        generate(counting(), ids, mask)


def test_a_stream_checks_its_arguments_at_the_call() -> None:
    with pytest.raises(InputError):
        tokens_of(counting(), np.zeros((0, 3), int))
    with pytest.raises(GenerationError, match="num_beams=1"):
        tokens_of(counting(), IDS, MASK, GenerationConfig(num_beams=2))
    with pytest.raises(GenerationError, match="decode"):
        tokens_of(counting(), IDS, MASK, GenerationConfig(stop_strings="a"))


def test_end_and_padding_tokens_outside_the_vocabulary_are_ignored() -> None:
    config = GenerationConfig(max_new_tokens=2, eos_token_id=50256, pad_token_id=50256, min_new_tokens=1)
    assert as_lists(generate(counting(), IDS, MASK, config).sequences) == [[6, 7], [7, 8], [9, 10]]


def test_an_encoder_decoder_needs_a_start() -> None:
    engine = counting()
    engine.is_encoder_decoder = True
    with pytest.raises(GenerationError, match="decoder_start_token_id"):
        generate(engine, IDS, MASK)

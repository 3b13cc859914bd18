"""Ends of rows: stop strings compared with `transformers`, functions, end tokens, time limits and cancellation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from kerasformer.generation import Controls, GenerationConfig, generate
from kerasformer.generation.stopping import has_stop_string
from kerasformer.tokenization import Tokenizer
from tests import tiny_text
from tests.core.generation.engines import Toy
from tests.core.generation.models import PAD, gpt2

FOREIGN = " Größe: 25 €, ja? 日本語の文です。日本の🙂🙃! Ça va, naïve café."


def byte_fallback() -> Tokenizer:
    """Returns a tokenizer like Llama's: pieces with leading spaces, and bytes for unknown characters."""
    characters = sorted(set("".join(tiny_text.CORPUS).replace(" ", "▁")))
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("a", "n"), ("an", "d"), ("e", "r"), ("o", "n"), ("▁", "a")]
    tokens = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *characters, *(a + b for a, b in merges)]
    backend = Backend(models.BPE({t: i for i, t in enumerate(tokens)}, merges, unk_token="<unk>", byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(backend, special_tokens={"unk_token": "<unk>", "bos_token": "<s>"})


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": tiny_text.byte_pairs,
    "pieces": tiny_text.pieces,
    "byte fallback": byte_fallback,
}


def cases(tokenizer: Tokenizer, count: int) -> Iterator[tuple[np.ndarray, np.ndarray, list[str]]]:
    """Yields a prompt, a continuation and stop strings, of which some occur in both."""
    random = np.random.default_rng(0)
    for _ in range(count):
        parts = [tiny_text.CORPUS[random.integers(8)], FOREIGN, " aaaa ababab"]
        text = "".join(parts[i] for i in random.permutation(3))
        ids = np.array(tokenizer.encode(text, add_special_tokens=False))
        # A prompt does not end within a character.
        ends = [n for n in range(1, len(ids)) if not tokenizer.decode(ids[:n]).endswith("\ufffd")]
        start, split, end = np.sort(random.choice(ends, 3, replace=False))
        whole = tokenizer.decode(ids)
        strings = []
        for _ in range(random.integers(1, 4)):
            offset, length = random.integers(len(whole)), random.integers(1, 9)
            strings.append(whole[offset : offset + length])
        yield ids[start:split], ids[split : end + 1], [string for string in strings if "\ufffd" not in string] or ["a"]


@pytest.mark.parametrize("kind", KINDS)
def test_stop_strings_end_where_they_do_in_transformers(kind: str) -> None:
    tokenizer = KINDS[kind]()
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend)
    ends: list[int | None] = []
    for before, tokens, strings in cases(tokenizer, 60):
        criteria = transformers.StopStringCriteria(theirs, strings)
        ids = torch.tensor(np.concatenate([before, tokens]))[None]
        lengths, decode = range(1, len(tokens) + 1), tokenizer.decode
        expected = first(lengths, lambda n: criteria(ids[:, : len(before) + n], None).item())  # noqa: B023
        received = first(lengths, lambda n: has_stop_string(strings, before, tokens[:n], decode))  # noqa: B023
        assert received == expected, (strings, tokenizer.decode(before), tokenizer.decode(tokens))
        ends.append(received)
    assert 15 < sum(end is not None for end in ends) < 60
    assert sum(end == 1 for end in ends) < 30


def first(numbers: range, holds: Callable[[int], bool]) -> int | None:
    return next((number for number in numbers if holds(number)), None)


@pytest.mark.parametrize("settings", [{}, {"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2}], ids=str)
def test_generation_stops_where_transformers_stops(settings: dict[str, Any]) -> None:
    tokenizer = tiny_text.byte_pairs()
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend)
    engine = gpt2(tokenizer.vocab_size, 3)
    settings = {"max_new_tokens": 12, "pad_token_id": PAD, "do_sample": False, **settings}
    config = GenerationConfig(**settings)
    stopped = 0
    for prompt in tiny_text.CORPUS[:3]:
        ids = np.array([tokenizer.encode(prompt[:20])])
        free = tokenizer.decode(generate(engine, ids, None, config).sequences[0])
        strings = [prompt[17:20] + free[:1], free[4:7]] if len(free) > 7 else [free[:2]]
        strings = [each for each in strings if "\ufffd" not in each] or ["e"]
        expected = engine.model.generate(
            torch.tensor(ids), attention_mask=torch.ones(ids.shape, dtype=torch.long), stop_strings=strings,
            tokenizer=theirs, **settings,
        )  # fmt: skip
        received = generate(engine, ids, None, config.replace(stop_strings=strings), Controls(decode=tokenizer.decode))
        for ours, row in zip(received.sequences, expected[:, ids.shape[1] :].tolist(), strict=True):
            assert ours.tolist() == row[: len(ours)] and set(row[len(ours) :]) <= {PAD, -1}
        stopped += received.finish_reasons.count("stop")
    assert stopped


def counting(**settings: Any) -> Toy:
    """Returns a toy that generates the successor of the last token, modulo 12."""
    return Toy(of=lambda row: np.eye(12, dtype=np.float32)[(row[-1] + 1) % 12] * 9, **settings)


def words(tokens: np.ndarray) -> str:
    return "".join("abcdefghijkl"[token] for token in tokens)


IDS = np.array([[1], [6]])


@pytest.mark.parametrize("method", [{}, {"num_beams": 3}, {"do_sample": True, "temperature": 0.01}], ids=str)
@pytest.mark.parametrize(
    ("settings", "controls", "texts", "reasons"),
    [
        ({"stop_strings": "efg"}, {"decode": words}, ["cdefg", "hijklabc"], ["stop", "length"]),
        ({"stop_strings": ["bcd", "ij"]}, {"decode": words}, ["cd", "hij"], ["stop", "stop"]),
        ({"eos_token_id": [5, 9]}, {}, ["cdef", "hij"], ["eos", "eos"]),
        ({}, {"stop": lambda tokens: len(tokens) == 2}, ["cd", "hi"], ["stop", "stop"]),
        ({}, {"stop": lambda tokens: tokens[-1] == 8}, ["cdefghi", "hi"], ["stop", "stop"]),
        ({"eos_token_id": 3}, {"stop": lambda tokens: tokens[-1] == 3}, ["cd", "hijklabc"], ["eos", "length"]),
        ({"max_time": 1e-9}, {}, ["c", "h"], ["time", "time"]),
        ({}, {"cancelled": lambda: True}, ["c", "h"], ["cancelled", "cancelled"]),
    ],
    ids=lambda value: str(value) if isinstance(value, list) else "",
)
def test_finish_reasons(method: Any, settings: Any, controls: Any, texts: Any, reasons: Any) -> None:
    config = GenerationConfig(max_new_tokens=8, **settings, **method)
    output = generate(counting(), IDS, None, config, Controls(**controls))
    assert [words(row) for row in output.sequences] == texts
    assert output.finish_reasons == reasons

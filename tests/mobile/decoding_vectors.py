"""Writes `decoding/` of the vectors: random numbers, samplers, rules and generations with the mock model."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.engines.litert.signatures import prefill_plan
from kerasformer.errors import CapacityError, GenerationError, InputError
from kerasformer.generation import Controls, GenerationConfig, generate
from kerasformer.generation.history import History
from kerasformer.generation.rules import apply_rules, rules_of
from kerasformer.generation.samplers import sampler_of
from kerasformer.tokenization import Tokenizer
from tests.mobile import vocabularies
from tests.mobile.json_text import dump, floats
from tests.mobile.mock import Mock, MockStep

Settings = dict[str, Any]

SAMPLERS: list[Settings] = [
    {},
    {"do_sample": True},
    {"temperature": 0.6},
    {"temperature": 0, "top_p": 0.5},
    {"top_k": 5},
    {"top_p": 0.8},
    {"top_p": 0.0},
    {"top_p": 0.999},
    {"min_p": 0.2},
    {"temperature": 1.7, "top_k": 20, "top_p": 0.95, "min_p": 0.01},
    {"top_k": 1, "do_sample": True},
    {"top_k": 1000},
]
RULES: list[Settings] = [
    {"repetition_penalty": 1.4},
    {"repetition_penalty": 0.7},
    {"encoder_repetition_penalty": 1.4},
    {"frequency_penalty": 0.7, "presence_penalty": 0.3},
    {"frequency_penalty": -0.1},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"encoder_no_repeat_ngram_size": 2},
    {"bad_words_ids": [[5], [3, 4], [2, 3, 9]], "eos_token_id": 5},
    {"suppress_tokens": [1, 2, 300]},
    {"begin_suppress_tokens": [4]},
    {"begin_suppress_tokens": [4], "forced_bos_token_id": 3},
    {"min_new_tokens": 3, "eos_token_id": [6, 7]},
    {"min_new_tokens": 2, "eos_token_id": [6, 7]},
    {"forced_bos_token_id": 3},
    {"forced_eos_token_id": 8},
    {"forced_eos_token_id": [8, 9], "suppress_tokens": 9},
    {"repetition_penalty": 1.2, "presence_penalty": 0.5, "no_repeat_ngram_size": 2, "bad_words_ids": [[7]]},
]
HISTORIES = [
    ([1, 2, 3, 4, 2, 3], 6, [1, 2, 3, 4, 2, 3]),
    ([1, 2, 3, 9, 2, 3, 9, 2], 3, [1, 2, 3]),
    ([5], 1, [4, 3, 4, 3, 6]),
    ([5, 3], 1, [4, 3, 4, 3, 6]),
    ([5, 3, 4, 3], 1, [4, 3, 4, 3, 6]),
    ([5, 5, 5, 7, 5, 5, 5], 2, [5, 5]),
]
"""All tokens so far, number of those before the first new one, and the prompt or the input of the encoder."""
_MAX_NEW = 4

STORED: list[tuple[Settings, Settings]] = [
    ({}, {}),
    ({"eos_token_id": 3, "max_length": 20, "do_sample": True, "temperature": 0.7}, {}),
    ({"eos_token_id": [3, 4], "top_p": 0.9}, {}),
    ({"top_p": 0.9}, {"top_k": 3}),
    ({"top_p": 0.9, "max_new_tokens": 5}, {"seed": 3, "max_length": 9}),
    ({"num_beams": 4}, {"seed": 3}),
    ({"num_beams": 4, "early_stopping": True}, {"num_beams": 1, "seed": 3}),
    ({"do_sample": True, "temperature": 0.7}, {"temperature": 0}),
    ({"do_sample": True, "temperature": 0.7}, {"temperature": None}),
    ({"min_new_tokens": 3}, {"min_length": 7}),
    ({}, {"stop_strings": "end", "max_new_tokens": 7, "min_new_tokens": 2}),
    ({"forced_eos_token_id": 2, "suppress_tokens": None}, {"eos_token_id": 9}),
    ({}, {"temperature": -1}),
    ({}, {"temperature": "warm"}),
    ({}, {"top_p": 1.5}),
    ({}, {"top_k": -1}),
    ({}, {"top_k": 2.5}),
    ({}, {"max_new_tokens": 0}),
    ({}, {"early_stopping": "sometimes"}),
    ({}, {"num_beams": 0}),
    ({}, {"bad_words_ids": [[]]}),
    ({}, {"repetition_penalty": 0}),
    ({}, {"eos_token_id": -1}),
    ({}, {"stop_strings": [""]}),
    ({}, {"max_words": 3}),
    ({}, {"max_tokens": 3}),
]
"""Settings of a bundle, and those of a call."""

SMALL = Mock(seed=7, order=2, vocab_size=24, capacity=64)
WIDE = Mock(seed=11, order=3, vocab_size=320, capacity=64)
ENDINGS, EARLY = (Mock(seed=seed, order=2, vocab_size=12, capacity=64) for seed in (179, 194))
"""Models whose beams end differently with each setting of the end; a test checks this."""
PAIR = Mock(seed=5, order=2, vocab_size=24, capacity=40, encoder_capacity=32)
_START = {"decoder_start_token_id": 1}
_ENDS: Settings = {"eos_token_id": [5, 9]}
_THREE: Settings = {"num_beams": 3, "max_new_tokens": 12}
GENERATIONS: dict[str, tuple[Mock, list[int], Settings, Settings]] = {
    "greedy": (SMALL, [3, 1, 4], {}, {}),
    "greedy-until-end": (SMALL, [3, 1, 4], {"eos_token_id": 15}, {"max_new_tokens": 30}),
    "several-ends": (SMALL, [2, 2], {"eos_token_id": [5, 9, 11]}, {"max_new_tokens": 30}),
    "one-token-prompt": (WIDE, [9], {}, {"max_new_tokens": 6}),
    "full-cache": (SMALL, list(range(20)) * 3, {}, {"max_new_tokens": 30}),
    "max-length": (SMALL, [3, 1, 4], {"max_new_tokens": 3}, {"max_length": 8}),
    "min-new-tokens": (SMALL, [2, 2], {"eos_token_id": [5, 9, 11]}, {"min_new_tokens": 12}),
    "sampled": (WIDE, [3, 1, 4], {}, {"do_sample": True, "seed": 3}),
    "sampled-large-seed": (WIDE, [3, 1, 4], {}, {"temperature": 1.3, "seed": 2**53 - 1}),
    "sampled-with-cutoffs": (WIDE, [3, 1, 4], {"temperature": 0.8, "top_p": 0.9}, {"top_k": 40, "seed": 0}),
    "sampled-min-p": (WIDE, [3, 1, 4], {}, {"min_p": 0.05, "seed": 9, "max_new_tokens": 30}),
    "sampled-and-punished": (
        SMALL,
        [3, 1, 4],
        {},
        {"top_p": 0.95, "seed": 9, "repetition_penalty": 1.3, "frequency_penalty": 0.2, "no_repeat_ngram_size": 2},
    ),
    "stored-sampling": (WIDE, [8, 8], {"do_sample": True, "temperature": 0.7, "top_k": 12}, {"seed": 4}),
    "temperature-0": (WIDE, [8, 8], {"do_sample": True, "temperature": 0.7}, {"temperature": 0, "max_new_tokens": 5}),
    "penalties": (SMALL, [3, 1, 4], {}, {"repetition_penalty": 1.5, "max_new_tokens": 25}),
    "no-repeats": (SMALL, [3, 1, 4], {}, {"no_repeat_ngram_size": 1, "max_new_tokens": 15}),
    "bad-words": (SMALL, [3, 1, 4], {}, {"bad_words_ids": [[0], [1, 2], [22]], "max_new_tokens": 15}),
    "forced-end": (SMALL, [3, 1, 4], {"forced_eos_token_id": 2, "eos_token_id": 2}, {"max_new_tokens": 5}),
    "beams": (SMALL, [3, 1, 4], {"eos_token_id": 15}, {"num_beams": 3}),
    "beams-without-end": (SMALL, [3, 1, 4], {}, {"num_beams": 4, "max_new_tokens": 8}),
    "beams-early": (EARLY, [2, 2], _ENDS, {**_THREE, "early_stopping": True}),
    "beams-never": (ENDINGS, [2, 2], _ENDS, {**_THREE, "early_stopping": "never", "length_penalty": 2.5}),
    "beams-long": (ENDINGS, [2, 2], _ENDS, {**_THREE, "length_penalty": 2.5}),
    "beams-short": (ENDINGS, [2, 2], _ENDS, {**_THREE, "length_penalty": -1.0}),
    "beams-without-penalty": (ENDINGS, [2, 2], _ENDS, {**_THREE, "length_penalty": 0.0}),
    "beams-with-rules": (
        SMALL,
        [3, 1, 4],
        {"eos_token_id": 15},
        {"num_beams": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.2, "min_new_tokens": 6},
    ),
    "beams-with-a-seed": (WIDE, [3, 1, 4], {"num_beams": 2}, {"seed": 3, "max_new_tokens": 6}),
    "beams-full-cache": (SMALL, list(range(20)) * 3, {}, {"num_beams": 3}),
    "many-beams": (SMALL, [3], {"eos_token_id": 15}, {"num_beams": 12, "max_new_tokens": 6}),
    "encoder": (PAIR, [6, 7, 8, 0], {**_START, "eos_token_id": 15}, {}),
    "encoder-other-text": (PAIR, [6, 7, 9, 0], {**_START, "eos_token_id": 15}, {}),
    "encoder-full-cache": (PAIR, [6, 7], _START, {"max_new_tokens": 100}),
    "encoder-sampled": (PAIR, [6, 7, 8, 0], _START, {"temperature": 0.9, "seed": 21}),
    "encoder-forced": (
        PAIR,
        [6, 7, 8, 0],
        {**_START, "forced_bos_token_id": 19, "begin_suppress_tokens": [3], "eos_token_id": 15},
        {"encoder_no_repeat_ngram_size": 2, "encoder_repetition_penalty": 1.3},
    ),
    "encoder-beams": (PAIR, [6, 7, 8, 0], {**_START, "eos_token_id": 15, "num_beams": 4}, {"max_new_tokens": 12}),
    "encoder-beams-forced": (
        PAIR,
        [6, 7, 8, 0],
        {**_START, "forced_bos_token_id": 19, "forced_eos_token_id": 15, "eos_token_id": 15, "num_beams": 3},
        {"max_new_tokens": 6, "length_penalty": 0.6},
    ),
    "no-room": (SMALL, [1] * 64, {}, {}),
    "prompt-longer-than-max-length": (SMALL, [1] * 9, {}, {"max_length": 9}),
    "no-start": (PAIR, [6, 7], {}, {}),
    "forced-out-of-vocabulary": (SMALL, [1], {}, {"forced_eos_token_id": 24}),
    "nothing-allowed": (SMALL, [1], {}, {"suppress_tokens": list(range(24))}),
}
"""Model, prompt or input of the encoder, settings of a bundle, and those of a call."""

STOPPED: dict[str, tuple[str, Mock, str, Settings]] = {
    "stop-in-a-token": ("gpt2", Mock(3, 2, 350, 64), "The rain", {"stop_strings": "e", "max_new_tokens": 40}),
    "stop-over-tokens": (
        "gpt2",
        Mock(3, 1, 350, 64),
        "The rain",
        {"stop_strings": ["zzz", "e", "a"], "max_new_tokens": 40},
    ),
    "stop-of-bytes": ("gemma", Mock(5, 2, 300, 64), "The rain", {"stop_strings": "\ufffd", "max_new_tokens": 40}),
    "stop-with-spaces": ("llama2", Mock(6, 2, 380, 64), "The rain", {"stop_strings": " Y", "max_new_tokens": 50}),
    "no-stop": ("gpt2", Mock(3, 2, 350, 64), "The rain", {"stop_strings": "impossible", "max_new_tokens": 12}),
}
"""Tokenizer, model, prompt and settings of texts that end at a text."""


def _samplers() -> Iterator[Any]:
    random = np.random.default_rng(5)
    logits = random.normal(0, 3, (3, 60)).round(1).astype(np.float32)
    logits[2] = np.round(logits[2])  # many equal values
    for settings in SAMPLERS:
        config = GenerationConfig.from_dict({}).replace(**settings)
        for row in logits:
            uniform = random.random(8)
            tokens = sampler_of(config)(np.repeat(row[None], 8, axis=0), uniform)
            yield {"settings": settings, "logits": floats(row), "uniform": uniform.tolist(), "tokens": tokens.tolist()}


def _rules() -> Iterator[Any]:
    random = np.random.default_rng(6)
    for settings in RULES:
        given = {**settings, "max_new_tokens": _MAX_NEW}
        config = GenerationConfig.from_dict({}).replace(**given)
        for ids, width, prompt in HISTORIES:
            logits = random.normal(0, 3, 12).astype(np.float16).astype(np.float32)
            history = History(
                np.array([ids], np.int32), np.zeros(1, np.int64), width, (np.array(prompt, np.int32),),
                np.zeros(1, np.int64), _MAX_NEW,
            )  # fmt: skip
            (scores,) = apply_rules(rules_of(config), history, logits[None].copy())
            (different,) = np.nonzero(scores != logits)
            changed = {str(token): floats(scores[token]) for token in different.tolist()}
            yield {
                "settings": given, "ids": ids, "width": width, "prompt": prompt, "logits": floats(logits),
                "changed": changed,
            }  # fmt: skip


def _settings() -> Iterator[Any]:
    for stored, given in STORED:
        try:
            with warnings.catch_warnings(action="ignore"):
                config = GenerationConfig.from_dict(stored).replace(**given)
            values = dataclasses.asdict(config)
            changed = {name: value for name, value in values.items() if value != getattr(GenerationConfig(), name)}
            yield {"stored": stored, "settings": given, "config": changed}
        except GenerationError as error:
            yield {"stored": stored, "settings": given, "error": as_error(error)}


def as_error(error: Exception) -> dict[str, Any]:
    """Returns name and message of an error, and the numbers of a `CapacityError`."""
    return {"name": type(error).__name__, "message": str(error)}


@cache
def tokenizer(name: str) -> Tokenizer:
    """Returns a tokenizer of the vectors."""
    return {**vocabularies.FULL, **vocabularies.OTHERS}[name]()


def generated(model: Mock, prompt: list[int], stored: Settings, settings: Settings, **controls: Any) -> Any:
    row = {"model": model.to_json(), "prompt": prompt, "stored": stored, "settings": settings}
    try:
        with warnings.catch_warnings(action="ignore"):
            config = GenerationConfig.from_dict(stored).replace(**settings)
            output = generate(MockStep(model), np.array([prompt]), None, config, Controls(**controls))
    except (CapacityError, GenerationError, InputError) as error:
        return {**row, "error": as_error(error)}
    return {**row, "tokens": output.sequences[0].tolist(), "reason": output.finish_reasons[0]}


def _generations() -> Iterator[Any]:
    for name, row in GENERATIONS.items():
        yield {"name": name, **generated(*row)}
    for name, (kind, model, text, settings) in STOPPED.items():
        ours = tokenizer(kind)
        result = generated(model, ours.encode(text), {}, settings, decode=ours.decode)
        yield {"name": name, "tokenizer": kind, **result, "text": ours.decode(result["tokens"])}


def _mock() -> Iterator[Any]:
    for model, encoder, history in ((SMALL, None, [1]), (SMALL, None, [9, 9, 3, 1]), (PAIR, [4, 5], [1, 2])):
        logits = model.logits(model.start(encoder), history)
        yield {"model": model.to_json(), "encoder": encoder, "history": history, "logits": floats(logits)}


def _random() -> Iterator[Any]:
    for seed in (0, 1, 42, 2**32 - 1, 2**32 + 5, 2**40 + 3, 2**53 - 1):
        yield {"seed": seed, "values": np.random.default_rng(seed).random(6).tolist()}


def _prefill() -> Iterator[Any]:
    for lengths, capacity in (([8, 32], 64), ([16], 80), ([], 40), ([4, 16, 64], 70)):
        for count, start in ((1, 0), (2, 0), (5, 0), (9, 0), (21, 0), (33, 0), (40, 0), (3, 60), (7, 30)):
            if start + count <= capacity:
                sizes = prefill_plan(count, capacity, lengths, start)
                yield {"count": count, "capacity": capacity, "lengths": lengths, "start": start, "sizes": sizes}


FILES = {
    "prefill": _prefill,
    "mock": _mock,
    "random": _random,
    "samplers": _samplers,
    "rules": _rules,
    "settings": _settings,
    "generations": _generations,
}


def write(folder: Path) -> None:
    """Writes all files, with a row in each line."""
    folder.mkdir()
    for name, rows in FILES.items():
        (folder / f"{name}.json").write_text("[\n" + ",\n".join(map(dump, rows())) + "\n]\n", encoding="utf-8")

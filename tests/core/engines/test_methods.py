"""Every decoding method on every engine generates the tokens of the Keras engine, alone or in a batch."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
import tokenizers

from kerasformer.engines import Step
from kerasformer.generation import GenerationConfig, GenerationOutput, generate, request
from kerasformer.tokenization import Tokenizer
from tests.core.engines.test_steps import KINDS, ROWS, VOCAB, grid_of

pytestmark = pytest.mark.grid

LENGTHS = (7, 2, 12, 1)
BASE = {"max_new_tokens": 14, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": list(range(40, 44))}

METHODS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "penalties": {"repetition_penalty": 1.6, "no_repeat_ngram_size": 2, "min_new_tokens": 3, "suppress_tokens": [7]},
    "beams": {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.7},
    "samples": {"do_sample": True, "seed": 3, "top_k": 20, "temperature": 0.8, "num_return_sequences": 2},
    "guidance": {"guidance_scale": 1.4},
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
}


def prompts() -> tuple[np.ndarray, np.ndarray]:
    """Returns ragged prompts, padded on the right."""
    mask = (np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]).astype(np.int32)
    return np.random.default_rng(6).integers(2, VOCAB, mask.shape, "int32") * mask, mask


def written(step: Step, method: str, rows: list[int] | None = None) -> GenerationOutput:
    """Returns the output of a method for all prompts, or for some rows."""
    ids, mask = prompts()
    rows = rows or list(range(len(ids)))
    return generate(step, ids[rows], mask[rows], GenerationConfig(**BASE, **METHODS[method]))


def new_tokens(output: GenerationOutput) -> list[list[int]]:
    return [sequence.tolist() for sequence in output.sequences]


@cache
def by_keras(kind: str, method: str) -> tuple[list[list[int]], list[str]]:
    output = written(engine("keras", kind), method)
    return new_tokens(output), output.finish_reasons


@cache
def engine(name: str, kind: str) -> Step:
    return ROWS[name].opened(kind)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "kind"),
    grid_of((name, kind) for name in ROWS if name != "keras" and "int8" not in name for kind in KINDS),
)
def test_tokens_equal_those_of_the_keras_engine(name: str, kind: str, method: str) -> None:
    output = written(engine(name, kind), method)
    assert (new_tokens(output), output.finish_reasons) == by_keras(kind, method)


@pytest.mark.parametrize(("name", "kind"), grid_of((name, kind) for name, row in ROWS.items() for kind in row.kinds))
def test_results_alone_equal_results_in_a_batch(name: str, kind: str) -> None:
    step, method = engine(name, kind), "penalties" if kind == "gpt2" else "beams"
    together = new_tokens(written(step, method))
    each = len(together) // len(LENGTHS)
    for row in range(len(LENGTHS)):
        assert new_tokens(written(step, method, [row])) == together[row * each : (row + 1) * each]


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_vary(kind: str) -> None:
    """Comparisons are meaningful: rows end at different times, and methods generate different texts."""
    found = {method: by_keras(kind, method) for method in METHODS}
    assert {"eos", "length"} <= {reason for _, reasons in found.values() for reason in reasons}
    assert len({str(tokens) for tokens, _ in found.values()}) >= len(METHODS) - 1  # prompt lookup is greedy
    assert len(np.unique(np.concatenate(found["samples"][0]))) > 15


LETTERS = '▁[]{}":, 0123456789abcdefghijklmnopqrstuvwxyz'
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 18}}, "required": ["age"]}


@pytest.mark.parametrize(
    ("name", "kind", "method"),
    [
        ("keras", "t5", "samples"),
        ("litert", "gpt2", "beams"),
        ("onnx", "gpt2", "beams"),
        ("saved-model", "gpt2", "greedy"),
    ],
)
def test_constrained_texts(name: str, kind: str, method: str) -> None:
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((letter, -1.0) for letter in LETTERS)]
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=2))
    backend.decoder = tokenizers.decoders.Metaspace()
    tokenizer = Tokenizer(backend, special_tokens={"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})
    base = GenerationConfig(max_new_tokens=24, eos_token_id=1, decoder_start_token_id=0)
    generation = request({"json_schema": SCHEMA, **METHODS[method]}, base, tokenizer, None)  # type: ignore[arg-type]
    for tokens in new_tokens(generation.generate(engine(name, kind), *prompts())):
        assert json.loads(tokenizer.decode(tokens, skip_special_tokens=True))["age"] >= 18

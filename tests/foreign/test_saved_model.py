"""SavedModels give the answers of Keras with TensorFlow alone; TensorFlow Serving runs the same signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer import bundle
from kerasformer.basics.tasks import PRETRAINING
from kerasformer.export.reference_texts import PROMPTS, READING
from tests.code_blocks import blocks
from tests.core.export.text_models import OTHERS, ROWS
from tests.extras import need
from tests.foreign.cases import DECODERS, EMBEDDERS, ENCODER_DECODERS, Case, cases, embedder, tiny
from tests.foreign.environments import started

TARGET = "saved-model"
TOLERANCE = 1e-4
"""Relative to the largest number: float32 sums are computed in another order."""
TOKENS = 16
GREEDY = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}

ENCODERS = [
    Case(row)
    for row in (*ROWS.values(), *OTHERS.values())
    if "generation" not in row.task and row.task not in PRETRAINING
]
GENERATORS = [
    tiny("gpt2", "text-generation"),
    tiny("t5", "text2text-generation"),
    tiny("t5", "text2text-generation", as_task="summarization"),
    tiny("bart", "text2text-generation"),
]

Ask = Callable[[dict[str, Any]], Any]


@contextmanager
def tensorflow(text: bool = False) -> Iterator[Ask]:
    """Starts a process with TensorFlow, and optionally with TF Text."""
    with started(TARGET, "saved_model.py") as ask:
        assert ask({"tensorflow_text": text}) == "ready"
        yield ask


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """One process for all bundles."""
    with tensorflow() as answer:
        yield answer


@pytest.fixture(scope="module")
def exported(tmp_path_factory: Any) -> Callable[[Case], tuple[Any, Path]]:
    """Returns a function from the case of a generating model to the model and its bundle, exported once."""
    cache: dict[str, tuple[Any, Path]] = {}

    def make(case: Case) -> tuple[Any, Path]:
        if str(case) not in cache:
            model = case.model()
            cache[str(case)] = model, case.export(tmp_path_factory.mktemp("bundle") / "out", model, target=TARGET)
        return cache[str(case)]

    return make


def call(ask: Ask, folder: Path, signature: str, **inputs: Any) -> Any:
    """Calls a signature and returns its outputs."""
    plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
    answer = ask({"folder": str(folder), "signature": signature, "inputs": plain})
    assert "refused" not in answer, answer["refused"]
    return answer


def assert_near(received: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert np.shape(received) == expected.shape
    assert np.abs(np.asarray(received) - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.foreign("saved-model")
@cases(
    *ENCODERS,
    *(embedder(name) for name in EMBEDDERS if f"{name}-sentence-similarity" not in {**ROWS, **OTHERS}),
)
def test_answers_are_those_of_keras(case, ask):
    model, folder = case.shared_model(), case.shared(TARGET)
    encoded = model.tokenizer(list(READING[:3]))
    arrays = {**encoded.inputs, "token_type_ids": encoded.token_type_ids, "langs": encoded.input_ids % 4}
    inputs = {name: arrays[name] for name in model.input_names}
    received = call(ask, folder, "serving_default", **inputs)
    expected = model.named(model(inputs, training=False))
    assert set(received) == set(expected)
    for name, value in expected.items():
        assert_near(received[name], value)
    if case.model_type in ("bert", "gpt2", "t5"):  # the program is the same for all models of a task
        assert np.ndim(ask({"code": code_of(folder)})) > 0


def code_of(folder: Path) -> str:
    """Returns the TensorFlow program of the card, with its result assigned to `answer`."""
    (code,) = [code for code in blocks(folder / "README.md", "python") if "tf.saved_model.load" in code]
    code = code.replace("path/to/this/folder", str(folder))
    before, after = code.rsplit("print(", 1)
    return f"{before}answer = ({after}"


@pytest.mark.foreign("saved-model")
@cases(*GENERATORS, *DECODERS, *ENCODER_DECODERS)
def test_texts_are_those_of_keras(case, ask, exported):
    model, folder = exported(case)
    side = "right" if model.is_encoder_decoder else "left"
    encoded = model.tokenizer(list(PROMPTS[:10]), padding_side=side)
    ids, mask = encoded.input_ids, encoded.attention_mask
    assert mask.min() == 0
    expected = model.generate(ids, attention_mask=mask, max_new_tokens=TOKENS, jit_compile=False, **GREEDY)
    prompts = {"input_ids": ids, "attention_mask": mask, "max_new_tokens": TOKENS}
    assert rows(call(ask, folder, "generate", **prompts)) == [row.tolist() for row in expected]
    assert len({tuple(row) for row in expected}) > 1
    sampling = {"temperature": 1.0, "seed": 1}
    assert rows(call(ask, folder, "sample", **prompts, **sampling, top_k=1)) == [row.tolist() for row in expected]
    sampled = rows(call(ask, folder, "sample", **prompts, **sampling, top_k=0))
    assert sampled == rows(call(ask, folder, "sample", **prompts, **sampling, top_k=0))
    assert sampled != rows(call(ask, folder, "sample", **prompts, **{**sampling, "seed": 2}, top_k=0))
    if case.model_type in ("gpt2", "t5"):
        assert np.ndim(ask({"code": code_of(folder)})) == 2


def rows(answer: dict[str, Any]) -> list[list[int]]:
    """Returns the new tokens of each text."""
    return [row[:length] for row, length in zip(answer["output_ids"], answer["lengths"], strict=True)]


@pytest.mark.foreign("saved-model")
@cases(tiny("gpt2", "text-generation"))
def test_invalid_inputs_are_errors(case, ask, exported):
    model, folder = exported(case)
    size, capacity = model.config.vocab_size, bundle.read(folder).capacity
    prompt = {"input_ids": [[5, 6]], "attention_mask": [[1, 1]], "max_new_tokens": 4}
    assert len(rows(call(ask, folder, "generate", **prompt))[0]) == 4
    for changes, message in (
        ({"input_ids": [[5, size]]}, f"ids must be between 0 and {size - 1}"),
        ({"input_ids": [[-1, 5]]}, "ids must be between 0"),
        ({"attention_mask": [[1, 0]]}, "padded on the left"),
        ({"attention_mask": [[1]]}, "a mask must have a column for every token"),
        ({"max_new_tokens": capacity - 1}, f"at most {capacity} tokens"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
    ):
        answer = ask({"folder": str(folder), "signature": "generate", "inputs": {**prompt, **changes}})
        assert message in answer["refused"], changes
    cold = {**prompt, "temperature": 0.0, "top_k": 0, "seed": 1}
    assert (
        "temperature must be above 0" in ask({"folder": str(folder), "signature": "sample", "inputs": cold})["refused"]
    )


@pytest.mark.grid
@pytest.mark.foreign("saved-model")
@cases(tiny("bert", "text-classification"))
def test_texts_as_inputs(case, tmp_path):
    need("tensorflow_text")
    model = case.model()
    folder = case.export(tmp_path / "out", model, target=TARGET, tokenizer="in-graph")
    assert set(bundle.read(folder).signatures) == {"serving_default", "tokens"}
    texts = list(READING[:3])
    inputs = model.tokenizer(texts).inputs
    expected = model.named(model(inputs, training=False))["logits"]
    with tensorflow(text=True) as ask:
        assert_near(call(ask, folder, "serving_default", text=texts)["logits"], expected)
        assert_near(call(ask, folder, "tokens", **inputs)["logits"], expected)
        assert np.ndim(ask({"code": code_of(folder)})) > 0

"""Caches that are little longer than a sliding window, in Keras and LiteRT, against Keras without any cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer.engines import Step
from kerasformer.errors import InputError
from kerasformer.export.formats.tflite.signatures import DecoderSignatures, tflite_functions
from kerasformer.models.keras_engine import KerasStep
from tests.core.export import tflite_bundles
from tests.core.export.described import GROUPS, LLAMA, DescribedDecoder
from tests.grids import grid

pytestmark = pytest.mark.grid

CAPACITY, PROMPTS, END = 96, (41, 17, 30), 88
WIDTH, MARGIN = max(PROMPTS), 16
SIGNATURES = DecoderSignatures((MARGIN,), cache_lengths=(48, CAPACITY), batch_sizes=(2,), verify_lengths=(4,))
LAYERS: dict[str, tuple[tuple[dict[str, Any], ...], bool]] = {
    "windows": (({**LLAMA, "window": 3}, {**LLAMA, "window": 5}), False),
    "windows and whole texts": (({**LLAMA, "window": 4}, LLAMA, {**GROUPS, "window": 4, "softcap": 1.5}), False),
    "windows and linear biases": (({**GROUPS, "window": 6},), True),
}


@cache
def model(layers: str) -> DescribedDecoder:
    return DescribedDecoder(*LAYERS[layers])


def keras_step(layers: str) -> KerasStep:
    return KerasStep(model(layers), CAPACITY, jit_compile=False)


def litert_step(folder: Path, layers: str) -> Step:
    from kerasformer.engines.litert import LiteRTStep

    functions = tflite_functions(model(layers), CAPACITY, None, (), SIGNATURES)
    manifest = tflite_bundles.write(folder, model(layers), functions, "none")
    return LiteRTStep(folder, replace(manifest, capacity=CAPACITY), num_threads=1)


@dataclass(frozen=True)
class Subject:
    """An engine at work."""

    step: Any
    layers: str


SUBJECTS = [(engine, kind) for engine in ("keras", "litert") for kind in LAYERS]


@pytest.fixture(
    scope="module", params=grid(SUBJECTS, always=lambda subject: subject != ("litert", "windows")), ids="-".join
)
def subject(request: Any, tmp_path_factory: Any) -> Subject:
    name, kind = request.param
    folder = tmp_path_factory.mktemp("bundle")
    return Subject(keras_step(kind) if name == "keras" else litert_step(folder, kind), kind)


def texts(length: int) -> tuple[np.ndarray, np.ndarray]:
    """A text for each of the prompts, whose padding comes first."""
    ids = np.random.default_rng(5).integers(2, 61, (len(PROMPTS), length)).astype("int32")
    mask = (np.arange(length) >= WIDTH - np.array(PROMPTS)[:, None]).astype("int32")
    return ids, mask


def assert_near(received: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(received - expected).max() < 1e-5 * np.abs(expected).max()


def test_only_layers_with_a_window_have_a_short_cache(subject: Subject) -> None:
    windows = [layer.get("window") for layer in LAYERS[subject.layers][0]]
    if isinstance(subject.step, KerasStep):
        lengths = [key.shape[2] for key, _ in subject.step.start(*texts(WIDTH)).caches]
        whole = CAPACITY + 32  # a bucket for the padding of prompts
    else:
        decode = subject.step._all["decode"]
        keys = [decode.inputs[f"kv_cache_k_{layer}"] for layer in range(len(windows))]
        lengths, whole = [key.shape[2] for key in keys], CAPACITY
        assert [key.margin for key in keys] == [None if window is None else MARGIN for window in windows]
    assert lengths == [whole if window is None else window + MARGIN - 1 for window in windows]


def test_texts_of_many_windows_with_guesses_that_are_taken_back(subject: Subject) -> None:
    """Prompts of several prefills, the last one padded; steps of one token and of four, of which some are wrong."""
    ids, mask = texts(END)
    want = model(subject.layers).answers(ids, mask)
    state, place, turn = subject.step.start(ids[:, :WIDTH], mask[:, :WIDTH]), WIDTH - 1, 0
    while place + 4 <= END:
        count = (1, 4, 4)[turn % 3]
        right = 1 + turn % count
        guesses = ids[:, place : place + count].copy()
        guesses[:, right:] = (guesses[:, right:] + 1) % 61
        logits, state = subject.step.step(guesses, state)
        state = subject.step.rewind(state, count - right)
        assert_near(logits[:, :right], want[:, place : place + right])
        place, turn = place + right, turn + 1
        if turn % 4 == 0:
            rows = np.array([[2, 0, 1], [1, 1, 0]][turn % 8 == 0])
            state, ids, want = subject.step.reorder(state, rows), ids[rows], want[rows]


def test_as_many_tokens_as_promised_are_taken_back_one_by_one(subject: Subject) -> None:
    """And one more is refused."""
    ids, mask = texts(60)
    want = model(subject.layers).answers(ids, mask)
    state = subject.step.start(ids[:, :WIDTH], mask[:, :WIDTH])
    for place in range(WIDTH - 1, WIDTH + 4):
        _, state = subject.step.step(ids[:, place : place + 1], state)
        other = subject.step.fork(state)
        for _ in range(MARGIN):
            _, other = subject.step.step(np.full((3, 1), 7, "int32"), other)
        with pytest.raises(InputError, match=f"From 0 to {MARGIN} tokens of earlier steps can be discarded"):
            subject.step.rewind(other, MARGIN + 1)
        other = subject.step.rewind(other, MARGIN)
        for after in range(place + 1, place + 4):
            logits, other = subject.step.step(ids[:, after : after + 1], other)
            assert_near(logits[:, 0], want[:, after])


def test_a_text_is_resumed_while_its_window_is_known(subject: Subject) -> None:
    """Tokens that were generated can be replaced; more than those are refused, and the state stays usable."""
    ids, mask = (array[:1] for array in texts(END))
    other = ids.copy()
    other[:, 43:] = (other[:, 43:] + 1) % 61
    want = model(subject.layers).answers(other, mask)
    state = subject.step.start(ids[:, :WIDTH], mask[:, :WIDTH])
    for place in range(WIDTH - 1, 47):
        _, state = subject.step.step(ids[:, place : place + 1], state)
    with pytest.raises(InputError, match="since some layers keep only the last ones"):
        subject.step.resume(state, 20, other[0, 20:60])
    state = subject.step.resume(state, 43, other[0, 43:80])
    for place in range(80, END):
        logits, state = subject.step.step(other[:, place : place + 1], state)
        assert_near(logits[:, 0], want[:, place])

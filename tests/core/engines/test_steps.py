"""The same rules for every engine: steps of several tokens, and operations on the states after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer import bundle
from kerasformer.bundle import Manifest, recipes
from kerasformer.engines import Step
from kerasformer.engines.litert import LiteRTStep
from kerasformer.engines.onnx import OnnxStep
from kerasformer.engines.protocols import JointStep, can_rewind
from kerasformer.engines.saved_model import SavedModelStep
from kerasformer.errors import CapacityError, InputError
from kerasformer.export.formats.tflite import signatures as tflite_signatures
from kerasformer.export.quantization.cache_scales import measure_cache_scales
from kerasformer.layers import CacheScales
from kerasformer.models.keras_engine import KerasStep
from tests import shared
from tests.core.export import onnx_bundles, saved_model_bundles, tflite_bundles

CAPACITY, READ, VOCAB = 40, 48, 61
WINDOWS = (12, 24)
SETTINGS: dict[str, dict[str, Any]] = {
    "gpt2": {"max_length": CAPACITY},
    "t5": {"head_dim": 8},  # a head size that fused attention supports
    "lfm2": {"head_dim": 8, "max_length": CAPACITY},  # most layers keep inputs of a convolution
    "qwen3_5_text": {"max_length": CAPACITY},  # most layers have a recurrent state
    "falcon_h1": {"max_length": CAPACITY},  # all layers have keys, values and states
}
SLIDING = {"gpt2": (3, 5), "t5": (None, 4)}
"""Windows of the decoder's layers in the kind of that name with "windows"."""
KINDS = tuple(SLIDING)
"""Architectures with keys and values in every layer, which all tests of generation run."""


@cache
def model(kind: str) -> Any:
    model_type, *windows = kind.split("-")
    made = onnx_bundles.tiny(model_type, **SETTINGS[model_type])
    if windows:
        for layer, window in zip(made.backbone.decoder.layers, SLIDING[model_type], strict=True):
            layer.attention.spec = replace(layer.attention.spec, window=window)
    return made


def keras_step(model_type: str) -> Step:
    return KerasStep(model(model_type), CAPACITY, jit_compile=False)


@cache
def scales(kind: str) -> tuple[CacheScales | None, ...]:
    return measure_cache_scales(model(kind), ["a text"] * 8)


def litert_step(quantize: str, caches: str = "float32") -> Callable[[str], Step]:
    def write(model_type: str, folder: Path) -> Manifest:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recipes, "MIN_QUANTIZED", 64)
            steps = tflite_signatures.DecoderSignatures(cache_lengths=WINDOWS, batch_sizes=(2,))
            of_layers = scales(model_type) if caches == "int8" else None
            functions = tflite_signatures.tflite_functions(
                model(model_type), CAPACITY, READ, (READ,), steps, scales=of_layers
            )
            manifest = tflite_bundles.write(folder, model(model_type), functions, quantize)
            return replace(manifest, capacity=CAPACITY)

    def opened(model_type: str) -> Step:
        name = f"litert-{quantize}-{caches}-{model_type}"
        return LiteRTStep(*written(name, partial(write, model_type)), num_threads=1)

    return opened


def onnx_step(quantize: str, profile: str, caches: str = "float32") -> Callable[[str], Step]:
    def write(model_type: str, folder: Path) -> Manifest:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recipes, "MIN_QUANTIZED", 64)
            of_layers = scales(model_type) if caches == "int8" else None
            manifest = onnx_bundles.write(folder, model(model_type), quantize, profile, scales=of_layers)
        return replace(manifest, capacity=CAPACITY, encoder_capacity=READ)

    def opened(model_type: str) -> Step:
        name = f"onnx-{profile}-{quantize}-{caches}-{model_type}"
        return OnnxStep(*written(name, partial(write, model_type)), num_threads=1)

    return opened


def saved_model_step(model_type: str) -> Step:
    def write(folder: Path) -> Manifest:
        return saved_model_bundles.write(folder, model(model_type), CAPACITY, READ)

    return SavedModelStep(*written(f"saved-model-{model_type}", write))


def written(name: str, write: Callable[[Path], Manifest]) -> tuple[Path, Manifest]:
    """Returns a folder with the files of an engine, written once per session, and its manifest."""
    folder = shared.once(f"steps-{name}", lambda folder: bundle.write(folder, write(folder)))
    return folder, bundle.read(folder, check=False)


@dataclass(frozen=True)
class Row:
    """An engine.

    Attributes:
        opened: Creates the engine for an architecture.
        tolerance: Maximum difference of logits from those of single steps, relative to the largest.
        lengths: Step lengths to test.
        once: Whether a state can be used only once, because its buffers are reused; other engines modify none.
        rolling: Whether its caches of layers with a window are short.
        kinds: Architectures that it runs.
    """

    opened: Callable[[str], Step]
    tolerance: float = 1e-5
    lengths: tuple[int, ...] = (4, 8)
    once: bool = True
    rolling: bool = False
    kinds: tuple[str, ...] = tuple(SETTINGS)


ROWS = {
    "keras": Row(keras_step, once=False, rolling=True),
    "litert": Row(litert_step("none"), rolling=True),
    "litert-int8": Row(litert_step("int8")),
    "onnx": Row(onnx_step("none", "ort"), lengths=(2, 5)),
    "onnx-portable": Row(onnx_step("none", "portable"), lengths=(2, 5), once=False),
    "onnx-int8": Row(onnx_step("int8", "ort"), lengths=(2, 5)),
    # Rounding to int8 amplifies a difference in the last bit to half a level.
    "litert-int8-caches": Row(litert_step("none", "int8"), tolerance=0.01, rolling=True, kinds=("gpt2",)),
    "onnx-int8-caches": Row(onnx_step("none", "ort", "int8"), tolerance=0.01, lengths=(2, 5), kinds=("gpt2",)),
    "onnx-portable-int8-caches": Row(
        onnx_step("none", "portable", "int8"), tolerance=0.01, lengths=(2, 5), once=False, kinds=("gpt2",)
    ),
    "saved-model": Row(saved_model_step, lengths=(2, 5), once=False),
}


@dataclass(frozen=True)
class Subject:
    """An engine under test."""

    row: Row
    step: Step

    @property
    def lengths(self) -> tuple[int, ...]:
        """Step lengths to test; an engine that only checks guesses by several tokens has one without them."""
        return tuple(length for length in self.row.lengths if length in self.step.step_lengths) or (1,)

    def started(self, lengths: list[int], filled: int) -> tuple[Any, np.ndarray]:
        """Returns a state after some tokens, and further tokens `(N, T)` up to the capacity.

        Args:
            lengths: Lengths of the prompts, or of the inputs of an encoder.
            filled: Number of tokens in the longest row of the state.
        """
        count, width = len(lengths), max(lengths)
        ids = np.random.default_rng(filled).integers(2, VOCAB, (count, width), "int32")
        tokens = np.random.default_rng(count).integers(2, VOCAB, (count, CAPACITY), "int32")
        mask = np.zeros_like(ids)
        for row, length in enumerate(lengths):
            mask[row, : length if self.step.is_encoder_decoder else None][-length:] = 1
        before = filled if self.step.is_encoder_decoder else filled - width + 1
        _, state = self.singly(tokens[:, :before], self.step.start(ids * mask, mask))
        return state, tokens[:, before : before + CAPACITY - filled]

    def singly(self, tokens: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """Like `Step.step`, in steps of one token."""
        logits = [np.zeros((len(tokens), 0, VOCAB), np.float32)]
        for column in tokens.T:
            scores, state = self.step.step(column[:, None], state)
            logits.append(scores)
        return np.concatenate(logits, axis=1), state

    def near(self, received: np.ndarray, expected: np.ndarray) -> None:
        assert received.shape == expected.shape and received.dtype == np.float32
        if expected.size:
            assert np.abs(received - expected).max() <= self.row.tolerance * np.abs(expected).max()


SUBJECTS = [
    (name, f"{kind}{windows}")
    for name, row in ROWS.items()
    for kind in row.kinds
    for windows in ("", "-windows")[: 1 + (row.rolling and kind in SLIDING)]
]


BEFORE_A_RELEASE = {
    ("litert-int8", "t5"),
    ("litert-int8", "lfm2"),
    ("litert-int8", "qwen3_5_text"),
    ("onnx-int8", "qwen3_5_text"),
    ("litert-int8", "falcon_h1"),
    ("onnx-int8", "falcon_h1"),
    ("onnx-portable", "falcon_h1"),
    ("saved-model", "falcon_h1"),
    ("litert-int8-caches", "gpt2-windows"),
    ("litert", "t5-windows"),
    ("onnx-int8", "lfm2"),
    ("onnx-portable", "lfm2"),
    ("onnx-portable", "gpt2"),
    ("onnx-int8", "t5"),
    ("onnx-portable-int8-caches", "gpt2"),
    ("keras", "t5-windows"),
    ("saved-model", "lfm2"),
    ("saved-model", "gpt2"),
}
"""Subjects whose engine, recipe and architecture are each in another one of CI."""
ALWAYS = {("keras", "gpt2"), ("keras", "t5"), ("litert", "gpt2"), ("onnx", "gpt2"), ("onnx", "t5")}
"""Subjects without a mark: each kind of step in float32."""


def mark_of(each: tuple[str, str]) -> Any:
    """Returns the mark of an engine and an architecture."""
    return pytest.mark.release if each in BEFORE_A_RELEASE else () if each in ALWAYS else pytest.mark.grid


def grid_of(subjects: Iterable[tuple[str, str]]) -> list[Any]:
    """Returns engines and architectures as parameters, with the mark of those that belong to the full grid."""
    return [pytest.param(*each, marks=mark_of(each)) for each in subjects]


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=mark_of(each)) for each in SUBJECTS],
    ids="-".join,
)
def subject(request: Any) -> Subject:
    name, kind = request.param
    subject = Subject(ROWS[name], ROWS[name].opened(kind))
    assert isinstance(subject.step, Step) and {1, *subject.lengths} <= set(subject.step.step_lengths)
    assert subject.lengths == subject.row.lengths or not can_rewind(subject.step)
    return subject


# Few tokens, numbers near the cache lengths, and so many that the last step fills the cache.
@pytest.mark.parametrize("filled", [2, 9, 18, CAPACITY - 8])
def test_steps_of_several_tokens_equal_single_steps(subject: Subject, filled: int) -> None:
    for count in subject.lengths:
        state, tokens = subject.started([3], filled)
        expected, _ = subject.singly(tokens[:, : count + 2], subject.step.fork(state))
        together, state = subject.step.step(tokens[:, :count], state)
        following, _ = subject.singly(tokens[:, count : count + 2], state)
        subject.near(np.concatenate([together, following], axis=1), expected)


def test_prompts_of_any_length_have_the_state_of_their_tokens(subject: Subject) -> None:
    """Also those that are read in parts, of which the last one may have padding."""
    step = subject.step
    if step.is_encoder_decoder:
        pytest.skip("its decoder reads no prompt")
    ids = np.random.default_rng(7).integers(2, VOCAB, (1, 24), "int32")
    for length in (2, 4, 8, 9, 13, 24):
        start = step.start(ids[:, :1], np.ones((1, 1), np.int32))
        expected, _ = subject.singly(ids[:, :length], start)
        received, _ = step.step(
            ids[:, length - 1 : length], step.start(ids[:, :length], np.ones((1, length), np.int32))
        )
        subject.near(received, expected[:, -1:])


def test_separate_texts_share_steps(subject: Subject) -> None:
    """Texts of different lengths: each has the logits that it has alone, to the bit."""
    step = subject.step
    if not isinstance(step, JointStep):
        pytest.skip("its texts take turns")
    started = [subject.started([length], filled) for length, filled in ((3, 4), (5, 9), (4, 6), (2, 9))]
    expected = [subject.singly(tokens[:, :3], step.fork(state))[0] for state, tokens in started]
    states = [state for state, _ in started]
    for index in range(3):
        texts = [(tokens[:, index : index + 1], state) for (_, tokens), state in zip(started, states, strict=True)]
        results = step.step_together(texts)
        states = [state for _, state in results]
        for (logits, _), alone in zip(results, expected, strict=True):
            np.testing.assert_array_equal(logits, alone[:, index : index + 1])


@pytest.mark.grid
def test_guessed_tokens_are_taken_back(subject: Subject) -> None:
    if not can_rewind(subject.step):
        pytest.skip("it discards no tokens")
    for count in subject.lengths:
        state, tokens = subject.started([7, 3, 1], 9)
        expected, _ = subject.singly(tokens[:, : count + 1], subject.step.fork(state))
        wrong = np.concatenate([tokens[:, :1], (tokens[:, 1:count] + 1) % VOCAB], axis=1)
        first, state = subject.step.step(wrong, state)
        rest, _ = subject.step.step(tokens[:, 1 : count + 1], subject.step.rewind(state, count - 1))
        subject.near(np.concatenate([first[:, :1], rest], axis=1), expected)


def test_only_tokens_of_steps_are_taken_back(subject: Subject) -> None:
    count = subject.lengths[0]
    state, tokens = subject.started([3], 2)
    _, state = subject.step.step(tokens[:, :count], state)
    count += 2 * subject.step.is_encoder_decoder  # all tokens of its decoder were added by steps
    count *= can_rewind(subject.step)
    for wrong in (-1, count + 1):
        with pytest.raises(InputError, match=f"0 .* {count}"):
            subject.step.rewind(state, wrong)


@pytest.mark.parametrize(
    "orders", [[[2, 0, 0]], [[1]], [[1, 2, 0], [0, 2, 2], [2, 1, 1]], [[2, 1, 0], [2, 0]]], ids=str
)
def test_rows_are_reordered(subject: Subject, orders: list[list[int]]) -> None:
    """Repeatedly, after and before a step of several tokens."""
    for count in subject.lengths:
        state, tokens = subject.started([7, 3, 1], 9)
        rows, position = np.arange(3), count
        expected, _ = subject.singly(tokens[:, : 2 * count + len(orders)], subject.step.fork(state))
        _, state = subject.step.step(tokens[:, :count], state)
        for order in orders:
            state, rows = subject.step.reorder(state, np.array(order)), rows[order]
            received, state = subject.step.step(tokens[rows, position : position + 1], state)
            subject.near(received, expected[rows, position : position + 1])
            position += 1
        received, _ = subject.step.step(tokens[rows, position : position + count], state)
        subject.near(received, expected[rows, position:])


@pytest.mark.parametrize("rows", [[0, 2], [-1], [0.5], "0"], ids=str)
def test_rows_that_do_not_exist_raise(subject: Subject, rows: Any) -> None:
    state, _ = subject.started([7, 3], 9)
    with pytest.raises(InputError, match="Rows must be integers from 0 to 1"):
        subject.step.reorder(state, np.array(rows))


def test_both_states_of_a_fork_can_be_continued(subject: Subject) -> None:
    for count in subject.lengths:
        state, tokens = subject.started([7, 3], 9)
        expected, _ = subject.singly(tokens[:, : 2 * count], subject.step.fork(state))
        _, state = subject.step.step(tokens[:, :count], state)
        copy = subject.step.fork(state)
        subject.step.step((tokens[:, count : 2 * count] + 1) % VOCAB, copy)
        received, _ = subject.step.step(tokens[:, count : 2 * count], state)
        subject.near(received, expected[:, count:])


def test_a_state_can_be_used_only_once(subject: Subject) -> None:
    count = subject.lengths[0]
    old, tokens = subject.started([3], 2)
    first, _ = subject.step.step(tokens[:, :count], old)
    if not subject.row.once:
        assert np.array_equal(first, subject.step.step(tokens[:, :count], old)[0])
        return
    for use in (
        lambda: subject.step.step(tokens[:, :count], old),
        lambda: subject.step.fork(old),
        lambda: subject.step.rewind(old, 0),
        lambda: subject.step.reorder(old, np.array([0, 0])),
    ):
        with pytest.raises(InputError, match="used (only )?(once|before)"):
            use()


def test_the_cache_is_never_exceeded(subject: Subject) -> None:
    """A write beyond the end would be shifted back over earlier tokens."""
    for count in subject.lengths:
        state, tokens = subject.started([3], CAPACITY - count + 1)
        with pytest.raises(CapacityError, match=f"at most {CAPACITY} tokens"):
            subject.step.step(np.ones((1, count), "int32"), state)
        received, state = subject.singly(tokens, state)  # the error left the state as it was
        assert received.shape[1] == count - 1
        with pytest.raises(CapacityError, match=f"at most {CAPACITY} tokens"):
            subject.step.step(np.ones((1, 1), "int32"), state)


@pytest.mark.parametrize("wrong", [-1, VOCAB, 2**31, 2**32 + 5, 2**63 + 5, 5.5, "5"], ids=str)
def test_ids_outside_the_vocabulary_raise(subject: Subject, wrong: Any) -> None:
    """Runtimes do not check them: after a cast they would be other ids, or indices outside the embedding table."""
    ids = np.array([[7, wrong], [8, 9]])
    with pytest.raises(InputError, match=r"inputs must be (from 0 to 60|integers)"):
        subject.step.start(ids, np.ones((2, 2), "int32"))


def test_ids_of_padding_are_ignored(subject: Subject) -> None:
    mask = np.array([[1, 1, 0]] if subject.step.is_encoder_decoder else [[0, 1, 1]])
    answers = [
        subject.step.step(np.full((1, 1), 7), subject.step.start(np.where(mask == 1, 5, padding), mask))[0]
        for padding in (0, -100, 2**40)
    ]
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


@pytest.mark.parametrize(
    ("ids", "mask"),
    [
        ([[1, 2], [3]], [[1, 1], [1, 1]]),
        ([[1, 2]], [[1, 2]]),
        ([[1, 2]], [[0, 0]]),
        ([[1, 2]], [[1]]),
        (None, [[1]]),
        (np.zeros((0, 3), int), np.zeros((0, 3), int)),
    ],
    ids=str,
)
def test_prompts_that_are_invalid_raise(subject: Subject, ids: Any, mask: Any) -> None:
    with pytest.raises(InputError, match="must|needs at least one token"):
        subject.step.start(ids, mask)


def test_an_unsupported_step_length_raises(subject: Subject) -> None:
    state, tokens = subject.started([3], 2)
    for count in {0, 3} - set(subject.step.step_lengths):
        with pytest.raises(InputError, match="step_lengths|at least 1"):
            subject.step.step(tokens[:, :count], state)


def test_tokens_of_another_shape_raise(subject: Subject) -> None:
    state, _ = subject.started([3, 2], 4)
    for tokens in (np.ones((3, 1), int), np.ones((2,), int), np.ones((2, 0), int), np.ones((2, 1))):
        with pytest.raises(InputError):
            subject.step.step(tokens, state)


def test_a_prompt_beyond_the_capacity_raises(subject: Subject) -> None:
    if isinstance(subject.step, KerasStep) and subject.step.is_encoder_decoder:
        pytest.skip("its encoder reads texts of any length")
    with pytest.raises(CapacityError, match="Received: 49"):
        subject.step.start(np.ones((1, 49), int), np.ones((1, 49), int))

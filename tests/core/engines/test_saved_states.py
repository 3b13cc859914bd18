"""States that are saved, written to files and restored, with the same rules for every engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer import bundle
from kerasformer.engines import SavedState, can_rewind
from kerasformer.engines.onnx import OnnxStep
from kerasformer.errors import CapacityError, InputError, SourceError
from kerasformer.models.keras_engine import KerasStep
from tests.core.engines.test_steps import CAPACITY, SETTINGS, VOCAB, Subject, model, subject
from tests.core.export import onnx_bundles

__all__ = ["subject"]


@pytest.fixture
def saved() -> SavedState:
    """A state as an engine of a single text saves it."""
    arrays = {"key": np.arange(30, dtype=np.float32).reshape(1, 2, 5, 3), "steps": np.array([4])}
    return SavedState.copy_of("0123456789abcdef", arrays)


@pytest.mark.parametrize("lengths", [[3], [7, 3, 1]], ids=str)
def test_a_restored_state_continues_bit_for_bit(subject: Subject, lengths: list[int], tmp_path: Path) -> None:
    step = subject.step
    for count in subject.lengths:
        state, tokens = subject.started(lengths, 9)
        _, state = step.step(tokens[:, :count], state)
        if len(lengths) > 1:
            state = step.reorder(state, np.array([2, 0, 0]))
        state = step.rewind(state, 1) if can_rewind(step) else state
        copy = step.save(state)
        after, state = step.step(tokens[:, count : 2 * count], state)
        last, _ = step.step(tokens[:, :1], state)  # changes the buffers from which the copy was made
        for kept in (copy, SavedState.read(copy.write(tmp_path / "state"))):
            restored = step.restore(kept)
            received, restored = step.step(tokens[:, count : 2 * count], restored)
            np.testing.assert_array_equal(received, after)
            np.testing.assert_array_equal(step.step(tokens[:, :1], restored)[0], last)
        if not can_rewind(step):
            continue
        # Discarded tokens are those of the state that was saved.
        rewound, _ = step.step(tokens[:, :1], step.rewind(step.restore(copy), count - 1))
        expected, _ = step.step(tokens[:, :1], step.rewind(step.fork(step.restore(copy)), count - 1))
        np.testing.assert_array_equal(rewound, expected)


def test_a_state_without_tokens_and_a_full_one(subject: Subject) -> None:
    step = subject.step
    for filled in (2, CAPACITY - 1):
        state, tokens = subject.started([1] if filled == 2 else [3], filled)
        copy = step.save(state)
        expected, _ = step.step(tokens[:, :1], state)
        np.testing.assert_array_equal(step.step(tokens[:, :1], step.restore(copy))[0], expected)
    assert copy.num_bytes >= step.save(subject.started([3], 2)[0]).num_bytes


def test_a_restored_text_is_resumed(subject: Subject) -> None:
    """As a prefix cache does, which continues a text from any of its tokens."""
    step = subject.step
    if step.is_encoder_decoder:
        pytest.skip("prefixes are those of decoders")
    ids = np.random.default_rng(5).integers(2, VOCAB, (1, 20), "int32")
    first = step.start(ids[:, :12], np.ones((1, 12), np.int32))
    copy = step.save(step.step(ids[:, 11:12], first)[1] if can_rewind(step) else first)
    expected, _ = step.step(ids[:, -1:], step.resume(step.restore(copy), 11, ids[0, 11:-1]))
    received, _ = step.step(ids[:, -1:], step.resume(step.restore(copy), 11, ids[0, 11:-1]))
    np.testing.assert_array_equal(received, expected)
    subject.near(received, step.step(ids[:, -1:], step.start(ids, np.ones((1, 20), np.int32)))[0])


def test_another_model_is_refused(subject: Subject) -> None:
    copy = subject.step.save(subject.started([3], 9)[0])
    for other in (replace(copy, model="0" * 64), replace(copy, model="")):
        with pytest.raises(InputError, match="belongs to another model or adapter.*Read the text again"):
            subject.step.restore(other)


def test_states_with_other_contents_are_refused(subject: Subject) -> None:
    copy = subject.step.save(subject.started([3], 9)[0])
    for name, array in copy.arrays.items():
        for wrong in (array[..., :0], array.astype("float16"), array - 10**6 if array.dtype == np.int64 else None):
            arrays = {key: value for key, value in copy.arrays.items() if key != name}
            arrays |= {} if wrong is None else {name: wrong}
            with pytest.raises((InputError, CapacityError), match="Expected|capacity|holds"):
                subject.step.restore(replace(copy, arrays=arrays))


def test_weights_that_were_changed() -> None:
    made = onnx_bundles.tiny("gpt2", **SETTINGS["gpt2"])
    step = KerasStep(made, CAPACITY, jit_compile=False)
    copy = step.save(step.start(np.full((1, 4), 7), np.ones((1, 4), int)))
    table = made.trainable_variables[0]
    before = np.array(table)
    assert step.identity() == KerasStep(made, 20, jit_compile=False).identity()
    for change in (before[::-1], np.where(np.arange(before.shape[1]) == 5, before + 1e-3, before)):
        table.assign(change)
        with pytest.raises(InputError, match="before its weights were changed"):
            step.restore(copy)
    table.assign(before)
    step.restore(copy)


def test_another_capacity() -> None:
    large, small = (KerasStep(model("gpt2"), capacity, jit_compile=False) for capacity in (CAPACITY, 5))
    ids = np.array([[7, 8, 9, 10, 11, 12, 13]])
    long, short = (large.save(large.start(ids[:, :n], np.ones((1, n), int))) for n in (7, 4))
    expected, _ = small.step(ids[:, 3:4], small.start(ids[:, :4], np.ones((1, 4), int)))
    received, _ = small.step(ids[:, 3:4], small.restore(short))
    assert np.abs(received - expected).max() <= 1e-5 * np.abs(expected).max()  # sums over more empty slots
    with pytest.raises(CapacityError, match="at most 5 tokens. Received: 6"):
        small.restore(long)


def test_a_bundle_that_was_exported_again(tmp_path: Path) -> None:
    """The model of an open bundle stays as it was; a new opening has the new one."""
    steps = []
    for folder, settings in (("a", {}), ("b", {}), ("c", {"num_layers": 1})):
        (tmp_path / folder).mkdir()
        made = onnx_bundles.tiny("gpt2", **SETTINGS["gpt2"], **settings)
        manifest = replace(onnx_bundles.write(tmp_path / folder, made, "none", "ort"), capacity=CAPACITY)
        bundle.write(tmp_path / folder, replace(manifest, files=bundle.checksums(tmp_path / folder)))
        steps.append(OnnxStep(tmp_path / folder, bundle.read(tmp_path / folder)))
    same, again, other = steps
    copy = same.save(same.start(np.full((1, 4), 7), np.ones((1, 4), int)))
    assert same.identity() == again.identity()
    again.restore(copy)
    with pytest.raises(InputError, match="its bundle was exported again"):
        other.restore(copy)


def test_files(saved: SavedState, tmp_path: Path) -> None:
    file = tmp_path / "state"
    whole = replace(saved, ids=np.array([3, 4, 5], np.int32), note='{"role": "ü"}')
    for _ in range(2):  # an existing file is replaced
        assert whole.write(file) == file
    read = SavedState.read(file)
    assert (read.model, read.note) == (whole.model, whole.note)
    np.testing.assert_array_equal(read.ids, [3, 4, 5])
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(read.arrays[name], array)
        assert read.arrays[name].dtype == array.dtype and not read.arrays[name].flags.writeable
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_files_are_those_of_safetensors(saved: SavedState, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    loaded = load_file(saved.write(tmp_path / "state"))
    assert loaded.keys() == saved.arrays.keys()
    np.testing.assert_array_equal(loaded["key"], saved.arrays["key"])


def test_files_with_bfloat16(tmp_path: Path) -> None:
    import ml_dtypes

    array = np.arange(5).astype(ml_dtypes.bfloat16)
    read = SavedState.read(SavedState.copy_of("m", {"key": array}).write(tmp_path / "state"))
    assert read.arrays["key"].dtype == array.dtype
    np.testing.assert_array_equal(read.arrays["key"], array)


def test_truncated_and_changed_files(saved: SavedState, tmp_path: Path) -> None:
    file = saved.write(tmp_path / "state")
    content = file.read_bytes()
    for length in range(0, len(content), 3):
        file.write_bytes(content[:length])
        with pytest.raises(SourceError, match="not a complete saved state|not valid JSON|cannot be read"):
            SavedState.read(file)
    for position in range(0, len(content), 2):
        changed = bytearray(content)
        changed[position] ^= 5
        file.write_bytes(changed)
        try:
            SavedState.read(file)
        except SourceError:
            continue
        assert content[position : position + 1].isspace()  # spaces of the JSON text mean nothing
    file.write_bytes(content + b"more")
    with pytest.raises(SourceError, match="not a complete saved state"):
        SavedState.read(file)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [10**6, 10**6, 10**6, 10**6]},
        {"shape": [-1, -30]},
        {"shape": "x"},
        {"dtype": "F64"},
        {"data_offsets": [0, 120]},
        {"data_offsets": None},
    ],
    ids=str,
)
def test_headers_that_describe_something_else(saved: SavedState, tmp_path: Path, change: dict[str, Any]) -> None:
    """Nothing is allocated for a size that only the header has."""
    file = saved.write(tmp_path / "state")
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["key"] |= change
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(SourceError, match="not a complete saved state"):
        SavedState.read(file)


def test_files_that_cannot_be_read_or_written(saved: SavedState, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="There is no saved state"):
        SavedState.read(tmp_path / "missing")
    with pytest.raises(SourceError, match="cannot be read"):
        SavedState.read(tmp_path)
    with pytest.raises(SourceError, match="cannot be written"):
        saved.write(tmp_path / "missing" / "state")
    with pytest.raises(SourceError, match="at most 100 bytes"):
        SavedState.read(saved.write(tmp_path / "state"), max_bytes=100)
    (tmp_path / "other").write_bytes(b"\x00" * 100)
    with pytest.raises(SourceError, match="not a complete saved state"):
        SavedState.read(tmp_path / "other")

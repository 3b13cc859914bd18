"""Bundles on LiteRT compared with their Keras models, and the rules of the protocols."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from kerasformer.bundle import Manifest
from kerasformer.engines import weight_cache
from kerasformer.engines.litert import LiteRTForward, LiteRTStep
from kerasformer.engines.litert import engine as litert_engine
from kerasformer.engines.litert.engine import CompiledEngine, InterpreterEngine, open_engine
from kerasformer.errors import BundleError, CapacityError, InputError
from tests.core.export import tflite_bundles
from tests.core.export.small_models import CAPACITY, TinyEncoder, functions_of, tiny_decoder, tiny_seq2seq


def tokens(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 190, shape).astype("int32")


class Bundles:
    """A model of each kind with its bundle."""

    def __init__(self, folder: Path) -> None:
        self.encoder, self.decoder, self.seq2seq = TinyEncoder(), tiny_decoder(), tiny_seq2seq()
        self.paths = {name: folder / name for name in ("encoder", "decoder", "seq2seq")}
        self.manifests: dict[str, Manifest] = {
            "encoder": self._write("encoder", self.encoder, [self.encoder.function(n) for n in (8, 16)]),
            "decoder": self._write("decoder", self.decoder, functions_of(self.decoder, 4, 16)),
            "seq2seq": self._write("seq2seq", self.seq2seq, functions_of(self.seq2seq, 8, 24)),
        }

    def _write(self, name: str, model: Any, functions: Any) -> Manifest:
        return tflite_bundles.write(self.paths[name], model, functions, "none", pad=1)

    def step(self, name: str) -> LiteRTStep:
        return LiteRTStep(self.paths[name], self.manifests[name], num_threads=1)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: Any) -> Bundles:
    return Bundles(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="module")
def step(bundles: Bundles) -> LiteRTStep:
    return bundles.step("decoder")


@pytest.fixture(scope="module")
def forward(bundles: Bundles) -> LiteRTForward:
    return LiteRTForward(bundles.paths["encoder"], bundles.manifests["encoder"], num_threads=1)


def follow(engine: LiteRTStep, state: Any, ids: np.ndarray) -> tuple[np.ndarray, Any]:
    """Returns the logits `(B, T, V)` of steps with these tokens `(B, T)`."""
    rows = []
    for column in ids.T:
        logits, state = engine.step(column[:, None], state)
        rows.append(logits[:, 0])
    return np.stack(rows, 1), state


def prompt(*rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns prompts of different lengths, padded on the left."""
    width = max(map(len, rows))
    ids, mask = np.zeros((len(rows), width), "int32"), np.zeros((len(rows), width), "int32")
    for index, row in enumerate(rows):
        ids[index, width - len(row) :] = row
        mask[index, width - len(row) :] = 1
    return ids, mask


def near(received: np.ndarray, expected: Any, tolerance: float = 1e-4) -> bool:
    expected = np.asarray(expected)
    return bool(np.abs(received - expected).max() <= tolerance * np.abs(expected).max())


# By steps only, by one padded run, by several runs, by steps at the end of the cache, and up to the full capacity.
@pytest.mark.parametrize("length", [1, 2, 5, 17, 26, 46, 48])
def test_decoder_equals_keras_for_any_length_of_prompt(bundles: Bundles, step: LiteRTStep, length: int) -> None:
    ids = tokens(length, 1, CAPACITY)
    state = step.start(ids[:, :length], np.ones((1, length), "int32"))
    received, _ = follow(step, state, ids[:, length - 1 :])
    assert near(received, np.asarray(bundles.decoder({"input_ids": ids}))[:, length - 1 :])


def test_updating_in_place_equals_separate_buffers(bundles: Bundles) -> None:
    engine = open_engine(bundles.paths["decoder"] / "model.tflite", 1)
    assert isinstance(engine, CompiledEngine)
    names = [f"kv_cache_{kind}_{i}" for i in range(2) for kind in "kv"]
    held = {name: engine.hold("decode", name) for name in names}
    separate = {name: held[name].read() for name in names}
    for position, token in enumerate(tokens(5, 40)):
        inputs = {"tokens": token.reshape(1, 1), "input_pos": np.array([position], "int32")}
        in_place = engine.run("decode", inputs, held)["logits"]
        results = engine.run("decode", {**inputs, **separate})
        separate = {name: results[name] for name in names}
        assert np.array_equal(in_place, results["logits"])
    assert all(np.array_equal(held[n].read(), separate[n]) for n in names)


# LiteRT refuses one when the interpreter prepares it, the other when the compiled model runs it.
@pytest.mark.parametrize(("operator", "matrix"), [("FULLY_CONNECTED", 1), ("GATHER", 0)])
def test_an_operator_that_does_not_match_its_matrix_is_an_error_of_the_bundle(
    bundles: Bundles, operator: str, matrix: int, tmp_path: Path
) -> None:
    content = (bundles.paths["decoder"] / "model.tflite").read_bytes()
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    codes = [code.builtinCode for code in model.operatorCodes]
    for graph in model.subgraphs:
        code = getattr(schema.BuiltinOperator, operator)
        inputs = next(op.inputs for op in graph.operators if codes[op.opcodeIndex] == code)
        rows, columns = graph.tensors[inputs[matrix]].shape
        graph.tensors[inputs[matrix]].shape = [rows * columns, 1]  # as many values, so that the file is still valid
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    path = tmp_path / "model.tflite"
    path.write_bytes(builder.Output())
    engine = open_engine(path, 1)
    infos = bundles.manifests["decoder"].signatures["decode"].inputs
    with pytest.raises(BundleError, match="cannot run the signature 'decode'.*model.tflite"):
        engine.run("decode", {name: np.zeros(info.shape, info.dtype) for name, info in infos.items()})


def test_the_interpreter_gives_equal_results(bundles: Bundles, step: LiteRTStep, monkeypatch: Any) -> None:
    monkeypatch.setattr(CompiledEngine, "__init__", lambda *_: (_ for _ in ()).throw(RuntimeError("not here")))
    other = bundles.step("decoder")
    assert isinstance(other._engine, InterpreterEngine)
    results = []
    for engine in (step, other):
        state = engine.start(*prompt(tokens(1, 3), tokens(2, 11)))
        _, state = follow(engine, state, tokens(6, 2, 3))
        results.append(follow(engine, engine.reorder(state, np.array([1, 1, 0])), tokens(7, 3, 3))[0])
    assert near(results[0], results[1], 1e-6)


COPIES = {(0, 1, 2, 3): 0, (3, 2, 1, 0): 0, (0, 0, 1, 2): 1, (3, 3, 1, 1): 2, (2, 2, 2, 2): 3, (3, 0): 0}
"""Orders of rows, and the number of rows to copy: all children of a row except the first."""


@pytest.mark.parametrize("rows", COPIES, ids=str)
def test_reorder_copies_the_valid_slots_of_duplicates(
    bundles: Bundles, step: LiteRTStep, rows: tuple[int, ...], monkeypatch: Any
) -> None:
    copied: list[int] = []
    copy = step._engine.copy
    monkeypatch.setattr(step._engine, "copy", lambda *given: (copied.append(given[2]), copy(*given)))
    _, state = follow(step, step.start(*prompt(*[tokens(i, 5) for i in range(4)])), tokens(8, 4, 3))
    step.reorder(state, np.array(rows))
    assert copied == [4 + 3] * (4 * COPIES[rows])  # keys and values of two layers


def test_the_encoded_text_is_shared_by_its_rows(bundles: Bundles) -> None:
    engine = bundles.step("seq2seq")
    ids = tokens(1, 2, 6)
    state = engine.start(ids, np.ones_like(ids))
    cross = [row.cross for row in state.rows or []]
    for rows in ([0, 0, 1, 1], [1, 1, 3, 2]):
        state = engine.reorder(state, np.array(rows))
        assert [row.cross for row in state.rows or []] == [cross[0], cross[0], cross[1], cross[1]]
        assert all(row.cross[name] is cross[0][name] for row in (state.rows or [])[:2] for name in cross[0])


@pytest.mark.parametrize(("length", "num_short"), [(5, 8), (14, 0)])
def test_a_step_with_short_caches_attends_to_all_of_the_encoded_text(
    bundles: Bundles, monkeypatch: Any, length: int, num_short: int
) -> None:
    """The steps of 8 slots are only named here, and run as those of all slots."""
    manifest, names = bundles.manifests["seq2seq"], []
    short = replace(manifest.signatures["decode"], cache_length=8)
    manifest = replace(manifest, signatures={**manifest.signatures, "decode_8": short})
    engine = LiteRTStep(bundles.paths["seq2seq"], manifest, num_threads=1)
    state = engine.start(tokens(4, 1, length), np.ones((1, length), "int32"))
    run = engine._engine.run
    monkeypatch.setattr(engine._engine, "run", lambda name, *rest: names.append(name) or run("decode", *rest))
    follow(engine, state, tokens(5, 1, 10))
    assert names == ["decode_8"] * num_short + ["decode"] * (10 - num_short)


def test_forward_on_a_ragged_batch(bundles: Bundles, forward: LiteRTForward) -> None:
    ids, mask = tokens(1, 3, 12), np.ones((3, 12), "int32")
    mask[1, 4:], mask[2, 9:] = 0, 0
    received = forward.run({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
    assert received["logits"].shape == (3, 5) and received["last_hidden_state"].shape == (3, 12, 72)
    assert np.array_equal(received["start_logits"], received["last_hidden_state"][..., 0])
    for row, length in enumerate(mask.sum(1)):
        text = ids[row : row + 1, :length]
        logits, hidden = bundles.encoder(text, np.ones_like(text), np.zeros_like(text))
        assert near(received["logits"][row], logits[0])
        assert near(received["last_hidden_state"][row, :length], hidden[0])
        assert not received["last_hidden_state"][row, length:].any()


def test_forward_adds_default_masks_and_segments(forward: LiteRTForward) -> None:
    ids = tokens(1, 1, 7)
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    assert np.array_equal(forward.run({"input_ids": ids})["logits"], forward.run(given)["logits"])


def test_forward_raises(forward: LiteRTForward) -> None:
    ids = tokens(1, 1, 17)
    with pytest.raises(CapacityError, match="at most 16 tokens. Received: 17"):
        forward.run({"input_ids": ids})
    mask = np.ones_like(ids)
    mask[0, 16:] = 0
    assert forward.run({"input_ids": ids, "attention_mask": mask})["logits"].shape == (1, 5)
    with pytest.raises(InputError, match="does not accept"):
        forward.run({"input_ids": ids, "position_ids": ids})
    with pytest.raises(InputError, match="shape of input_ids"):
        forward.run({"input_ids": ids, "attention_mask": mask[:, :3]})
    with pytest.raises(InputError, match="neither dimension 0"):
        forward.run({"input_ids": ids[:0]})
    for wrong in (-1, 2**32 + 5, 0.5):
        with pytest.raises(InputError, match="input_ids must be"):
            forward.run({"input_ids": [[5, wrong]]})


def test_a_damaged_file(bundles: Bundles, tmp_path: Path) -> None:
    content = (bundles.paths["encoder"] / "model.tflite").read_bytes()
    (tmp_path / "model.tflite").write_bytes(content[: len(content) // 3])
    with pytest.raises(BundleError, match="cannot load"):
        LiteRTForward(tmp_path, bundles.manifests["encoder"])
    with pytest.raises(BundleError, match="a signature of the role 'decode'"):
        LiteRTStep(tmp_path, bundles.manifests["encoder"])


OPEN = """
import sys
from pathlib import Path
from kerasformer.errors import BundleError
from kerasformer.engines.litert.engine import open_engine

for path in sys.argv[1:]:
    print(Path(path).stem, flush=True)
    try:
        open_engine(Path(path), 1)
    except BundleError as error:
        print("refused", flush=True)
"""


def test_invalid_offsets_in_a_file_raise(bundles: Bundles, tmp_path: Path) -> None:
    """Offsets outside the file, with valid checksums; following them would crash the process."""
    whole = (bundles.paths["encoder"] / "model.tflite").read_bytes()
    words, random = np.frombuffer(whole[: len(whole) // 4 * 4], "<u4"), np.random.default_rng(7)
    # Offsets are small numbers; weights, which may have any value, usually are not.
    likely = np.flatnonzero((words > 3) & (words < len(whole)))
    paths = []
    for number in range(60):
        damaged = words.copy()
        damaged[random.choice(likely)] = random.choice([random.integers(2**32), 0x7FFFFFFF, 0xFFFFFF00])
        paths.append(tmp_path / f"{number}.tflite")
        paths[-1].write_bytes(damaged.tobytes() + whole[len(whole) // 4 * 4 :])
    process = subprocess.run([sys.executable, "-c", OPEN, *map(str, paths)], capture_output=True, text=True)  # noqa: S603
    printed = process.stdout.split()
    assert process.returncode == 0, f"the process ended at file {printed[-1]} of {len(paths)}"
    assert printed.count("refused") >= 10


def test_packed_weights_are_cached(bundles: Bundles, tmp_path: Path) -> None:
    ids = tokens(1, 1, 7)
    manifest, folder = bundles.manifests["encoder"], bundles.paths["encoder"]
    results = [
        LiteRTForward(folder, manifest, 1, cache_dir=tmp_path / "cache").run({"input_ids": ids})["logits"]
        for _ in range(2)
    ]
    assert np.array_equal(*results)
    (entry,) = weight_cache.entries(tmp_path / "cache")
    # Damage is detected before LiteRT reads the file.
    content = bytearray(entry.path.read_bytes())
    content[len(content) // 2] ^= 255
    for damaged in (bytes(content), content[:100], b""):
        entry.path.write_bytes(damaged)
        again = LiteRTForward(folder, manifest, 1, cache_dir=tmp_path / "cache").run({"input_ids": ids})["logits"]
        assert np.array_equal(again, results[0])
        assert [each.size for each in weight_cache.entries(tmp_path / "cache")] == [entry.size]


def test_separate_output_caches_for_accelerators(bundles: Bundles, step: LiteRTStep) -> None:
    results = []
    for in_place in (True, False):
        other = bundles.step("decoder")
        other._engine._in_place = in_place  # type: ignore[attr-defined]
        _, state = follow(other, other.start(*prompt(tokens(1, 3), tokens(2, 19))), tokens(6, 2, 5))
        results.append(follow(other, other.reorder(state, np.array([1, 0, 1])), tokens(7, 3, 4))[0])
    assert np.array_equal(*results)


def test_without_access_to_buffer_memory(bundles: Bundles, monkeypatch: Any) -> None:
    results = []
    for _ in range(2):
        other = bundles.step("decoder")
        _, state = follow(other, other.start(*prompt(tokens(1, 3), tokens(2, 19))), tokens(6, 2, 5))
        results.append(follow(other, other.reorder(state, np.array([1, 0, 1])), tokens(7, 3, 4))[0])
        monkeypatch.setattr(litert_engine, "_library", lambda: None)
    assert np.array_equal(*results)


@pytest.mark.parametrize("accelerator", ["gpu", "npu"])
def test_an_absent_accelerator_is_warned_about(bundles: Bundles, forward: LiteRTForward, accelerator: str) -> None:
    ids = tokens(1, 1, 7)
    with pytest.warns(UserWarning) as caught:
        other = LiteRTForward(bundles.paths["encoder"], bundles.manifests["encoder"], 1, accelerator=accelerator)
    messages = [str(warning.message) for warning in caught]
    known = ["LiteRT's GPU delegate computes some of .* wrongly, or leaves it to the CPU"] * (accelerator == "gpu")
    for pattern, message in zip([*known, "the CPU runs"], messages, strict=True):
        assert re.search(pattern, message)
    assert np.array_equal(other.run({"input_ids": ids})["logits"], forward.run({"input_ids": ids})["logits"])


def test_an_unknown_accelerator(bundles: Bundles) -> None:
    with pytest.raises(InputError, match="one of gpu, npu, or None. Received: 'tpu'"):
        LiteRTForward(bundles.paths["encoder"], bundles.manifests["encoder"], accelerator="tpu")


def test_threads_share_an_engine(step: LiteRTStep, forward: LiteRTForward) -> None:
    """Each thread gets the same results as alone, regardless of the others."""

    def generate(seed: int) -> np.ndarray:
        _, state = follow(step, step.start(*prompt(tokens(seed, 3 + seed), tokens(seed, 2))), tokens(seed, 2, 6))
        return follow(step, step.reorder(state, np.array([1, 0, 1])), tokens(seed, 3, 6))[0]

    def read(seed: int) -> np.ndarray:
        return forward.run({"input_ids": tokens(seed, 2, 4 + seed)})["logits"]

    for work in (generate, read):
        alone = [work(seed) for seed in range(6)]
        with ThreadPoolExecutor(6) as pool:
            together = list(pool.map(work, [seed for _ in range(3) for seed in range(6)]))
        for index, received in enumerate(together):
            assert np.array_equal(received, alone[index % 6])

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import keras
import numpy as np
import onnx
import pytest

from kerasformer.bundle import Manifest, Signature
from kerasformer.engines import Forward
from kerasformer.engines.onnx import OnnxForward, OnnxStep
from kerasformer.engines.onnx import caches as onnx_caches
from kerasformer.engines.onnx import session as onnx_session
from kerasformer.engines.onnx import step as onnx_step
from kerasformer.engines.onnx.caches import GrowingCaches, SharedCaches
from kerasformer.errors import BundleError, CapacityError, InputError
from kerasformer.models.keras_forward import KerasForward
from tests.core.export.onnx_bundles import padded, tiny, write

TOLERANCE = 1e-5  # of the largest logit


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    model, folder = tiny("bert", "text-classification"), tmp_path_factory.mktemp("bert")
    return model, folder, write(folder, model)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    model, folder = tiny("gpt2"), tmp_path_factory.mktemp("gpt2")
    return model, OnnxStep(folder, write(folder, model), num_threads=1)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    model, folder = tiny("t5"), tmp_path_factory.mktemp("t5")
    return model, OnnxStep(folder, write(folder, model), num_threads=1)


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape and got.dtype == np.float32
    assert np.abs(got - want).max() < TOLERANCE * np.abs(want).max()
    assert (got.argmax(-1) == want.argmax(-1)).all()


def whole(model, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Returns the logits `(B, T, V)` of a left-padded batch in Keras, without a cache."""
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0)
    inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    return keras.ops.convert_to_numpy(model(inputs))


# Encoders.


def test_forward_equals_keras(classifier):
    model, folder, manifest = classifier
    engine = OnnxForward(folder, manifest)
    assert isinstance(engine, Forward)
    ids, mask = padded(3, 9, "right")
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}
    assert_close(engine.run(inputs)["logits"], keras.ops.convert_to_numpy(model(inputs)))


def test_rows_of_similar_length_run_together(tmp_path, monkeypatch):
    model = tiny("bert", "fill-mask")
    engine, whole = (OnnxForward(tmp_path, write(tmp_path, model), num_threads=threads) for threads in (1, 64))
    calls: list[tuple[int, int]] = []
    call = engine._session.call

    def recorded(inputs, outputs):
        calls.append((inputs["attention_mask"].size, int(inputs["attention_mask"].sum())))
        return call(inputs, outputs)

    monkeypatch.setattr(engine._session, "call", recorded)
    lengths = np.array([3, 20, 9, 32, 10, 3, 19, 31])
    mask = (np.arange(32) < lengths[:, None]).astype("int32")
    mask[2, 0] = 0  # padding on the left stays
    ids = np.random.default_rng(0).integers(1, 61, mask.shape).astype("int32") * mask
    inputs = {"input_ids": ids, "attention_mask": mask}
    logits = engine.run(inputs)["logits"]
    expected = keras.ops.convert_to_numpy(model(inputs)) * (np.arange(32) < lengths[:, None])[..., None]
    assert_close(logits, expected)
    assert_close(whole.run(inputs)["logits"], expected)
    assert sorted(calls) == [(6, 6), (20, 18), (40, 39), (64, 63)]


def test_a_provider_for_accelerators_runs_a_batch_at_once(classifier, monkeypatch):
    _, folder, manifest = classifier
    monkeypatch.setattr(onnx_session, "CPU", "another provider")
    engine = OnnxForward(folder, manifest, providers=["CPUExecutionProvider"])
    ids, mask = padded(3, 9, "right")
    sizes = []
    monkeypatch.setattr(engine._session, "call", lambda inputs, _: sizes.append(inputs["input_ids"].shape) or [])
    with pytest.raises(ValueError):
        engine.run({"input_ids": ids, "attention_mask": mask})
    assert sizes == [(3, 9)]


FOREIGN_IDS = [
    ({"input_ids": [[5, wrong]]}, r"input_ids must be (from 0 to 60|integers)") for wrong in (-1, 61, 2**32 + 5, 2**64)
] + [
    ({"input_ids": [[5, 6]], "token_type_ids": [[0, 2]]}, "token_type_ids must be from 0 to 1. Received: 0 to 2"),
    ({"input_ids": [[5, 6]], "token_type_ids": [[0, -1]]}, "token_type_ids must be from 0 to 1"),
    ({"input_ids": [[5, 6]], "attention_mask": [[0, 2]]}, "attention_mask must be from 0 to 1"),
    ({"input_ids": [[5, 6], [7]]}, "input_ids must be"),
]


def test_forward_adds_default_mask_and_segments(classifier):
    _, folder, manifest = classifier
    engine = OnnxForward(folder, manifest)
    ids, _ = padded(2, 5, "right")
    full = engine.run({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
    np.testing.assert_array_equal(engine.run({"input_ids": ids})["logits"], full["logits"])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": np.zeros((1, 3), int), "pixels": np.zeros((1, 3), int)}, "does not accept"),
        ({"attention_mask": np.ones((1, 3), int)}, "input_ids are required"),
        ({"input_ids": np.zeros((0, 3), int)}, r"Received: shape \(0, 3\)"),
        ({"input_ids": np.zeros((1, 3), float)}, "dtype float64"),
        ({"input_ids": np.zeros((1, 3), int), "attention_mask": np.ones((1, 4), int)}, "must have the shape"),
        *FOREIGN_IDS,
    ],
)
def test_forward_raises_for_invalid_inputs(classifier, inputs, message):
    with pytest.raises(InputError, match=message):
        OnnxForward(classifier[1], classifier[2]).run(inputs)
    if any(inputs is foreign for foreign, _ in FOREIGN_IDS):
        with pytest.raises(InputError, match=message):
            KerasForward(classifier[0]).run(inputs)


def test_forward_raises_for_long_texts(classifier):
    with pytest.raises(CapacityError, match="at most 32 tokens. Received: 33"):
        OnnxForward(classifier[1], classifier[2]).run({"input_ids": np.zeros((1, 33), int)})


# Decoders.


def test_steps_after_a_padded_prompt_equal_keras(decoder):
    model, engine = decoder
    ids, mask = padded(3, 12, "left")
    want = whole(model, ids, mask)
    state = engine.start(ids[:, :7], mask[:, :7])
    for position in range(6, 12):
        logits, state = engine.step(ids[:, position : position + 1], state)
        assert_close(logits[:, 0], want[:, position])


# Caches in position.


@pytest.fixture(scope="module")
def portable(decoder, tmp_path_factory):
    """The same model without fused operators."""
    folder = tmp_path_factory.mktemp("portable")
    return OnnxStep(folder, write(folder, decoder[0], profile="portable"), num_threads=1)


def test_shared_caches_grow_to_the_capacity(decoder, monkeypatch):
    model, engine = decoder
    monkeypatch.setattr(onnx_caches, "_MIN_SLOTS", 4)
    ids, mask = padded(2, 40, "left")
    state, rooms, got = engine.start(ids[:, :3], mask[:, :3]), [], []
    for position in range(2, 40):
        logits, state = engine.step(ids[:, position : position + 1], state)
        got.append(logits)
        rooms.append(next(iter(state.caches.arrays.values())).shape[2])
    assert sorted(set(rooms)) == [4, 8, 16, 32, 40]
    assert_close(np.concatenate(got, axis=1), whole(model, ids, mask)[:, 2:])


def test_a_step_copies_no_cache(decoder):
    _, engine = decoder
    _, state = engine.step(np.ones((2, 1), int), engine.start(*padded(2, 5, "left")))
    before = {name: array.ctypes.data for name, array in state.caches.arrays.items()}
    _, state = engine.step(np.ones((2, 1), int), state)
    assert {name: array.ctypes.data for name, array in state.caches.arrays.items()} == before


def test_logits_of_earlier_steps_are_not_overwritten(decoder):
    _, engine = decoder
    first, state = engine.step(np.ones((2, 1), int), engine.start(*padded(2, 5, "left")))
    copy = first.copy()
    engine.step(np.full((2, 1), 7), state)
    np.testing.assert_array_equal(first, copy)


def test_a_prompt_is_read_without_its_logits(decoder, tmp_path, monkeypatch):
    """The engine asks for the logits of one token, and the output matrix is then multiplied by the states of one."""
    manifest = write(tmp_path, decoder[0])
    path = tmp_path / manifest.signatures["model"].file
    file = onnx.load(path)
    weights = {weight.name for weight in file.graph.initializer}
    node = next(node for node in file.graph.node if "logits" in node.output)
    while not weights.intersection(node.input):  # a node after the product
        node = next(other for other in file.graph.node if node.input[0] in other.output)
    rows = next(name for name in node.input if name not in weights)
    file.graph.output.append(onnx.helper.make_empty_tensor_value_info(rows))
    onnx.save(file, path)
    engine = OnnxStep(tmp_path, manifest, num_threads=1)
    computed, width = [], decoder[0].config.hidden_dim

    def run(binding):
        binding.bind_output(rows, "cpu")
        engine._decoder._session.run_with_iobinding(binding)
        computed.extend(value.shape() for value in binding.get_outputs() if value.shape()[-1] == width)

    monkeypatch.setattr(engine._decoder, "run", run)
    ids = np.arange(9)[None] + 3
    state = engine.start(ids, np.ones_like(ids))
    engine.step(ids[:, -3:], state)
    assert [shape[-2:] for shape in computed] == [[1, width], [3, width]]


@pytest.mark.parametrize(
    ("rows", "copies"), [([3, 2, 1, 0], 0), ([0, 0, 1, 2], 1), ([3, 3, 1, 1], 2), ([2, 2, 2, 2], 3)], ids=str
)
def test_reorder_copies_the_valid_slots_of_duplicated_rows(decoder, rows, copies):
    _, engine = decoder
    _, state = engine.step(np.arange(4)[:, None], engine.start(np.arange(24).reshape(4, 6), np.ones((4, 6), int)))
    length = state.length
    for array in state.caches.arrays.values():
        array[:, :, length:] = 7  # must be neither read nor copied
        array[:, :, length + 1] = np.arange(4)[:, None, None]
    before = {name: array.copy() for name, array in state.caches.arrays.items()}
    after = engine.reorder(state, np.array(rows))
    for name, array in after.caches.arrays.items():
        assert array is state.caches.arrays[name], "they stay where ONNX Runtime knows them"
        changed = (array != before[name]).any(axis=(1, 3))
        assert not changed[:, length:].any()
        assert changed[:, :length].all(axis=1).sum() == changed.any(axis=1).sum() == copies


def test_several_tokens_of_one_row_take_one_run(decoder, portable, translator, in_place_translator, monkeypatch):
    for engine in (decoder[1], portable, translator[1], in_place_translator[1]):
        ids = np.array([[3, 4, 5]])
        state, runs, run = engine.start(ids, np.ones_like(ids)), [], engine._decoder.run
        monkeypatch.setattr(engine._decoder, "run", lambda binding, run=run, runs=runs: (runs.append(1), run(binding)))
        for count in (1, 5, 8):
            _, state = engine.step(np.ones((1, count), int), state)
        assert len(runs) == 3


def test_a_long_prompt_is_read_in_parts(decoder, monkeypatch):
    model, engine = decoder
    monkeypatch.setattr(onnx_step, "_PART", 4)
    runs, run = [], engine._decoder.run
    monkeypatch.setattr(engine._decoder, "run", lambda binding: (runs.append(1), run(binding)))
    ids, mask = padded(1, 12, "left")
    state = engine.start(ids[:, :-1], mask[:, :-1])
    assert len(runs) == 3
    logits, _ = engine.step(ids[:, -2:], engine.resume(state, 2, ids[0, 2:-2]))
    assert len(runs) == 6
    assert_close(logits, whole(model, ids, mask)[:, -2:])


def test_threads_do_not_disturb_each_other_under_stress(decoder):
    """Rows are removed and reordered while other threads run steps."""
    model, engine = decoder

    def answer(seed: int) -> None:
        ids, mask = padded(3, 20, "left", seed)
        rows = np.random.default_rng(seed).permutation(3)[:2]
        _, state = engine.step(ids[:, 8:14], engine.start(ids[:, :9], mask[:, :9]))
        other = engine.fork(state)
        state = engine.reorder(state, rows)
        want = whole(model, ids, mask)
        for position in range(14, 20):
            logits, state = engine.step(ids[rows, position : position + 1], state)
            assert_close(logits[:, 0], want[rows, position])
        logits, _ = engine.step(ids[:, 14:15], other)
        assert_close(logits[:, 0], want[:, 14])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(answer, range(24)))


def test_an_absent_provider_raises(classifier):
    _, folder, manifest = classifier
    with pytest.raises(InputError, match="CPUExecutionProvider.*Received: NoneSuchExecutionProvider"):
        OnnxForward(folder, manifest, providers=["NoneSuchExecutionProvider", "CPUExecutionProvider"])


# Encoder-decoders.


@pytest.fixture(scope="module")
def in_place_translator(tmp_path_factory):
    """With a head size that fused attention supports."""
    model, folder = tiny("t5", head_dim=8), tmp_path_factory.mktemp("t5")
    return model, OnnxStep(folder, write(folder, model), num_threads=1)


def test_the_manifest_decides_which_caches_are_shared(tmp_path):
    """Bundles of earlier versions describe it in the metadata of the file."""
    model = tiny("t5", head_dim=8)
    manifest = write(tmp_path, model)
    ids, mask = padded(2, 9, "right")

    def caches(manifest: Manifest) -> type:
        return type(OnnxStep(tmp_path, manifest).start(ids, mask).caches)

    assert caches(manifest) is SharedCaches
    decoder = manifest.signatures["decoder_model_merged"]
    shared = decoder.in_place()
    assert caches(changed(manifest, decoder.with_in_place(()))) is GrowingCaches
    unknown = {name: replace(info, in_place=None) for name, info in decoder.outputs.items()}
    older = changed(manifest, replace(decoder, outputs=unknown))
    assert caches(older) is GrowingCaches
    path = tmp_path / decoder.file
    file = onnx.load(str(path))
    onnx.helper.set_model_props(file, {"kerasformer.in_place": " ".join(shared)})
    onnx.save(file, str(path))
    assert caches(older) is SharedCaches


def changed(manifest: Manifest, decoder: Signature) -> Manifest:
    return replace(manifest, signatures={**manifest.signatures, "decoder_model_merged": decoder})


def test_reordering_beams_of_a_text_copies_no_memory(in_place_translator):
    _, engine = in_place_translator
    state = engine.reorder(engine.start(*padded(2, 9, "right")), np.array([0, 0, 1, 1]))
    memory = state.memory
    # Within the texts, then the texts in a different order, then within them again.
    for rows in ([1, 1, 3, 2], [2, 3, 1, 0], [1, 1, 2, 2], [0, 0, 3, 2]):
        _, state = engine.step(np.ones((4, 1), int), engine.reorder(state, np.array(rows)))
        assert state.memory is memory


def test_cross_attention_keys_are_computed_once(translator):
    _, engine = translator
    start = engine.start(*padded(2, 9, "right"))
    cross = [name for name in start.memory.tensors if ".encoder." in name]
    assert len(cross) == 4
    assert {tuple(start.memory.tensors[name].shape()) for name in cross} == {(2, 3, 9, 6)}
    _, first = engine.step(np.ones((2, 1), int), start)
    assert first.memory is start.memory
    beams = engine.reorder(first, np.array([1, 1, 0]))
    assert engine.reorder(beams, np.array([1, 0, 2])).memory is beams.memory, "beams of one text share it"


# Incomplete bundles.


def test_an_invalid_onnx_file_raises(classifier, tmp_path):
    _, _, manifest = classifier
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(BundleError, match="cannot load .*model.onnx"):
        OnnxForward(tmp_path, manifest)


def test_a_manifest_without_capacity_raises(decoder, tmp_path):
    model = decoder[0]
    with pytest.raises(BundleError, match="must have a capacity"):
        OnnxStep(tmp_path, replace(write(tmp_path, model), capacity=None))

"""Every feature of `AttentionSpec` in each format, compared with Keras."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter

from kerasformer.bundle import recipes
from kerasformer.bundle.recipes import recipe
from kerasformer.export.formats.onnx.convert import write_onnx
from kerasformer.export.formats.onnx.signatures import onnx_functions
from kerasformer.export.formats.tflite.convert import write_tflite
from kerasformer.export.formats.tflite.signatures import tflite_functions
from tests.core.export.described import ATTENTIONS, GROUPS, LLAMA, DescribedDecoder
from tests.core.export.onnx_bundles import padded
from tests.core.export.tflite_bundles import operators
from tests.grids import grid

pytestmark = pytest.mark.grid

TOLERANCE = 1e-5  # share of the largest value, for the order of summation
CASES = {
    **{name: (layers, False) for name, layers in ATTENTIONS.items()},
    "linear biases and groups": ((GROUPS,), True),
}


def write(path: Path, model: DescribedDecoder, profile: str, opset: int | None = None) -> Counter[str]:
    """Writes an ONNX file and counts its operators."""
    (function,) = onnx_functions(model)
    write_onnx({path: function}, model.variables, recipe("none"), profile=profile, opset=opset)
    return Counter(node.op_type for node in onnx.load(str(path)).graph.node)


def steps(path: Path, ids: np.ndarray, mask: np.ndarray, capacity: int | None) -> np.ndarray:
    """Returns logits of a padded batch: a prompt, then single tokens, with growing caches or this number of slots."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rows, length = ids.shape
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0)
    past = [value for value in session.get_inputs() if value.name.startswith("past_key_values")]
    caches = {each.name: np.zeros((rows, each.shape[1], capacity or 0, each.shape[3]), "float32") for each in past}
    logits = []
    for start, end in ((0, 7), *((place, place + 1) for place in range(7, length))):
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in caches.items()}
        binding = session.io_binding()
        given = {
            "input_ids": ids[:, start:end],
            "attention_mask": mask[:, :end],
            "position_ids": positions[:, start:end],
        }
        for name in {value.name for value in session.get_inputs()} & set(given):
            binding.bind_cpu_input(name, np.ascontiguousarray(given[name], "int64"))
        binding.bind_output("logits")
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
            present = name.replace("past_key_values", "present")
            if capacity is None:
                binding.bind_output(present)
            else:
                binding.bind_ortvalue_output(present, value)
        session.run_with_iobinding(binding)
        first, *rest = (output.numpy() for output in binding.get_outputs())
        logits.append(first)
        if capacity is None:
            caches = dict(zip(caches, rest, strict=True))
            assert {array.shape[2] for array in caches.values()} == {end}
    return np.concatenate(logits, axis=1)


def assert_equal(got: np.ndarray, want: np.ndarray, mask: np.ndarray) -> None:
    """Compares all tokens that are not padding."""
    assert np.abs(got - want)[mask == 1].max() < TOLERANCE * np.abs(want).max()


IN_ONNX = [name for index, name in enumerate(CASES) if index % 2 == 0]
"""Cases that always run in ONNX Runtime; the others always run in LiteRT, and in the full grid every case in both."""


@pytest.mark.parametrize("name", grid(CASES, always=IN_ONNX, others="release"))
def test_onnx(tmp_path, name):
    """With fused operators, with growing and with shared caches, and with standard operators."""
    layers, alibi = CASES[name]
    model = DescribedDecoder(layers, alibi)
    ids, mask = padded(3, 12, "left")
    want = model.answers(ids, mask)
    path = tmp_path / "m.onnx"

    operators = write(path, model, "ort")
    fused = len(layers) if model.decoder.layers[0].attention.spec.head_dim % 8 == 0 else 0
    assert operators["GroupQueryAttention"] == fused
    # Layers with the same rotation share the angles, and all windows share one bias.
    rotations = [layer["rotary"] for layer in layers if "rotary" in layer]
    assert operators["Cos"] == len(set(rotations))
    assert operators["RotaryEmbedding"] == (2 * len(rotations) if fused else 0)
    assert operators["LessOrEqual"] == 1 if fused else True
    for capacity in (None, 12, 40) if fused else (None,):
        assert_equal(steps(path, ids, mask, capacity), want, mask)

    for opset in (17, 23):
        operators = write(path, model, "portable", opset)
        newest = opset == 23
        assert operators["RotaryEmbedding"] == 2 * len(rotations) * newest
        assert operators["Attention"] == sum("softcap" not in layer for layer in layers) * newest
        assert_equal(steps(path, ids, mask, None), want, mask)


def run_tflite(path: Path, capacity: int, ids: np.ndarray) -> np.ndarray:
    """Returns logits of a text `(1, T)`, token by token after a prefill of its first eight tokens."""
    interpreter = Interpreter(str(path))
    fill, decode = (interpreter.get_signature_runner(name) for name in ("prefill_8", "decode"))
    shapes = {name: detail["shape"] for name, detail in decode.get_input_details().items() if "cache" in name}
    state = {name: np.zeros(shape, "float32") for name, shape in shapes.items()}
    assert {shape[2] for shape in shapes.values()} == {capacity}
    state = fill(tokens=ids[:, :8], input_pos=np.arange(8, dtype="int32"), **state)
    logits = []
    for place in range(8, ids.shape[1]):
        state = decode(tokens=ids[:, place : place + 1], input_pos=np.array([place], "int32"), **state)
        logits.append(state.pop("logits"))
    return np.concatenate(logits, axis=1)


@pytest.mark.parametrize(
    ("name", "quantize", "tolerance"),
    [
        *grid(CASES, ["none"], [TOLERANCE], always=lambda name, *_: name not in IN_ONNX, others="release"),
        ("partial and interleaved", "int8", 0.05),
    ],
)
def test_tflite(tmp_path, monkeypatch, name, quantize, tolerance):
    """In LiteRT, with a cache that is updated in place."""
    monkeypatch.setattr(recipes, "MIN_QUANTIZED", 0)
    layers, alibi = CASES[name]
    model, path = DescribedDecoder(layers, alibi), tmp_path / "model.tflite"
    functions = [f for f in tflite_functions(model, 16, None, ()) if f.name in ("prefill_8", "decode")]
    write_tflite(functions, model.variables, recipe(quantize), path)
    ids = padded(1, 14, "left")[0]
    want = model.answers(ids, np.ones_like(ids))[:, 8:]
    assert np.abs(run_tflite(path, 16, ids) - want).max() < tolerance * np.abs(want).max()


@pytest.mark.parametrize("capacity", [16, 128])
def test_operators_of_a_rotated_and_grouped_layer(tmp_path, capacity):
    """Operators that a third layer adds: a rotation needs four, and keys and values are not copied for their group.

    A cache that is shorter than the text needs no more, except to write several tokens.
    """
    added = {}
    for name in ("prefill_8", "decode"):
        counts = []
        for layers in (2, 3):
            model, path = DescribedDecoder([{**LLAMA, "window": 3}] * layers), tmp_path / "model.tflite"
            functions = [f for f in tflite_functions(model, capacity, None, ()) if f.name == name]
            assert (functions[0].inputs["kv_cache_k_0"].shape[2] < capacity) == (capacity > 64)
            write_tflite(functions, model.variables, recipe("none"), path)
            counts.append(operators(path)[name])
        added[name] = dict(counts[1] - counts[0])
    norm = {"SQUARE": 2, "MEAN": 2, "ADD": 2, "RSQRT": 2, "MUL": 4}
    rotation = {"FULLY_CONNECTED": 2, "MUL": 4, "ADD": 2}
    attention = {"DYNAMIC_UPDATE_SLICE": 2, "BATCH_MATMUL": 2, "SOFTMAX": 1, "MUL": 1, "ADD": 2}
    products = {"FULLY_CONNECTED": 7, "LOGISTIC": 1, "MUL": 2, "ADD": 1}
    whole = Counter(norm) + Counter(rotation) + Counter(attention) + Counter(products)
    assert {kind: n for kind, n in added["decode"].items() if kind != "RESHAPE"} == whole
    copies = {"CONCATENATION": 2, "GATHER": 2} if capacity == 128 else {}
    assert {kind: n for kind, n in added["prefill_8"].items() if kind in ("CONCATENATION", "GATHER")} == copies
    assert set(added["prefill_8"]) - {"RESHAPE", "TRANSPOSE"} <= {*whole, *copies}

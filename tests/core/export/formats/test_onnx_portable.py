"""The portable profile: only standard operators, in every supported opset."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.engines.onnx import OnnxStep
from kerasformer.errors import ExportError
from kerasformer.export.quantization.calibration import Ranges
from tests.core.export.onnx_bundles import expected, feeds_of, load, padded, run, tiny, write
from tests.core.export.onnx_inventory import per_layer
from tests.grids import grid

MODELS = ["bert", "gpt2", "t5"]


pytestmark = [pytest.mark.grid, pytest.mark.usefixtures("small_matrices_too")]


def small(model_type: str):
    return tiny(model_type, num_layers=1)


@pytest.mark.parametrize(
    ("model_type", "quantize"),
    grid(MODELS, RECIPES, always=lambda name, recipe: name == "gpt2" or recipe == "int8", others="release"),
)
def test_every_file_has_only_standard_operators_and_passes_the_checker(tmp_path, model_type, quantize):
    model, opset = small(model_type), 21 if quantize.startswith("int4") else 17
    ranges = dict.fromkeys((v.path for v in model.variables), Ranges((-3.0, 3.0), (-3.0, 3.0)))
    write(tmp_path, model, quantize, "portable", opset=opset, calibration=ranges)
    for path in (tmp_path / "onnx").glob("*.onnx"):
        onnx.checker.check_model(str(path), full_check=True)
        loaded = onnx.load(str(path))
        assert [(each.domain, each.version) for each in loaded.opset_import] == [("", opset)]
        assert {node.domain for node in loaded.graph.node} == {""}
        inferred = onnx.shape_inference.infer_shapes(loaded, check_type=True, strict_mode=True, data_prop=True)
        known = {value.name for value in inferred.graph.value_info} | {value.name for value in inferred.graph.output}
        assert known.issuperset(name for node in loaded.graph.node for name in node.output if name)


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("model_type", MODELS)
def test_later_opsets_give_the_same_answers(tmp_path, model_type, opset):
    model = small(model_type)
    write(tmp_path, model, "none", "portable", opset=opset)
    for name, feeds in feeds_of(model):
        loaded = load(tmp_path, name)
        onnx.checker.check_model(loaded, full_check=True)
        assert loaded.opset_import[0].version == opset
        operators = {node.op_type for node in loaded.graph.node}
        assert ("Gelu" in operators) == (opset >= 20 and model_type != "t5")
        assert ("Attention" in operators) == (opset >= 23 and model_type in ("gpt2", "t5"))
        assert ("RMSNormalization" in operators) == (opset >= 23 and model_type == "t5")
        got = run(tmp_path / "onnx" / f"{name}.onnx", feeds)
        for output, want in expected(model, feeds).items():
            real = feeds["attention_mask"] == 1 if "position_ids" in feeds else slice(None)
            assert np.abs(got[output][real] - want[real]).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize(
    ("quantize", "settings", "message"),
    [
        ("none", {"opset": 16}, "between 17, .* and 23. Received: 16"),
        ("none", {"opset": 24}, "between 17, .* and 23. Received: 24"),
        ("int4", {}, r"need opset 21. Received: opset=17. Use opset=21 or profile='ort'"),
        (
            Recipe("blocks", "int8", "int8", "float", 1, 0, block=32),
            {"opset": 20},
            "block scales and four-bit weights need opset 21",
        ),
        (Recipe("blocks", "int8", "int8", "dynamic", 1, 0, block=32), {}, "block=32.*Remove block"),
        (Recipe("tables", "int8", "int4", "float", 1, 0), {"opset": 21}, "no lookup in four-bit tables.*tables='int8'"),
    ],
)
def test_storage_without_standard_operators_is_refused(tmp_path, quantize, settings, message):
    with pytest.raises(ExportError, match=message):
        write(tmp_path, small("gpt2"), quantize, "portable", **settings)
    assert not list((tmp_path / "onnx").iterdir())


def test_blocks_of_8_bits_with_standard_operators(tmp_path):
    model = small("bert")
    write(tmp_path, model, Recipe("blocks", "int8", "int8", "float", 1, 0, block=16), "portable", opset=21)
    ((name, feeds),) = feeds_of(model)
    got, want = run(tmp_path / "onnx" / f"{name}.onnx", feeds), expected(model, feeds)
    for output, value in want.items():
        assert np.sqrt(np.square(got[output] - value).mean()) < 0.03 * np.sqrt(np.square(value).mean())


@pytest.mark.parametrize(
    ("model_type", "quantize"),
    grid(
        ["bert", "distilbert", "albert", "gpt2", "t5"],
        ["none", "int8"],
        always={("bert", "none"), ("gpt2", "int8"), ("t5", "int8")},
        others="release",
    ),
)
def test_the_products_of_a_layer(tmp_path, model_type, quantize):
    """Counts the products of one layer, or of one call of ALBERT's shared layer."""
    decoder = {"decoder_model_merged": 4, "encoder_model": 0}
    for name, counts in per_layer(tmp_path, model_type, quantize=quantize, profile="portable").items():
        crossed = decoder.get(name, 0)  # four more projections in a decoder with cross attention
        projections = counts.get("MatMulInteger", 0) if quantize == "int8" else counts["MatMul"] - 2 - crossed // 2
        assert projections == 6 + crossed
        assert counts["Softmax"] == 1 + crossed // 4
        norms = 2 if model_type != "t5" else 0
        assert counts.get("LayerNormalization", 0) == norms
        if quantize == "int8":
            # The shared input of queries, keys and values; the context; both inputs of the feed-forward; query and
            # context of cross attention. The encoded text is quantized once for all layers.
            assert counts["QuantizeLinear"] == (4 if not crossed else 6)
            assert counts["MatMul"] == 2 + crossed // 2
        assert counts.get("Shape", 0) <= 4, "no shapes are computed for the splits of heads"


def test_steps_that_read_no_encoded_text(tmp_path):
    """Its keys are cached after the first step; ReduceMax of ONNX Runtime keeps the width of a tensor without rows."""
    model = tiny("t5", num_layers=1)
    engine = OnnxStep(tmp_path, write(tmp_path, model, "int8", "portable"), num_threads=1)
    encoded, decoded = padded(2, 6, "right"), padded(2, 3, "right", seed=2)[0]
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    want = np.asarray(model(dict(zip(names, (*encoded, decoded), strict=True))))
    state, got = engine.start(*encoded), []
    for token in decoded.T:
        logits, state = engine.step(token[:, None], state)
        got.append(logits)
    assert np.abs(np.concatenate(got, axis=1) - want).max() < 0.1 * np.abs(want).max()

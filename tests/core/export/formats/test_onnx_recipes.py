"""Each recipe in each profile, in ONNX Runtime: stored values are close to those of Keras, answers are those of stored
values.
"""

from __future__ import annotations

from collections import Counter

import keras
import numpy as np
import onnx
import pytest
from keras import ops
from onnx import TensorProto, numpy_helper

from kerasformer.bundle import TensorInfo
from kerasformer.bundle.recipes import RECIPES, Recipe, recipe
from kerasformer.errors import ExportError
from kerasformer.export.formats.onnx.convert import write_onnx
from kerasformer.export.formats.onnx.signatures import onnx_functions
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.variable_names import below_model
from kerasformer.export.quantization.calibration import Calibration, Ranges
from kerasformer.layers import primitives
from kerasformer.layers.primitives import Primitives, lowering
from tests.core.export.onnx_bundles import expected, feeds_of, load, run, session, tiny, write
from tests.grids import grid

MODELS = {"bert-text-classification": ("bert", "text-classification"), "gpt2": ("gpt2", None), "t5": ("t5", None)}
PROFILES = ("ort", "portable")
# Relative root mean square error of a stored matrix: rounding to float16, to 8 bits, to 4 bits.
# With four bits, a weight takes over errors of others (GPTQ), and may be off by more than half a level.
STORED = {"float32": 0, "float16": 3e-4, "int8": 0.012, "int4": 0.15}
# Relative root mean square error of answers given the stored values: order of summation, or 8-bit activations.
ANSWERS = {"float": 1e-5, "dynamic": 0.05, "fast": 0.1, "static": 0.15}


pytestmark = pytest.mark.usefixtures("small_matrices_too")


class Observer(Primitives):
    """Measures the ranges of products."""

    def __init__(self) -> None:
        self.ranges: dict[str, Ranges] = {}

    def linear(self, x, kernel, bias=None, *, transposed=False):
        y = super().linear(x, kernel, bias, transposed=transposed)
        if not hasattr(x, "numpy"):  # Keras computes shapes before its first call
            return y
        low, high = float(ops.min(x)), float(ops.max(x))
        if kernel.path in self.ranges:
            low, high = min(low, self.ranges[kernel.path].input[0]), max(high, self.ranges[kernel.path].input[1])
        self.ranges[kernel.path] = Ranges((low, high), (float(ops.min(y)), float(ops.max(y))))
        return y


def calibrated(model) -> Calibration:
    observer = Observer()
    with lowering(observer):
        for _, feeds in feeds_of(model):
            expected(model, feeds)
    return observer.ranges


@pytest.fixture(scope="module")
def measured(request):
    """Returns a model and the ranges of its products."""
    model = tiny(*MODELS[request.param], num_layers=1)
    return model, calibrated(model)


ALWAYS = {("bert-text-classification", "int8", "ort"), ("t5", "int8", "portable"), ("t5", "int4", "ort")}


@pytest.mark.parametrize(
    ("measured", "quantize", "profile"),
    grid(
        MODELS,
        RECIPES,
        PROFILES,
        always=lambda *case: case in ALWAYS or (case[0] == "gpt2" and case[1] in ("none", "int8", "int4")),
        release=lambda *case: case[0] != "gpt2",
    ),
    indirect=["measured"],
)
def test_answers_are_those_of_the_stored_values(tmp_path, measured, quantize, profile):
    model, ranges = measured
    opset = 21 if quantize.startswith("int4") and profile == "portable" else None
    write(tmp_path, model, quantize, profile, opset=opset, calibration=ranges)
    before = {variable.path: ops.convert_to_numpy(variable) for variable in model.variables}
    graphs = [load(tmp_path, function.name).graph for function in onnx_functions(model)]
    stored = {path: value for graph in graphs for path, value in values(graph, model).items()}
    tables = {t.name.removesuffix(".scale") for g in graphs for t in g.initializer if "tokens/embeddings" in t.name}
    assert len(tables) == 1, "look-up, projection and both files of an encoder-decoder share the table"
    try:
        for variable in model.trainable_variables:
            value, kind = stored[below_model(variable.path)], "embeddings" in variable.path
            storage = recipe(quantize).storage(variable.path, variable.shape, kind)
            assert error(value, before[variable.path]) <= STORED[storage]
            variable.assign(value)
        feeds = feeds_of(model)
        answers = [expected(model, given) for _, given in feeds]
    finally:
        for variable in model.variables:
            variable.assign(before[variable.path])
    # By default, ONNX Runtime quantizes the inputs of products with dequantized matrices.
    widened = recipe(quantize).activations == "float"
    config = {"session_disable_quant_qdq": "1"} if widened else {}
    tolerance = ANSWERS[recipe(quantize).activations]
    for (name, given), want in zip(feeds, answers, strict=True):
        got = run(tmp_path / "onnx" / f"{name}.onnx", given, **config)
        for output, value in want.items():
            real = given["attention_mask"] == 1 if "position_ids" in given else slice(None)
            assert error(got[output][real], value[real]) < tolerance


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(np.square(got - want).sum() / max(np.square(want).sum(), 1e-12)))


def values(graph: onnx.GraphProto, model) -> dict[str, np.ndarray]:
    """Returns the dequantized values of each variable in a file, in the shape that it has in Keras."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {below_model(variable.path): tuple(variable.shape) for variable in model.variables}
    found = {}
    for name, tensor in tensors.items():
        base, dot, form = name.rpartition(".")
        paths, form = (base.split("+"), form) if dot else (name.split("+"), "")
        if form == "scale" or paths[0] not in shapes:
            continue
        scale = numpy_helper.to_array(tensors[f"{name}.scale"]) if "int" in form else None
        matrix = dequantized(tensor, form, scale)
        tables = [path.endswith("embeddings") for path in paths]
        if form.startswith("uint") and not any(tables):
            matrix = matrix.T
        elif "int" in form and any(tables) and form != "int8_rows" and not form.startswith("uint"):
            matrix = matrix.T
        start = 0
        for path in paths:
            width = shapes[path][-1]
            part = matrix[..., start : start + width]
            found[path] = part[: shapes[path][0]] if part.ndim == 2 else part
            start += width
    return found


def dequantized(tensor: TensorProto, form: str, scale: np.ndarray | None) -> np.ndarray:
    """Returns float32 values: `(N, K)` for blocks, which may be longer than the rows, else in the tensor's shape."""
    data = numpy_helper.to_array(tensor)
    if scale is None:
        return data.astype("float32")
    kind, _, block = form.partition("_")
    if kind.startswith("uint"):
        bits = int(kind[4:])
        if bits == 4:
            data = np.stack([data & 15, data >> 4], axis=-1).reshape(*scale.shape, -1)
        return ((data.astype("float32") - (1 << (bits - 1))) * scale[..., None]).reshape(len(data), -1)
    data = data.astype("float32")
    if block == "rows":
        return data * scale[:, None]
    if block.isdigit():
        return data * np.repeat(scale, int(block), axis=0)[: len(data)]
    return data * scale


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("model_type", "quantize"), [("bert", "int8"), ("gpt2", "int8"), ("bert", "int8_fast")])
def test_int8_answers_do_not_depend_on_other_rows(tmp_path, model_type, quantize, profile):
    model = tiny(model_type, num_layers=1)
    write(tmp_path, model, quantize, profile, calibration=calibrated(model) if quantize == "int8_fast" else None)
    opened = session(tmp_path / "onnx" / "model.onnx")
    (_, feeds), *_ = feeds_of(model)
    wanted = opened.get_outputs()[0].name
    together = opened.run([wanted], feeds)[0]
    for row in range(3):
        real = feeds["attention_mask"][row] == 1
        alone = {
            name: value[row : row + 1] if value.ndim == 4 else value[row : row + 1, real]
            for name, value in feeds.items()
        }
        np.testing.assert_allclose(opened.run([wanted], alone)[0][0], together[row, real], atol=1e-5)


def test_int8_fast_rounds_only_outputs_of_gelu_by_row(tmp_path):
    """Other products add their bias themselves; those of decoders, and with tied tables, are the ones of int8."""
    model = tiny("bert", "fill-mask")
    ranges = calibrated(model)
    counts = {}
    for quantize in ("int8", "int8_fast"):
        write(tmp_path / quantize, model, quantize, calibration=ranges)
        counts[quantize] = Counter(node.op_type for node in load(tmp_path / quantize).graph.node)
    layers, products = 2, counts["int8_fast"]["MatMulIntegerToFloat"]
    assert (counts["int8"]["ReduceMax"], counts["int8_fast"]["ReduceMax"]) == (products, layers)
    assert counts["int8_fast"]["MatMulNBits"] == counts["int8"]["MatMulNBits"] == 1
    assert (counts["int8"]["BiasGelu"], counts["int8_fast"]["BiasGelu"]) == (layers + 1, 0)  # one in the head
    model = tiny("gpt2", num_layers=1)
    for quantize in ("int8", "int8_fast"):
        write(tmp_path / quantize, model, quantize, calibration=calibrated(model))
    files = [load(tmp_path / quantize).graph.SerializeToString() for quantize in ("int8", "int8_fast")]
    assert files[0] == files[1]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", ["plain", "gelu", "centered"])
def test_rows_whose_range_is_zero(tmp_path, kind, profile):
    """Their scale would be 0. Rows of a scaled input are centered, so that those of equal values have no range."""
    random = np.random.default_rng(0)
    kernel = keras.Variable(random.normal(size=(16, 12)).astype("float32"), name="kernel")
    bias = keras.Variable(random.normal(size=12).astype("float32"), name="bias")
    ranges = Ranges((-9.0, 9.0), (-9.0, 9.0), np.ones(16, "float32") if kind == "centered" else None)

    def call(x):
        return {"y": primitives.linear(primitives.gelu(x) if kind == "gelu" else x, kernel, bias)}

    inputs, outputs = ({name: TensorInfo(("b", "t", size), "float32")} for name, size in (("x", 16), ("y", 12)))
    function = Function("model", inputs, outputs, call)
    path, calibration = tmp_path / "m.onnx", {kernel.path: ranges}
    write_onnx({path: function}, [kernel, bias], recipe("int8"), profile=profile, calibration=calibration)
    x = random.normal(size=(2, 3, 16)).astype("float32")
    x[0, 0], x[1, 1] = 0, 3 if kind == "centered" else 0
    got, want = run(path, {"x": x})["y"], ops.convert_to_numpy(call(x)["y"])
    np.testing.assert_allclose(got, want, atol=0.05 * np.abs(want).max())
    for row in ((0, 0), (1, 1)):
        np.testing.assert_allclose(got[row], want[row], atol=0.01 * np.abs(want[row]).max())


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-6.0, -1.0), (-1.0, 5.0)])
def test_static_inputs_whose_range_is_not_symmetric(tmp_path, profile, low, high):
    random = np.random.default_rng(0)
    kernel = keras.Variable(random.normal(size=(16, 12)).astype("float32"), name="kernel")
    inputs, outputs = ({name: TensorInfo(("b", size), "float32")} for name, size in (("x", 16), ("y", 12)))
    function = Function("model", inputs, outputs, lambda x: {"y": primitives.linear(x, kernel)})
    x = random.uniform(low, high, (5, 16)).astype("float32")
    want = x @ ops.convert_to_numpy(kernel)
    ranges = Ranges((low, high), (float(want.min()), float(want.max())))
    path = tmp_path / "m.onnx"
    write_onnx({path: function}, [kernel], recipe("int8_static"), profile=profile, calibration={kernel.path: ranges})
    assert error(run(path, {"x": x})["y"], want) < 0.02


def test_exceptions_of_a_recipe(tmp_path):
    """Also for a product of several kernels with different storage types."""
    model = tiny("bert", "text-classification")
    kernels = [v.path for v in model.variables if "layer_0" in v.path and "attention" in v.path and len(v.shape) == 2]
    layers = ((kernels[0], "float32"), (kernels[1], "int4"), ("*/layer_1/*", "float16"))
    mixed = Recipe("mixed", "int8", "int8", "dynamic", tolerance=1, min_agreement=0, layers=layers)
    write(tmp_path, model, mixed)
    graph = load(tmp_path).graph
    names = {tensor.name for tensor in graph.initializer}
    assert {below_model(kernels[0]), f"{below_model(kernels[1])}.uint4_32"} <= names
    assert not any("layer_1" in name and "int8" in name for name in names)
    (name, feeds), *_ = feeds_of(model)
    got, (want,) = run(tmp_path / "onnx" / f"{name}.onnx", feeds), expected(model, feeds).values()
    assert error(got["logits"], want) < 0.2


def test_four_bit_tables(tmp_path):
    model = tiny("gpt2", hidden_dim=40, num_layers=1)
    small = Recipe("small", "int4", "int4", "dynamic", tolerance=1, min_agreement=0, block=16)
    write(tmp_path, model, small)
    (name, feeds), *_ = feeds_of(model)
    stored = values(load(tmp_path).graph, model)
    assert all(stored[below_model(v.path)].shape == tuple(v.shape) for v in model.trainable_variables)
    for variable in model.trainable_variables:
        variable.assign(stored[below_model(variable.path)])
    got, (want,) = run(tmp_path / "onnx" / f"{name}.onnx", feeds), expected(model, feeds).values()
    real = feeds["attention_mask"] == 1
    assert error(got["logits"][real], want[real]) < ANSWERS["dynamic"]


@pytest.mark.parametrize("measured", ["gpt2"], indirect=True)
def test_missing_ranges_are_reported(tmp_path, measured):
    model, ranges = measured
    path = next(path for path in ranges if "layer_0" in path)
    ranges = {other: value for other, value in ranges.items() if other != path}
    with pytest.raises(ExportError, match=f"Received: none for .*{path}.*Calibrate"):
        write(tmp_path, model, "int8_static", calibration=ranges)
    assert not list((tmp_path / "onnx").iterdir())


def test_a_value_beyond_float16_is_refused(tmp_path):
    model = tiny("bert", "text-classification")
    kernel = next(v for v in model.trainable_variables if v.path.endswith("kernel") and "layer_0" in v.path)
    kernel.assign(ops.convert_to_numpy(kernel) + 1e6)
    with pytest.raises(ExportError, match=r"65504. Received: 1e\+06 in .*layer_0.*`layers`"):
        write(tmp_path, model, "fp16")

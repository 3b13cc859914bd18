from __future__ import annotations

from collections import Counter
from functools import partial

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tf2onnx.optimizer
from keras import ops
from onnx import numpy_helper

from kerasformer.bundle import TensorInfo
from kerasformer.bundle.recipes import recipe
from kerasformer.errors import ExportError
from kerasformer.export.formats.onnx import file_writer as onnx_files
from kerasformer.export.formats.onnx.convert import write_onnx
from kerasformer.export.formats.onnx.signatures import onnx_functions
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.variable_names import by_path
from tests.core.export import onnx_bundles
from tests.core.export.onnx_bundles import expected, feeds_of, load, run, session, tiny

write = partial(onnx_bundles.write, profile="portable")

CASES = [("bert", "text-classification"), ("bert", "question-answering"), ("gpt2", None), ("t5", None)]
TOLERANCE = 1e-5  # share of the largest logit, for the order of summation


pytestmark = pytest.mark.usefixtures("small_matrices_too")


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(filter(None, case)))
def written(request, tmp_path_factory):
    """Returns a model, and the folder with its files."""
    model = tiny(*request.param)
    folder = tmp_path_factory.mktemp("bundle")
    write(folder, model)
    return model, folder


def stored(graph) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in graph.initializer}


@pytest.mark.grid
def test_each_weight_is_stored_once_under_its_path(written):
    model, folder = written
    paths = by_path(model.trainable_variables)
    for function in onnx_functions(model):
        tensors = stored(load(folder, function.name).graph)
        weights = {name: numpy_helper.to_array(tensor) for name, tensor in tensors.items() if name in paths}
        for name, value in weights.items():
            np.testing.assert_array_equal(value, ops.convert_to_numpy(paths[name]))
        rest = sum(len(tensor.raw_data) for name, tensor in tensors.items() if name not in paths)
        assert rest < 3000, "constants that are no weights"
        size = (folder / "onnx" / f"{function.name}.onnx").stat().st_size
        assert size < sum(4 * value.size for value in weights.values()) + 60_000
        if function.name == "model":
            assert set(weights) == set(paths)


def test_reshapes_copy_dimensions_instead_of_computing_them(tmp_path):
    write(tmp_path, tiny("bert", "text-classification"))
    nodes = Counter(node.op_type for node in load(tmp_path).graph.node)
    assert nodes["Shape"] <= 1, "only the length, for the positions"


@pytest.mark.grid
def test_onnx_runtime_fuses_the_patterns(tmp_path):
    for model_type, fused in (("bert", "BiasGelu"), ("gpt2", "FastGelu"), ("t5", "SimplifiedLayerNormalization")):
        write(tmp_path / model_type, tiny(model_type))
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        options.log_severity_level = 3
        file = "decoder_model_merged" if model_type == "t5" else "model"
        onnxruntime.InferenceSession(
            str(tmp_path / model_type / "onnx" / f"{file}.onnx"), options, providers=["CPUExecutionProvider"]
        )
        operators = Counter(node.op_type for node in onnx.load(str(tmp_path / "optimized.onnx")).graph.node)
        assert operators[fused]
        assert operators["FusedMatMul"], "keys are not transposed by themselves"


@pytest.mark.grid
def test_weights_beyond_the_limit_of_a_protobuf_are_stored_in_a_data_file(tmp_path, monkeypatch):
    model = tiny("bert", "text-classification")
    write(tmp_path / "one", model, "int8")
    monkeypatch.setattr(onnx_files, "INLINE_LIMIT", 1000)
    write(tmp_path / "two", model, "int8")
    folder = tmp_path / "two" / "onnx"
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "model.onnx_data"]
    onnx.checker.check_model(str(folder / "model.onnx"))
    (_, feeds), *_ = feeds_of(model)
    want, got = (run(tmp_path / name / "onnx" / "model.onnx", feeds)["logits"] for name in ("one", "two"))
    np.testing.assert_array_equal(want, got)


@pytest.mark.parametrize("limit", [onnx_files.INLINE_LIMIT, 1000])
@pytest.mark.grid
def test_a_weight_of_two_files_is_stored_once(tmp_path, monkeypatch, limit):
    model = tiny("t5")
    monkeypatch.setattr(onnx_files, "INLINE_LIMIT", limit)
    monkeypatch.setattr(onnx_files, "SHARED_LIMIT", 4000)
    write(tmp_path, model)
    data = {path.name for path in (tmp_path / "onnx").glob("*_data")}
    assert data == {"decoder_model_merged.onnx_data"} | ({"encoder_model.onnx_data"} if limit == 1000 else set())
    for name, feeds in feeds_of(model):
        graph = onnx.load(str(tmp_path / "onnx" / f"{name}.onnx"), load_external_data=False).graph
        (table,) = (tensor for tensor in graph.initializer if tensor.name.endswith("tokens/embeddings"))
        assert {entry.key: entry.value for entry in table.external_data}["location"] == "decoder_model_merged.onnx_data"
        got = run(tmp_path / "onnx" / f"{name}.onnx", feeds)
        for output, want in expected(model, feeds).items():
            np.testing.assert_allclose(got[output], want, atol=1e-5)
    total = sum(path.stat().st_size for path in (tmp_path / "onnx").iterdir())
    assert (
        total
        < sum(4 * int(np.prod(v.shape)) for v in model.trainable_variables) + 150_000 + (limit == 1000) * 4096 * 60
    )


def function_of(call, shape=("batch_size", "length", 64), name="y", out=None) -> Function:
    return Function("model", {"x": TensorInfo(shape, "float32")}, {name: TensorInfo(out or shape, "float32")}, call)


def test_a_flattened_product_before_a_split_of_heads(tmp_path):
    """tf2onnx would merge the last two reshapes into a wrong one."""
    kernel = np.random.default_rng(1).normal(size=(64, 64)).astype("float32")

    def call(x):
        y = ops.matmul(ops.reshape(x, (-1, 64)), ops.convert_to_tensor(kernel))
        y = ops.reshape(y, (ops.shape(x)[0], ops.shape(x)[1], 64))
        return {"y": ops.reshape(y, (ops.shape(y)[0], ops.shape(y)[1], 2, 32))}

    before = dict(tf2onnx.optimizer._optimizers)
    out = ("batch_size", "length", 2, 32)
    write_onnx({tmp_path / "m.onnx": function_of(call, out=out)}, [], recipe("none"))
    assert tf2onnx.optimizer._optimizers == before
    x = np.random.default_rng(0).normal(size=(2, 8, 64)).astype("float32")
    np.testing.assert_allclose(run(tmp_path / "m.onnx", {"x": x})["y"], call(x)["y"], atol=1e-4)


@pytest.mark.grid
def test_an_optimizer_that_fails_is_skipped(tmp_path, monkeypatch):
    tried = []

    def broken():
        tried.append("broken")
        raise ValueError("unsupported graph")

    monkeypatch.setitem(tf2onnx.optimizer._optimizers, "remove_identity", broken)
    model = tiny("bert", "text-classification")
    write(tmp_path, model)
    assert len(tried) > 1
    for name, feeds in feeds_of(model):
        got = run(tmp_path / "onnx" / f"{name}.onnx", feeds)["logits"]
        want = expected(model, feeds)["logits"]
        assert np.abs(got - want).max() < TOLERANCE * np.abs(want).max()


def test_a_weight_that_no_primitive_reads_is_exported(tmp_path):
    """Its transpose is read here, and is then stored."""
    weight = keras.Variable(np.random.default_rng(0).normal(size=(5, 64)), dtype="float32", name="weight")
    unused = keras.Variable(np.zeros((5, 5)), dtype="float32", name="unused")

    def call(x):
        return {"y": ops.matmul(x, ops.transpose(weight))}

    out = ("batch_size", "length", 5)
    write_onnx({tmp_path / "m.onnx": function_of(call, out=out)}, [weight, unused], recipe("none"))
    tensors = stored(onnx.load(str(tmp_path / "m.onnx")).graph)
    assert [list(t.dims) for name, t in tensors.items() if "weight" in name] == [[64, 5]]
    assert "unused" not in tensors
    x = np.random.default_rng(1).normal(size=(1, 3, 64)).astype("float32")
    np.testing.assert_allclose(run(tmp_path / "m.onnx", {"x": x})["y"], call(x)["y"], atol=1e-5)


def test_variables_with_the_same_name_are_distinguished(tmp_path):
    weights = [keras.Variable(np.full((64,), value), dtype="float32", name="w") for value in (1.0, 2.0)]
    write_onnx(
        {tmp_path / "m.onnx": function_of(lambda x: {"y": x * weights[0] + weights[1]})}, weights, recipe("none")
    )
    x = np.ones((1, 1, 64), "float32")
    assert (run(tmp_path / "m.onnx", {"x": x})["y"] == 3).all()


def test_an_input_that_is_not_used_is_still_declared(tmp_path):
    inputs = {name: TensorInfo(("batch_size", 4), "float32") for name in ("a", "b")}
    function = Function("model", inputs, {"y": TensorInfo(("batch_size", 4), "float32")}, lambda a, b: {"y": a + 1.0})
    write_onnx({tmp_path / "m.onnx": function}, [], recipe("none"))
    assert [value.name for value in session(tmp_path / "m.onnx").get_inputs()] == ["a", "b"]


def test_an_operation_without_operator_is_reported(tmp_path):
    import tensorflow as tf

    function = function_of(lambda x: {"y": tf.math.erfc(x)})
    with pytest.raises(ExportError, match="Erfc"):
        write_onnx({tmp_path / "m.onnx": function}, [], recipe("none"))
    assert not list(tmp_path.iterdir())


def test_other_outputs_than_declared_are_refused(tmp_path):
    with pytest.raises(ExportError, match=r"must return \['y'\]. Received: \['z'\]"):
        write_onnx({tmp_path / "m.onnx": function_of(lambda x: {"z": x})}, [], recipe("none"))


def test_a_variable_that_was_not_passed_is_refused(tmp_path):
    model = tiny("bert", "text-classification")
    (function,) = onnx_functions(model)
    with pytest.raises(ExportError, match="reads a variable that was not passed"):
        write_onnx({tmp_path / "m.onnx": function}, model.variables[:-1], recipe("none"))


def test_a_model_in_half_precision_is_refused(tmp_path):
    model = tiny("bert", "text-classification", dtype="float16")
    (function,) = onnx_functions(model)
    with pytest.raises(ExportError, match="computed in float32.*float16.*dtype='float32'"):
        write_onnx({tmp_path / "m.onnx": function}, model.variables, recipe("none"))

from __future__ import annotations

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras import ops

from kerasformer import layers
from kerasformer.bundle import TensorInfo
from kerasformer.bundle.recipes import recipe
from kerasformer.export.formats.onnx.convert import write_onnx
from kerasformer.export.graph.functions import Function
from kerasformer.layers import Rotary, Visibility, primitives
from tests.core.export.onnx_bundles import padded, tiny, write
from tests.core.export.onnx_inventory import per_layer

TOLERANCE = 1e-5  # share of the largest value, for the order of summation


pytestmark = pytest.mark.usefixtures("small_matrices_too")


# Operators of a layer.

ENCODER = {"BiasGelu": 1, "MatMul": 4, "MultiHeadAttention": 1, "LayerNormalization": 2, "Split": 1, "Sum": 2}
BIASED = {"Add": 1}  # bias of the packed projections, which no fused operator supports
T5_SETTINGS = {"head_dim": 8}
T5_ENCODER = {
    "MatMul": 4,
    "MultiHeadAttention": 1,
    "Relu": 1,
    "SkipSimplifiedLayerNormalization": 2,
    "Split": 1,
}
# The encoded text is projected and appended to the cross caches; a stack's last sum and norm are one operator.
T5_DECODER = {
    "Concat": 2,
    "GroupQueryAttention": 1,
    "MatMul": 8,
    "MultiHeadAttention": 1,
    "Relu": 1,
    "Reshape": 2,
    "SkipSimplifiedLayerNormalization": 3,
    "Transpose": 2,
}
LAYERS = [
    ("bert", "text-classification", {}, {"model": ENCODER | BIASED}),
    ("distilbert", "text-classification", {}, {"model": ENCODER | BIASED}),
    (
        "albert",
        "text-classification",
        {},
        {"model": {k: v for k, v in ENCODER.items() if k != "BiasGelu"} | BIASED | {"FastGelu": 1}},
    ),
    (
        "mobilebert",
        "text-classification",
        {},
        # Queries, keys, values, output; two reductions, two feed-forward networks, the restoration.
        # Since keys and values are products of different tensors, the bias is expanded for each layer.
        {
            "model": {"Add": 21, "MatMul": 11, "Mul": 6, "MultiHeadAttention": 1, "Relu": 2}
            | {"Concat": 1, "Expand": 1, "Shape": 1}
        },
    ),
    (
        "gpt2",
        None,
        {},
        {"model": {"FastGelu": 1, "GroupQueryAttention": 1, "LayerNormalization": 2, "MatMul": 4, "Sum": 2} | BIASED},
    ),
    ("t5", None, T5_SETTINGS, {"encoder_model": T5_ENCODER, "decoder_model_merged": T5_DECODER}),
]


@pytest.mark.parametrize(
    ("model_type", "task", "settings", "expected"),
    [pytest.param(*row, marks=() if row[0] in ("gpt2", "t5") else pytest.mark.grid) for row in LAYERS],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_operators_of_a_layer(tmp_path, model_type, task, settings, expected):
    assert per_layer(tmp_path, model_type, task, **settings) == expected


# Answers.


@pytest.mark.grid
def test_the_manifest_describes_the_caches_that_may_be_shared(tmp_path):
    for head_dim, count in ((8, 4), (6, 0)):  # the operator supports multiples of 8
        manifest = write(tmp_path / str(head_dim), tiny("t5", head_dim=head_dim))
        decoder = manifest.signatures["decoder_model_merged"]
        assert len(decoder.in_place()) == count
        assert all(".decoder." in name for name in decoder.in_place())
        assert {info.in_place for info in decoder.outputs.values() if info.continues} == {False, count > 0}
    assert manifest.signatures["encoder_model"].in_place() == frozenset()


# Other functions.


def written(path, call, inputs, outputs, variables=()) -> onnxruntime.InferenceSession:
    write_onnx({path: Function("model", inputs, outputs, call)}, variables, recipe("none"))
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("settings", "operators"), [({}, (1, 2)), ({"softcap": 1.0}, (0, 0))], ids=["rotary", "softcap"]
)
@pytest.mark.grid
def test_rotary_in_an_encoder(tmp_path, settings, operators):
    """Queries and keys are rotated for MultiHeadAttention, which does not support soft caps."""
    layer = layers.MultiHeadAttention(4, 32, rotary=Rotary(dim=4, interleaved=True), **settings)
    layer.build((None, None, 32))

    def call(x, mask):
        return {"y": layer(x, visibility=Visibility.of_text(ops.shape(x)[1], mask))}

    x, mask = TensorInfo(("b", "t", 32), "float32"), TensorInfo(("b", "t"), "int64")
    session = written(tmp_path / "m.onnx", call, {"x": x, "mask": mask}, {"y": x}, layer.variables)
    kinds = [node.op_type for node in onnx.load(str(tmp_path / "m.onnx")).graph.node]
    assert (kinds.count("MultiHeadAttention"), kinds.count("RotaryEmbedding")) == operators
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 7, 32)).astype("float32"), "mask": padded(2, 7, "right")[1]}
    (got,) = session.run(None, feeds | {"mask": feeds["mask"].astype("int64")})
    wanted = ops.convert_to_numpy(call(**{name: ops.convert_to_tensor(value) for name, value in feeds.items()})["y"])
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_a_tensor_with_several_readers_is_not_merged(tmp_path):
    """A product with two readers keeps its bias; a sum is an output for all of its readers."""
    generator = np.random.default_rng(0)
    kernel, bias, scale, shift = (
        keras.Variable(generator.normal(size=shape).astype("float32"), name=name)
        for name, shape in (("kernel", (8, 8)), ("bias", (8,)), ("scale", (8,)), ("shift", (8,)))
    )

    def call(x):
        product = primitives.linear(x, kernel, bias)
        total = primitives.residual(x, product)
        return {
            "gelu": primitives.gelu(product),
            "norm": primitives.layer_norm(total, scale, shift, 1e-5),
            "other": primitives.rms_norm(total, scale, 1e-5),
            "total": total,
        }

    info = TensorInfo(("b", "t", 8), "float32")
    outputs = dict.fromkeys(("gelu", "norm", "other", "total"), info)
    session = written(tmp_path / "m.onnx", call, {"x": info}, outputs, [kernel, bias, scale, shift])
    x = generator.normal(size=(2, 3, 8)).astype("float32")
    for (name, want), got in zip(call(ops.convert_to_tensor(x)).items(), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(got, ops.convert_to_numpy(want), atol=1e-5, err_msg=name)

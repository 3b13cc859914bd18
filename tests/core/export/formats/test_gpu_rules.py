"""What LiteRT's GPU delegate computes wrongly or leaves: each rule on a graph of one operator, seen and not seen.

In CI, the delegate runs both graphs: the first does what the rule says, the second is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer.engines.litert.flatbuffer_schema import schema
from kerasformer.engines.litert.gpu_rules import RULES, look_at
from kerasformer.export.formats.tflite import flatbuffer
from kerasformer.tools.gpu import check_gpu
from tests.core.export.gpu import need_gpu

Tensor = tuple[Any, ...]
_VERSIONS = {"BROADCAST_TO": 2, "FULLY_CONNECTED": 9}
_BLOCKS = "blocks"


def graph(kind: str, inputs: list[Tensor], outputs: list[Tensor], after: str = "", **options: Any) -> Any:
    """Returns a model of one operator, and another one that reads its result.

    Args:
        kind: The operator.
        inputs: Shape and type of each operand, and its values if it is constant.
        outputs: Shape and type of each result.
        after: The operator that reads the first result, which the graph then returns as well.
        options: Options of the operator.
    """
    types, random = schema(), np.random.default_rng(3)
    model, part, signature = types.ModelT(), types.SubGraphT(), types.SignatureDefT()
    model.version, model.buffers, part.tensors, part.operators = 3, [types.BufferT()], [], []
    model.operatorCodes = []

    def stored(value: np.ndarray) -> int:
        buffer = types.BufferT()
        buffer.data = np.frombuffer(value.tobytes(), np.uint8)
        model.buffers.append(buffer)
        return len(model.buffers) - 1

    def tensor(shape: Any, dtype: str, *value: Any) -> int:
        part.tensors.append(one := types.TensorT())
        one.shape, one.type, one.buffer = [size or 1 for size in shape], getattr(types.TensorType, dtype), 0
        one.name = f"tensor_{len(part.tensors)}".encode()
        if None in shape:
            one.shapeSignature = [size or -1 for size in shape]
        if value:
            blocks = isinstance(value[0], str)
            content = random.normal(size=shape) if value[0] is None or blocks else np.broadcast_to(value[0], shape)
            name = {"INT4": "int8", "BOOL": "bool"}.get(dtype, dtype.lower())
            if dtype in ("INT8", "INT4"):
                content = random.integers(-7, 8, (shape[0] * shape[1] // 2 if dtype == "INT4" else shape))
                one.quantization = parameters = types.QuantizationParametersT()
                parameters.quantizedDimension = 0
                if blocks:
                    parameters.details = types.BlockwiseQuantizationT()
                    parameters.detailsType = types.QuantizationDetails.BlockwiseQuantization
                    parameters.details.zeroPoints, parameters.details.blockSize = -1, 32
                else:
                    parameters.scale = np.full(shape[0], 0.1, "float32")
                    parameters.zeroPoint = np.zeros(shape[0], "int64")
            one.buffer = stored(np.asarray(content).astype(name))
        index = len(part.tensors) - 1
        if value and blocks:
            one.quantization.details.scales = tensor((shape[0], shape[1] // 32), "FLOAT16", 0.1)
        return index

    def operator(kind: str, read: list[int], written: list[int], options: dict[str, Any]) -> None:
        code, op = types.OperatorCodeT(), types.OperatorT()
        code.builtinCode = getattr(types.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), _VERSIONS.get(kind, 1)
        op.opcodeIndex, op.inputs, op.outputs = len(model.operatorCodes), read, written
        wanted = kind.replace("_", "").lower().replace("lization", "").replace("l2norma", "l2norm") + "options"
        for name in vars(types.BuiltinOptions):
            if name.lower() == wanted:
                op.builtinOptions = getattr(types, f"{name}T")()
                op.builtinOptionsType = getattr(types.BuiltinOptions, name)
        for name, value in ({"keepNumDims": True} if kind == "FULLY_CONNECTED" else options).items():
            setattr(op.builtinOptions, name, value)
        model.operatorCodes.append(code)
        part.operators.append(op)

    read, written = ([tensor(*one) for one in tensors] for tensors in (inputs, outputs))
    operator(kind, read, written, options)
    part.inputs, part.outputs = [i for i in read if not part.tensors[i].buffer], list(written)
    if after:
        others = [tensor(outputs[0][0], "FLOAT32")] if after in ("ADD", "MUL") else []
        part.inputs, part.outputs = [*part.inputs, *others], [*written, tensor(outputs[0][0], "FLOAT32")]
        operator(after, [*written[:1], *others], part.outputs[-1:], {})
    signature.signatureKey, signature.subgraphIndex, signature.inputs, signature.outputs = b"run", 0, [], []
    for entries, indices in ((signature.inputs, part.inputs), (signature.outputs, part.outputs)):
        for index in indices:
            entries.append(entry := types.TensorMapT())
            entry.name, entry.tensorIndex = part.tensors[index].name, index
    model.subgraphs, model.signatureDefs = [part], [signature]
    return model


def floats(*shape: Any) -> Tensor:
    return shape, "FLOAT32"


def ids(*shape: int) -> Tensor:
    return shape, "INT32"


def constant(tensor: Tensor, value: Any = None) -> Tensor:
    """Returns an operand with these values, or random ones."""
    return (*tensor, value)


def integers(*values: int) -> Tensor:
    """Returns constant integers with one axis."""
    return (len(values),), "INT32", np.array(values)


def only_last(model: Any) -> Any:
    """Returns a model that returns its last result alone: the delegate writes no constant result."""
    (part,), (signature,) = model.subgraphs, model.signatureDefs
    part.outputs, signature.outputs = part.outputs[-1:], signature.outputs[-1:]
    return model


INT8 = constant(((6, 4), "INT8"))
_CORNER = integers(0, 1, 0), integers(1, 2, 4), integers(1, 1, 1)
TABLE = constant(floats(9, 4))
# Of each rule, an operator to which it applies, and a similar one to which no rule does.
CASES: dict[str, tuple[Any, Any]] = {
    "rank-3-attention": (
        graph("BATCH_MATMUL", [floats(3, 5, 4), floats(3, 4, 6)], [floats(3, 5, 6)]),
        graph("BATCH_MATMUL", [floats(1, 3, 5, 4), floats(1, 3, 4, 6)], [floats(1, 3, 5, 6)]),
    ),
    "transposed-product": (
        graph("BATCH_MATMUL", [floats(1, 3, 5, 4), floats(1, 3, 6, 4)], [floats(1, 3, 5, 6)], adjX=False, adjY=True),
        graph("BATCH_MATMUL", [floats(1, 3, 5, 4), floats(1, 3, 4, 6)], [floats(1, 3, 5, 6)], adjX=False, adjY=False),
    ),
    "mixed-rank": (
        graph("ADD", [floats(20, 8, 8), floats(1, 1, 8, 8)], [floats(1, 20, 8, 8)]),
        graph("ADD", [floats(1, 20, 8, 8), constant(floats(8))], [floats(1, 20, 8, 8)]),
    ),
    "constant-below-four-axes": (
        graph("MUL", [floats(24, 1), constant(floats(24, 8))], [floats(24, 8)]),
        graph("MUL", [floats(1, 24, 1), constant(floats(24, 8))], [floats(1, 24, 8)]),
    ),
    "integers-with-one-axis": (
        graph("LESS_EQUAL", [ids(1, 1, 1, 5), integers(0, 1, 2, 3, 4)], [((1, 1, 1, 5), "BOOL")]),
        graph("LESS_EQUAL", [ids(1, 1, 1, 5), constant(ids(1, 1, 1, 5), [0, 1, 2, 3, 4])], [((1, 1, 1, 5), "BOOL")]),
    ),
    "exchanged-integers": (
        graph("SUB", [constant(ids(1, 1, 1, 5), [5, 6, 7, 8, 9]), ids(1, 1, 1, 5)], [ids(1, 1, 1, 5)]),
        graph("SUB", [constant(ids(1, 1, 1, 5), [5, 6, 7, 8, 9]), ids(1, 1, 2, 1)], [ids(1, 1, 2, 5)]),
    ),
    "broadcast-product": (
        graph("BATCH_MATMUL", [floats(2, 3, 5, 4), floats(1, 1, 4, 6)], [floats(2, 3, 5, 6)]),
        graph("BATCH_MATMUL", [floats(2, 3, 5, 4), constant(floats(4, 6))], [floats(2, 3, 5, 6)]),
    ),
    "returned-sum": (
        graph("ADD", [floats(1, 1, 5, 4), floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)], after="TANH"),
        graph("ADD", [floats(1, 1, 5, 4), floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)]),
    ),
    "rank-3-padding": (
        graph("PAD", [floats(3, 5, 4), constant(ids(3, 2), [[0, 0], [1, 2], [0, 0]])], [floats(3, 8, 4)]),
        graph("PAD", [floats(1, 5, 4), constant(ids(3, 2), [[0, 0], [1, 2], [0, 0]])], [floats(1, 8, 4)]),
    ),
    "beyond-16-bit-floats": (
        graph("MUL", [floats(1, 1, 5, 5), constant(floats(), -1e9)], [floats(1, 1, 5, 5)]),
        graph("MUL", [floats(1, 1, 5, 5), constant(floats(), -3e4)], [floats(1, 1, 5, 5)]),
    ),
    "below-16-bit-floats": (
        graph("ADD", [floats(1, 1, 5, 1), constant(floats(), 1e-12)], [floats(1, 1, 5, 1)]),
        graph("ADD", [floats(1, 1, 5, 1), constant(floats(), 1e-6)], [floats(1, 1, 5, 1)]),
    ),
    "angles": (
        graph("COS", [floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)]),
        graph("TANH", [floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)]),
    ),
    "slice-of-constant": (
        graph("STRIDED_SLICE", [TABLE, integers(2, 0), integers(7, 4), integers(1, 1)], [floats(5, 4)], after="TANH"),
        graph("STRIDED_SLICE", [floats(9, 4), integers(2, 0), integers(7, 4), integers(1, 1)], [floats(5, 4)]),
    ),
    "narrow-condition": (
        graph("SELECT_V2", [((5, 1), "BOOL"), floats(1, 5, 4), floats(1, 5, 4)], [floats(1, 5, 4)]),
        graph("SELECT_V2", [((1, 5, 1), "BOOL"), floats(1, 5, 4), floats(1, 5, 4)], [floats(1, 5, 4)]),
    ),
    "rounded-residual": (
        graph("FULLY_CONNECTED", [floats(1, 5, 4), INT8], [floats(1, 5, 6)], after="ADD"),
        graph("FULLY_CONNECTED", [floats(1, 1, 5, 4), INT8], [floats(1, 1, 5, 6)], after="ADD"),
    ),
    "broadcast-to": (
        graph("BROADCAST_TO", [floats(1, 2, 1, 4), integers(1, 2, 3, 4)], [floats(1, 2, 3, 4)]),
        graph("TILE", [floats(1, 2, 1, 4), integers(1, 1, 3, 1)], [floats(1, 2, 3, 4)]),
    ),
    "gather-nd": (
        graph("GATHER_ND", [floats(5, 4), ids(3, 1)], [floats(3, 4)]),
        graph("GATHER", [floats(5, 4), ids(3)], [floats(3, 4)]),
    ),
    "other-operator": (
        graph("L2_NORMALIZATION", [floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)]),
        graph("GELU", [floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)]),
    ),
    "five-axes": (
        graph("RESHAPE", [floats(1, 6, 5, 4), integers(1, 2, 3, 5, 4)], [floats(1, 2, 3, 5, 4)]),
        graph("RESHAPE", [floats(1, 6, 5, 4), integers(6, 1, 5, 4)], [floats(6, 1, 5, 4)]),
    ),
    "64-bit": (
        graph("CAST", [ids(1, 5)], [((1, 5), "INT64")]),
        graph("CAST", [ids(1, 5)], [floats(1, 5)]),
    ),
    "type": (
        graph("CUMSUM", [ids(1, 5), constant(ids(), 1)], [ids(1, 5)]),
        graph("CUMSUM", [floats(1, 5), constant(ids(), 1)], [floats(1, 5)]),
    ),
    "changing-shape": (
        graph("TANH", [floats(None, 5, 4)], [floats(None, 5, 4)]),
        graph("TANH", [floats(1, 5, 4)], [floats(1, 5, 4)]),
    ),
    "constant-lookup": (
        graph("GATHER", [TABLE, integers(4, 0, 7)], [floats(3, 4)]),
        graph("GATHER", [floats(9, 4), integers(4, 0, 7)], [floats(3, 4)]),
    ),
    "constant-embedding": (
        graph("EMBEDDING_LOOKUP", [integers(4, 0, 7), TABLE], [floats(3, 4)]),
        graph("EMBEDDING_LOOKUP", [ids(3), TABLE], [floats(3, 4)]),
    ),
    "ids-with-axes": (
        graph("GATHER", [TABLE, ids(1, 3)], [floats(1, 3, 4)]),
        graph("GATHER", [TABLE, ids(3)], [floats(3, 4)]),
    ),
    "blockwise-weights": (
        graph("FULLY_CONNECTED", [floats(1, 1, 5, 32), constant(((6, 32), "INT4"), _BLOCKS)], [floats(1, 1, 5, 6)]),
        graph("FULLY_CONNECTED", [floats(1, 1, 5, 32), constant(((6, 32), "INT4"))], [floats(1, 1, 5, 6)]),
    ),
    "constant-input": (
        graph("FULLY_CONNECTED", [TABLE, constant(floats(6, 4))], [floats(9, 6)]),
        graph("FULLY_CONNECTED", [floats(9, 4), constant(floats(6, 4))], [floats(9, 6)]),
    ),
    "dropped-axes": (
        graph("STRIDED_SLICE", [floats(1, 5, 4), *_CORNER], [floats(1, 4)], shrinkAxisMask=2),
        graph("STRIDED_SLICE", [floats(1, 5, 4), *_CORNER], [floats(1, 1, 4)]),
    ),
    "computed-bounds": (
        graph("SLICE", [floats(2, 2, 5, 5), ids(4), integers(1, 1, 1, 4)], [floats(1, 1, 1, 4)]),
        graph("SLICE", [floats(1, 1, 5, 4), integers(0, 0, 2, 0), integers(1, 1, 1, 4)], [floats(1, 1, 1, 4)]),
    ),
    "constant-start": (
        graph(
            "DYNAMIC_UPDATE_SLICE", [floats(1, 3, 8, 4), floats(1, 3, 1, 4), integers(0, 0, 5, 0)], [floats(1, 3, 8, 4)]
        ),
        graph("DYNAMIC_UPDATE_SLICE", [floats(1, 3, 8, 4), floats(1, 3, 1, 4), ids(4)], [floats(1, 3, 8, 4)]),
    ),
    "broadcast-choice": (
        graph("SELECT_V2", [((1, 5, 1), "BOOL"), floats(1, 5, 4), floats(1, 1, 4)], [floats(1, 5, 4)]),
        graph("SELECT_V2", [((1, 5, 1), "BOOL"), floats(1, 5, 4), constant(floats())], [floats(1, 5, 4)]),
    ),
    "scaled-softmax": (
        graph("SOFTMAX", [floats(1, 3, 5, 5)], [floats(1, 3, 5, 5)], beta=0.5),
        graph("SOFTMAX", [floats(1, 3, 5, 5)], [floats(1, 3, 5, 5)], beta=1.0),
    ),
    "widened-halves": (
        graph("DEQUANTIZE", [((3, 4), "FLOAT16")], [floats(3, 4)], after="TANH"),
        only_last(graph("DEQUANTIZE", [constant(((1, 1, 5, 4), "FLOAT16"))], [floats(1, 1, 5, 4)], after="MUL")),
    ),
}


def same_operand(kind: str) -> Any:
    """Returns a model of an operator that reads one tensor twice."""
    model = graph(kind, [floats(1, 1, 5, 4), floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)])
    model.subgraphs[0].operators[0].inputs = [0, 0]
    return model


CASES["same-operand"] = same_operand("SUB"), same_operand("MUL")


def sum_of(*parts: int) -> Any:
    """Returns a model that adds these parts of a tensor, or one of them to another tensor."""
    axis = constant(((), "INT32"), 2)
    model = graph("SPLIT", [axis, floats(1, 1, 10, 4)], [floats(1, 1, 5, 4)] * 2, after="ADD", numSplits=2)
    split, total = model.subgraphs[0].operators
    total.inputs = [*(split.outputs[part] for part in parts), *total.inputs[1:]][:2]
    return only_last(model)


CASES["sum-of-parts"] = sum_of(0, 1), sum_of(1)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_finds_its_operator_and_no_similar_one(rule):
    wrong, right = CASES[rule.name]
    (finding,) = look_at(wrong)
    assert (finding.rule, finding.effect, finding.source, finding.operators) == (rule.name, rule.effect, rule.source, 1)
    assert finding.example.endswith(", in run")
    assert look_at(right) == ()


IN_HALVES = {"beyond-16-bit-floats", "below-16-bit-floats", "angles"}
"""Wrong in 16-bit floats alone."""
FIXED = {"changing-shape"}
"""Right as long as the shapes do not change."""


@pytest.mark.grid
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_delegate_does_what_a_rule_says(rule, tmp_path):
    need_gpu()
    reports = []
    for number, model in enumerate(CASES[rule.name]):
        path = tmp_path / f"{number}.tflite"
        path.write_bytes(bytes(flatbuffer._pack(model)))
        reports.append(check_gpu(path))
    found, similar = reports
    assert similar.is_right() and not similar.refused and not similar.findings
    if rule.effect == "reported" or rule.name in IN_HALVES | FIXED:
        assert found.is_right() and not found.refused
    elif rule.effect == "wrong":
        assert not found.is_right() and found.failure is None
    elif rule.effect == "unsupported":
        assert found.refused or "LiteRT refused it" in str(found.failure)
    else:
        assert "ended the process" in str(found.failure)


def test_a_finding_names_the_last_weight_before_it_and_the_signature():
    model = graph("FULLY_CONNECTED", [floats(1, 5, 4), INT8], [floats(1, 5, 6)], after="L2_NORMALIZATION")
    model.subgraphs[0].tensors[1].name = b"encoder/layer_0/output/kernel"
    signature = schema().SignatureDefT()
    signature.subgraphIndex, signature.signatureKey = 0, b"forward_16"
    model.signatureDefs = [signature]
    (finding,) = look_at(model)
    assert finding.example == "L2_NORMALIZATION after encoder/layer_0/output/kernel, in forward_16"

"""What LiteRT's GPU delegate computes wrongly or leaves: each rule on a graph of one operator, seen and not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer.engines.litert.flatbuffer_schema import schema
from kerasformer.engines.litert.gpu_rules import RULES, look_at

Tensor = tuple[Any, ...]


def graph(kind: str, inputs: list[Tensor], outputs: list[Tensor], after: str = "", **options: Any) -> Any:
    """Returns a model of one operator, and another one that reads its result.

    Args:
        kind: The operator.
        inputs: Shape and type of each operand, and its value if it is constant.
        outputs: Shape and type of each result.
        after: The operator that reads the first result, which the graph then returns as well.
        options: Options of the operator.
    """
    types = schema()
    model, part = types.ModelT(), types.SubGraphT()
    model.buffers, part.tensors, part.operators = [types.BufferT()], [], []
    for shape, dtype, *value in (*inputs, *outputs, *([((1,), "FLOAT32")] if after else [])):
        tensor = types.TensorT()
        tensor.shape, tensor.type, tensor.buffer, tensor.name = list(shape), getattr(types.TensorType, dtype), 0, b""
        if None in shape:
            tensor.shape, tensor.shapeSignature = [size or 1 for size in shape], [size or -1 for size in shape]
        if value == ["blocks"]:
            tensor.quantization = types.QuantizationParametersT()
            tensor.quantization.details = types.BlockwiseQuantizationT()
        if value:
            buffer = types.BufferT()
            content = np.ones(tensor.shape) if value == ["blocks"] else np.broadcast_to(value[0], tensor.shape)
            buffer.data = np.frombuffer(content.astype(dtype.lower().replace("int4", "int8")).tobytes(), np.uint8)
            model.buffers.append(buffer)
            tensor.buffer = len(model.buffers) - 1
        part.tensors.append(tensor)
    first = list(range(len(inputs))), list(range(len(inputs), len(inputs) + len(outputs)))
    model.operatorCodes = []
    for name, (read, written) in (
        (kind, first),
        *([(after, (first[1][:1], [len(part.tensors) - 1]))] if after else []),
    ):
        code, op = types.OperatorCodeT(), types.OperatorT()
        code.builtinCode = getattr(types.BuiltinOperator, name)
        op.opcodeIndex, op.inputs, op.outputs = len(model.operatorCodes), read, written
        op.builtinOptions = type("Options", (), options)() if name == kind and options else None
        model.operatorCodes.append(code)
        part.operators.append(op)
    part.inputs, part.outputs = [i for i in first[0] if not part.tensors[i].buffer], list(first[1])
    model.subgraphs, model.signatureDefs = [part], []
    return model


def floats(*shape: Any) -> Tensor:
    return shape, "FLOAT32"


def ids(*shape: int) -> Tensor:
    return shape, "INT32"


def constant(tensor: Tensor, value: Any = 1.0) -> Tensor:
    return (*tensor, value)


INT8 = constant(((6, 4), "INT8"))
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
    "constant-of-three-axes": (
        graph("MUL", [floats(3, 5, 4), constant(floats(3, 5, 4))], [floats(3, 5, 4)]),
        graph("MUL", [floats(1, 5, 4), constant(floats(1, 5, 4))], [floats(1, 5, 4)]),
    ),
    "integers-with-one-axis": (
        graph("LESS_EQUAL", [ids(1, 1, 1, 5), constant(ids(5))], [((1, 1, 1, 5), "BOOL")]),
        graph("LESS_EQUAL", [ids(1, 1, 1, 5), constant(ids(1, 1, 1, 5))], [((1, 1, 1, 5), "BOOL")]),
    ),
    "exchanged-integers": (
        graph("SUB", [constant(ids(1, 1, 1, 5)), ids(1, 1, 1, 5)], [ids(1, 1, 1, 5)]),
        graph("SUB", [constant(ids(1, 1, 1, 5)), ids(1, 1, 2, 5)], [ids(1, 1, 2, 5)]),
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
        graph("PAD", [floats(1, 5, 4), constant(ids(3, 2), 0)], [floats(1, 5, 4)]),
        graph("PAD", [floats(1, 1, 5, 4), constant(ids(4, 2), 0)], [floats(1, 1, 5, 4)]),
    ),
    "beyond-16-bit-floats": (
        graph("MUL", [floats(1, 1, 5, 5), constant(floats(), -1e9)], [floats(1, 1, 5, 5)]),
        graph("MUL", [floats(1, 1, 5, 5), constant(floats(), -3e4)], [floats(1, 1, 5, 5)]),
    ),
    "rounded-residual": (
        graph("FULLY_CONNECTED", [floats(1, 5, 4), INT8], [floats(1, 5, 6)], after="ADD"),
        graph("FULLY_CONNECTED", [floats(1, 1, 5, 4), INT8], [floats(1, 1, 5, 6)], after="ADD"),
    ),
    "broadcast-to": (
        graph("BROADCAST_TO", [floats(1, 2, 1, 4), constant(ids(4), 4)], [floats(1, 2, 3, 4)]),
        graph("TILE", [floats(1, 2, 1, 4), constant(ids(4), 1)], [floats(1, 2, 3, 4)]),
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
        graph("RESHAPE", [floats(1, 6, 5, 4), constant(ids(5))], [floats(1, 2, 3, 5, 4)]),
        graph("RESHAPE", [floats(1, 6, 5, 4), constant(ids(4))], [floats(6, 1, 5, 4)]),
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
        graph("GATHER", [TABLE, constant(ids(3))], [floats(3, 4)]),
        graph("GATHER", [floats(9, 4), constant(ids(3))], [floats(3, 4)]),
    ),
    "constant-embedding": (
        graph("EMBEDDING_LOOKUP", [constant(ids(3)), TABLE], [floats(3, 4)]),
        graph("EMBEDDING_LOOKUP", [ids(3), TABLE], [floats(3, 4)]),
    ),
    "ids-with-axes": (
        graph("GATHER", [TABLE, ids(1, 3)], [floats(1, 3, 4)]),
        graph("GATHER", [TABLE, ids(3)], [floats(3, 4)]),
    ),
    "blockwise-table": (
        graph("EMBEDDING_LOOKUP", [ids(3), constant(((9, 4), "INT4"), "blocks")], [floats(3, 4)]),
        graph("EMBEDDING_LOOKUP", [ids(3), constant(((9, 4), "INT4"))], [floats(3, 4)]),
    ),
    "constant-input": (
        graph("FULLY_CONNECTED", [TABLE, constant(floats(6, 4))], [floats(9, 6)]),
        graph("FULLY_CONNECTED", [floats(9, 4), constant(floats(6, 4))], [floats(9, 6)]),
    ),
    "dropped-axes": (
        graph("STRIDED_SLICE", [floats(1, 5, 4), *3 * [constant(ids(3))]], [floats(1, 4)], shrinkAxisMask=2),
        graph("STRIDED_SLICE", [floats(1, 5, 4), *3 * [constant(ids(3))]], [floats(1, 1, 4)], shrinkAxisMask=0),
    ),
    "computed-bounds": (
        graph("SLICE", [floats(1, 1, 5, 4), ids(4), constant(ids(4))], [floats(1, 1, 1, 4)]),
        graph("SLICE", [floats(1, 1, 5, 4), constant(ids(4)), constant(ids(4))], [floats(1, 1, 1, 4)]),
    ),
    "constant-start": (
        graph("DYNAMIC_UPDATE_SLICE", [floats(1, 3, 8, 4), floats(1, 3, 1, 4), constant(ids(4))], [floats(1, 3, 8, 4)]),
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
        graph("DEQUANTIZE", [((3, 4), "FLOAT16")], [floats(3, 4)]),
        graph("DEQUANTIZE", [constant(((3, 4), "FLOAT16"))], [floats(3, 4)]),
    ),
}


def same_operand(kind: str) -> Any:
    """Returns a model of an operator that reads one tensor twice."""
    model = graph(kind, [floats(1, 1, 5, 4), floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)])
    model.subgraphs[0].operators[0].inputs = [0, 0]
    return model


CASES["same-operand"] = same_operand("SUB"), same_operand("MUL")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_finds_its_operator_and_no_similar_one(rule):
    wrong, right = CASES[rule.name]
    (finding,) = look_at(wrong)
    assert (finding.rule, finding.effect, finding.source, finding.operators) == (rule.name, rule.effect, rule.source, 1)
    assert finding.example.endswith(", in graph 0")
    assert look_at(right) == ()


def test_a_finding_names_the_last_weight_before_it_and_the_signature():
    model = graph("FULLY_CONNECTED", [floats(1, 5, 4), INT8], [floats(1, 5, 6)], after="L2_NORMALIZATION")
    model.subgraphs[0].tensors[1].name = b"encoder/layer_0/output/kernel"
    signature = schema().SignatureDefT()
    signature.subgraphIndex, signature.signatureKey = 0, b"forward_16"
    model.signatureDefs = [signature]
    (finding,) = look_at(model)
    assert finding.example == "L2_NORMALIZATION after encoder/layer_0/output/kernel, in forward_16"

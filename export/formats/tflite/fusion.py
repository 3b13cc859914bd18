"""Fusion and removal of operators in a TFLite graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kerasformer.export.formats.tflite.graph_skeleton import Skeleton, has_bias, producers, readers

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as tflite


def fuse(skeleton: Skeleton) -> None:
    """Applies all transformations of this module to every graph."""
    for graph in skeleton.graphs:
        _drop_identities(skeleton, graph)
        _fold_biases(skeleton, graph)
        _keep_dimensions(skeleton, graph)
        _quantize_casts(skeleton, graph)


def _quantize_casts(skeleton: Skeleton, graph: tflite.SubGraphT) -> None:
    """Turns conversions between float32 and int8 into operators that round and limit, with the scale 1.

    The CPU kernels for them are vectorized, and LiteRT's delegate supports only these. All int8 tensors of a graph are
    caches, since weights are not yet stored.
    """
    types = skeleton.schema.TensorType
    for op in graph.operators:
        if skeleton.kind(op) == "CAST":
            pair = tuple(graph.tensors[int(index)].type for index in (op.inputs[0], op.outputs[0]))
            kind = {(types.FLOAT32, types.INT8): "QUANTIZE", (types.INT8, types.FLOAT32): "DEQUANTIZE"}.get(pair)
            if kind is not None:
                skeleton.recode(op, kind, 2)
                op.builtinOptions, op.builtinOptionsType = None, skeleton.schema.BuiltinOptions.NONE
    for tensor in graph.tensors:
        if tensor.type == types.INT8:
            tensor.quantization = skeleton.quantization([1.0])


def _drop_identities(skeleton: Skeleton, graph: tflite.SubGraphT) -> None:
    """Removes RESHAPEs to the same shape and STRIDED_SLICEs of a whole tensor, for which LiteRT would copy caches."""
    outputs = {int(i) for i in graph.outputs}
    same: dict[int, int] = {}
    kept = []
    for op in graph.operators:
        op.inputs = np.array([same.get(int(i), i) for i in op.inputs], np.int32)
        source, result = int(op.inputs[0]) if len(op.inputs) else -1, int(op.outputs[0])
        if result not in outputs and _is_identity(skeleton, graph, op):
            same[result] = source
        else:
            kept.append(op)
    graph.operators = kept


def _is_identity(skeleton: Skeleton, graph: tflite.SubGraphT, op: tflite.OperatorT) -> bool:
    if skeleton.kind(op) not in ("RESHAPE", "STRIDED_SLICE"):
        return False
    before, after = (graph.tensors[index].shape for index in (op.inputs[0], op.outputs[0]))
    if before is None or after is None or list(before) != list(after):
        return False
    if skeleton.kind(op) == "RESHAPE":
        return True
    strides = skeleton.model.buffers[graph.tensors[op.inputs[3]].buffer].data
    # A stride of -1 reverses an axis.
    return strides is not None and bool((np.frombuffer(bytes(strides), np.int32) == 1).all())


def _fold_biases(skeleton: Skeleton, graph: tflite.SubGraphT) -> None:
    """Fuses FULLY_CONNECTED with the ADD of a vector."""
    weights, produced, read = skeleton.weights_of(graph), producers(graph), readers(graph)
    folded = set()
    for op in graph.operators:
        if skeleton.kind(op) != "ADD":
            continue
        for x, bias in ((op.inputs[0], op.inputs[1]), (op.inputs[1], op.inputs[0])):
            product = produced.get(int(x))
            if product is None or skeleton.kind(product) != "FULLY_CONNECTED" or int(bias) not in weights:
                continue
            if len(graph.tensors[bias].shape) != 1 or read[int(x)] != 1 or has_bias(product):
                continue
            product.inputs = np.array([product.inputs[0], product.inputs[1], bias], np.int32)
            product.outputs = op.outputs
            product.builtinOptions.fusedActivationFunction = op.builtinOptions.fusedActivationFunction
            folded.add(id(op))
            break
    graph.operators = [op for op in graph.operators if id(op) not in folded]


def _keep_dimensions(skeleton: Skeleton, graph: tflite.SubGraphT) -> None:
    """Fuses RESHAPE to rows, FULLY_CONNECTED and RESHAPE back into one operator that keeps the leading dimensions."""
    produced, read = producers(graph), readers(graph)
    consumers = {int(i): op for op in graph.operators for i in op.inputs if read[int(i)] == 1}
    dropped: set[int] = set()
    for op in graph.operators:
        after = consumers.get(int(op.outputs[0]))
        if skeleton.kind(op) != "FULLY_CONNECTED" or after is None or skeleton.kind(after) != "RESHAPE":
            continue
        # The converter may have removed the first RESHAPE, since the operator supports any rank.
        before = produced.get(int(op.inputs[0]))
        sources = [int(op.inputs[0])]
        if before is not None and skeleton.kind(before) == "RESHAPE":
            sources.append(int(before.inputs[0]))
        width = int(graph.tensors[op.inputs[0]].shape[-1])
        expected = [*graph.tensors[after.outputs[0]].shape[:-1], width]
        for source in sources:
            if list(graph.tensors[source].shape) == expected:
                op.inputs = np.array([source, *op.inputs[1:]], np.int32)
                op.outputs = after.outputs
                op.builtinOptions.keepNumDims = True
                dropped.add(id(after))
                break
    graph.operators = [op for op in graph.operators if id(op) not in dropped]
    drop_dead(skeleton, graph, "RESHAPE")


def drop_dead(skeleton: Skeleton, graph: tflite.SubGraphT, *kinds: str) -> None:
    """Removes operators of some kinds whose results are unused."""
    read = readers(graph)
    graph.operators = [
        op for op in graph.operators if skeleton.kind(op) not in kinds or any(read[int(i)] for i in op.outputs)
    ]

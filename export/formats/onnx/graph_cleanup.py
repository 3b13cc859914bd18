"""Transformation of tf2onnx's graph into the final one: names, shapes, weights, and checks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from kerasformer.bundle import TensorInfo
from kerasformer.errors import ExportError
from kerasformer.export.formats.onnx.markers import MARKER_DOMAIN, Marker
from kerasformer.export.formats.onnx.nodes import NodeWriter
from kerasformer.export.formats.onnx.weights import StoredWeight, WeightStore

_PASS = ("Cast", "Identity", "Squeeze", "Unsqueeze")


def rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Renames inputs and outputs of the graph's nodes."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def canonize(graph: onnx.GraphProto, models: Collection[str]) -> None:
    """Gives nodes and constants a deterministic order and deterministic names, and removes unused ones.

    tf2onnx orders the nodes that it adds by hashes that differ between processes, and numbers them per process. Here,
    nodes and constants are put in the order in which the outputs need them. Values are named after their operator, such
    as `Reshape_12`; only markers keep the scope of their layer.

    Args:
        graph: The graph from tf2onnx, with the final names of the outputs.
        models: Names of Keras models, which are removed from the scopes.
    """
    nodes, outputs = _in_order(graph), [value.name for value in graph.output]
    read = dict.fromkeys([name for node in nodes for name in node.input] + outputs)
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    constants = [initializers[name] for name in read if name in initializers]
    names = {tensor.name: f"constant_{index}" for index, tensor in enumerate(constants)}
    for index, node in enumerate(nodes):
        for position, output in enumerate(node.output):
            plain = f"{node.op_type}_{index}" + (f":{position}" if position else "")
            names[output] = _below_models(output, models) if node.domain == MARKER_DOMAIN else plain
    names |= {name: name for name in ("", *outputs)}  # "" is an unused result
    _set_constants(graph, constants)
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
    _set_nodes(graph, nodes)
    rename(graph, names)
    for node in graph.node:
        node.name, node.doc_string = node.output[0], ""


def _in_order(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Returns the nodes that the outputs need in topological order."""
    producers = {output: index for index, node in enumerate(graph.node) for output in node.output if output}
    ordered: dict[int, onnx.NodeProto] = {}
    pending = [value.name for value in reversed(graph.output)]
    while pending:
        index = producers.get(pending[-1])
        if index is None or index in ordered:
            pending.pop()
            continue
        node = graph.node[index]
        missing = [name for name in node.input if name in producers and producers[name] not in ordered]
        pending.extend(reversed(missing))
        if not missing:
            ordered[index] = node
    return list(ordered.values())


def _below_models(output: str, models: Collection[str]) -> str:
    """Removes the model's name and TensorFlow's numbers from a scope.

    `bert/encoder_1/layer_0_1/kerasformer_marker_6:0` becomes `encoder/layer_0/kerasformer_marker_6:0`. Keras opens the
    scope of each layer twice, to build and to call it, and TensorFlow numbers the second one.
    """
    *scope, label = output.split("/")
    scope = [re.sub(r"_\d+$", "", part) for part in scope]
    return "/".join([*(scope[1:] if scope and scope[0] in models else scope), label])


def expand_markers(graph: onnx.GraphProto, markers: Sequence[Marker], writer: NodeWriter) -> None:
    """Replaces markers by the nodes of their primitives."""
    indices = {name: int(n.op_type) for n in graph.node if n.domain == MARKER_DOMAIN for name in n.output}
    names = {output: name for output in indices if (name := _readable(output, markers[indices[output]].kind))}
    outputs = {value.name for value in graph.output}
    rename(graph, {old: new for old, new in names.items() if old not in outputs})
    for node in graph.node:
        if node.domain == MARKER_DOMAIN:
            marker = markers[int(node.op_type)]
            writer.write(marker, dict(zip(marker.inputs, node.input, strict=True)), node.output)
        else:
            writer.nodes.append(node)
    _set_nodes(graph, writer.nodes)
    existing = {tensor.name for tensor in graph.initializer}  # constants of the same name have the same value
    graph.initializer.extend(tensor for name, tensor in writer.constants.items() if name not in existing)


def _readable(output: str, kind: str) -> str:
    """Names the result of a marker after its primitive.

    `encoder/layer_0/attention/kerasformer_marker_6:0` becomes `encoder/layer_0/attention/attention_6`. If there are
    several results, all except the first keep their number: `…/attention_6:1`.
    """
    scope, _, label = output.removesuffix(":0").rpartition("/")
    return f"{scope}/{kind}_{label.rpartition('_')[2]}".lstrip("/")


def attach_weights(graph: onnx.GraphProto, placeholders: Mapping[str, str], store: WeightStore) -> None:
    """Replaces placeholders by weights; transposed weights are stored transposed."""
    nodes, names = [], {}
    for node in graph.node:
        if node.op_type == "Transpose" and node.input[0] in placeholders:
            permutation = next(list(a.ints) for a in node.attribute if a.name == "perm")
            names[node.output[0]] = store.plain(placeholders[node.input[0]], permutation)
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.input} & set(placeholders)
    names |= {name: store.plain(placeholders[name]) for name in used}
    _set_nodes(graph, nodes)
    rename(graph, names)


def simplify_reshapes(graph: onnx.GraphProto) -> None:
    """Replaces computed targets of Reshape by constants in which 0 copies a dimension of the tensor.

    `reshape(x, (shape(x)[0], shape(x)[1], 12, 64))` needs eight nodes to compute its target, for every split and merge
    of heads at every token. The constant `(0, 0, 12, 64)` means the same.
    """
    producers = {output: node for node in graph.node for output in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    reader = _ShapeReader(producers, constants)
    for node in graph.node:
        if node.op_type != "Reshape":
            continue
        target = reader.target(node.input[0], node.input[1])
        if target is not None:
            name = "constant/" + "_".join(map(str, target))
            if name not in constants:
                constants[name] = numpy_helper.from_array(np.array(target, dtype="int64"), name)
                graph.initializer.append(constants[name])
            node.input[1] = name
    prune(graph)


class _ShapeReader:
    """Traces the computation of a Reshape's target back to the shapes that it reads."""

    def __init__(self, producers: Mapping[str, onnx.NodeProto], constants: Mapping[str, onnx.TensorProto]) -> None:
        self.producers, self.constants = producers, constants

    def target(self, tensor: str, shape: str) -> list[int] | None:
        """Returns the target with 0 for copied dimensions, or `None` if any other dimension has to be computed."""
        node = self._node(shape, "Concat")
        if node is None:
            return None
        origins = self._origins(tensor)
        target: list[int] = []
        for part in node.input:
            constant = self._constant(part)
            if constant is not None and (constant > 0).all():
                target += constant.reshape(-1).tolist()
            elif (axis := self._axis(part)) is not None and origins.get(axis) == len(target):
                target.append(0)
            else:
                return None
        return target

    def _origins(self, tensor: str) -> dict[tuple[str, int], int]:
        """Returns the axis of `tensor` for each of its axes, and for those of the tensor that it is a transpose of."""
        origins = {(tensor, axis): axis for axis in range(8)}
        node = self.producers.get(tensor)
        if node is not None and node.op_type == "Transpose":
            permutation = next(list(a.ints) for a in node.attribute if a.name == "perm")
            origins |= {(node.input[0], axis): position for position, axis in enumerate(permutation)}
        return origins

    def _axis(self, name: str) -> tuple[str, int] | None:
        """Returns the tensor and the axis whose size the value `name` is, or `None` if it is no such size."""
        node = self._node(name, "Slice")
        if node is None:
            return None
        start, end = self._constant(node.input[1]), self._constant(node.input[2])
        shape = self._node(node.input[0], "Shape")
        single = start is not None and end is not None and start.size == 1 and end.item() == start.item() + 1
        if shape is None or shape.attribute or not single or start is None or start.item() < 0:
            return None
        return shape.input[0], int(start.item())

    def _node(self, name: str, operator: str) -> onnx.NodeProto | None:
        node = self.producers.get(name)
        while node is not None and node.op_type in _PASS:
            node = self.producers.get(node.input[0])
        return node if node is not None and node.op_type == operator else None

    def _constant(self, name: str) -> np.ndarray | None:
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None


def prune(graph: onnx.GraphProto) -> None:
    """Removes unused nodes and constants."""
    needed = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    _set_nodes(graph, list(reversed(nodes)))
    _set_constants(graph, [tensor for tensor in graph.initializer if tensor.name in needed])


def declare(values: Mapping[str, TensorInfo]) -> list[onnx.ValueInfoProto]:
    """Returns declarations of inputs or outputs with their names, types and dimensions."""
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype)), list(info.shape))
        for name, info in values.items()
    ]


def refuse_foreign(graph: onnx.GraphProto, version: int) -> None:
    """Refuses nodes that are neither ONNX operators of this opset nor markers.

    Raises:
        ExportError: A TensorFlow operator was not converted.
    """
    foreign = sorted(
        {
            f"{node.op_type} ({node.name})"
            for node in graph.node
            if not (node.domain == MARKER_DOMAIN or onnx.defs.has(node.op_type, version, node.domain))
        }
    )
    if foreign:
        raise ExportError(
            f"The model uses operations without an operator in ONNX opset {version}. Received: {', '.join(foreign)}. "
            "Implement the layer with other keras.ops"
        )


def check(model: onnx.ModelProto, weights: Iterable[StoredWeight]) -> None:
    """Runs ONNX's checker.

    Args:
        model: The model without its weights.
        weights: The weights, which are passed to the checker as inputs to avoid copying them.

    Raises:
        ExportError: The checker reports an error.
    """
    complete = onnx.ModelProto()
    complete.CopyFrom(model)
    for weight in weights:
        complete.graph.input.append(helper.make_tensor_value_info(weight.name, weight.kind, list(weight.shape)))
    try:
        onnx.checker.check_model(complete, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"ONNX's checker rejects the graph: {error}") from error


def _set_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _set_constants(graph: onnx.GraphProto, tensors: Sequence[onnx.TensorProto]) -> None:
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]
    del graph.initializer[:]
    graph.initializer.extend(copies)

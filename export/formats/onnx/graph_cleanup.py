"""From the graph that tf2onnx leaves to the one that is published: names, shapes, weights, and nothing foreign."""

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
    """Renames tensors of the graph's nodes."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def canonize(graph: onnx.GraphProto, models: Collection[str]) -> None:
    """Order and names that tell what is computed, and nothing of how the graph came about.

    tf2onnx orders what it adds by hashes that differ between processes, and numbers it within one. Here nodes and
    constants stand in the order in which the outputs need them, and what no output needs is left out. Values are called
    after their operator, `Reshape_12`; only markers keep the scope of their layer.

    Args:
        graph: As tf2onnx leaves it, with the outputs' final names.
        models: Names of Keras models: scopes begin below them.
    """
    nodes, outputs = _in_order(graph), [value.name for value in graph.output]
    read = dict.fromkeys([name for node in nodes for name in node.input] + outputs)
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    constants = [initializers[name] for name in read if name in initializers]
    names = {tensor.name: f"constant_{index}" for index, tensor in enumerate(constants)}
    for index, node in enumerate(nodes):
        for place, output in enumerate(node.output):
            plain = f"{node.op_type}_{index}" + (f":{place}" if place else "")
            names[output] = _below_models(output, models) if node.domain == MARKER_DOMAIN else plain
    names |= {name: name for name in ("", *outputs)}  # "" is a result that nobody needs
    _set_constants(graph, constants)
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
    _set_nodes(graph, nodes)
    rename(graph, names)
    for node in graph.node:
        node.name, node.doc_string = node.output[0], ""


def _in_order(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes that the outputs need, each after those that it reads from."""
    makers = {output: index for index, node in enumerate(graph.node) for output in node.output if output}
    ordered: dict[int, onnx.NodeProto] = {}
    waiting = [value.name for value in reversed(graph.output)]
    while waiting:
        index = makers.get(waiting[-1])
        if index is None or index in ordered:
            waiting.pop()
            continue
        node = graph.node[index]
        missing = [name for name in node.input if name in makers and makers[name] not in ordered]
        waiting.extend(reversed(missing))
        if not missing:
            ordered[index] = node
    return list(ordered.values())


def _below_models(output: str, models: Collection[str]) -> str:
    """`bert/encoder_1/layer_0_1/kerasformer_marker_6:0` becomes `encoder/layer_0/kerasformer_marker_6:0`.

    Keras opens each layer's scope twice, to build and to call it, and TensorFlow numbers the second.
    """
    *scope, label = output.split("/")
    scope = [re.sub(r"_\d+$", "", part) for part in scope]
    return "/".join([*(scope[1:] if scope and scope[0] in models else scope), label])


def expand_markers(graph: onnx.GraphProto, markers: Sequence[Marker], writer: NodeWriter) -> None:
    """Replaces markers by the nodes of their primitives."""
    written = {name: int(n.op_type) for n in graph.node if n.domain == MARKER_DOMAIN for name in n.output}
    kept = {output: name for output in written if (name := _readable(output, markers[written[output]].kind))}
    outputs = {value.name for value in graph.output}
    rename(graph, {old: new for old, new in kept.items() if old not in outputs})
    for node in graph.node:
        if node.domain == MARKER_DOMAIN:
            marker = markers[int(node.op_type)]
            writer.write(marker, dict(zip(marker.inputs, node.input, strict=True)), node.output)
        else:
            writer.nodes.append(node)
    _set_nodes(graph, writer.nodes)
    present = {tensor.name for tensor in graph.initializer}  # a name says the value
    graph.initializer.extend(tensor for name, tensor in writer.constants.items() if name not in present)


def _readable(output: str, kind: str) -> str:
    """`encoder/layer_0/attention/kerasformer_marker_6:0` becomes `encoder/layer_0/attention/attention_6`.

    Where there are several results, those after the first keep their number: `…/attention_6:1`.
    """
    scope, _, label = output.removesuffix(":0").rpartition("/")
    return f"{scope}/{kind}_{label.rpartition('_')[2]}".lstrip("/")


def attach_weights(graph: onnx.GraphProto, placeholders: Mapping[str, str], store: WeightStore) -> None:
    """Lets nodes that read a weight's placeholder read the weight; a transpose of it is done once, in the file."""
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
    """Lets Reshape copy the dimensions that its target reads back from the tensor itself.

    `reshape(x, (shape(x)[0], shape(x)[1], 12, 64))` takes eight nodes to compute its target, for every split and merge
    of heads, at every token; Reshape itself means the same by `(0, 0, 12, 64)`.
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
    """Follows the computation of a Reshape's target back to the shapes it comes from."""

    def __init__(self, producers: Mapping[str, onnx.NodeProto], constants: Mapping[str, onnx.TensorProto]) -> None:
        self.producers, self.constants = producers, constants

    def target(self, tensor: str, shape: str) -> list[int] | None:
        """The target with 0 for copied dimensions; `None` if another dimension has to be computed."""
        node = self._node(shape, "Concat")
        if node is None:
            return None
        places = self._origins(tensor)
        target: list[int] = []
        for part in node.input:
            known = self._constant(part)
            if known is not None and (known > 0).all():
                target += known.reshape(-1).tolist()
            elif (axis := self._axis(part)) is not None and places.get(axis) == len(target):
                target.append(0)
            else:
                return None
        return target

    def _origins(self, tensor: str) -> dict[tuple[str, int], int]:
        """Where the axes of `tensor`, and of what it is a transpose of, are found in it."""
        places = {(tensor, axis): axis for axis in range(8)}
        node = self.producers.get(tensor)
        if node is not None and node.op_type == "Transpose":
            permutation = next(list(a.ints) for a in node.attribute if a.name == "perm")
            places |= {(node.input[0], axis): place for place, axis in enumerate(permutation)}
        return places

    def _axis(self, name: str) -> tuple[str, int] | None:
        """Tensor and axis whose size the value `name` is."""
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
    """Removes nodes and constants that no output needs."""
    needed = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    _set_nodes(graph, list(reversed(nodes)))
    _set_constants(graph, [tensor for tensor in graph.initializer if tensor.name in needed])


def declare(values: Mapping[str, TensorInfo]) -> list[onnx.ValueInfoProto]:
    """Inputs or outputs with their names, types and dimensions."""
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype)), list(info.shape))
        for name, info in values.items()
    ]


def refuse_foreign(graph: onnx.GraphProto, version: int) -> None:
    """Refuses operators that are neither ONNX's of this version nor markers.

    Raises:
        ExportError: an operator of TensorFlow's is left over.
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
            f"Every operation must have an operator in ONNX opset {version}. Received: {', '.join(foreign)}. "
            "Write the layer with other keras.ops"
        )


def check(model: onnx.ModelProto, weights: Iterable[StoredWeight]) -> None:
    """Runs ONNX's checker.

    Args:
        model: Without its weights, which the checker sees as inputs, so that they need not be copied for it.
        weights: Those.
    Raises:
        ExportError: the checker finds a fault.
    """
    complete = onnx.ModelProto()
    complete.CopyFrom(model)
    for weight in weights:
        complete.graph.input.append(helper.make_tensor_value_info(weight.name, weight.kind, list(weight.shape)))
    try:
        onnx.checker.check_model(complete, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"ONNX's checker refuses the graph: {error}") from error


def _set_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _set_constants(graph: onnx.GraphProto, tensors: Sequence[onnx.TensorProto]) -> None:
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]
    del graph.initializer[:]
    graph.initializer.extend(copies)

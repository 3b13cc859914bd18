"""Keras functions to ONNX files, without a weight passing through the converter.

A function is traced with every variable as an argument, tf2onnx converts this skeleton (it copies constants again and
again, so a model with weights would take minutes and tens of gigabytes), and the weights are written into the finished
graph straight from Keras, quantized on the way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import onnx
from onnx import helper, numpy_helper

from kerasformer import __version__
from kerasformer.errors import ExportError, require
from kerasformer.export.formats.onnx import graph_cleanup as onnx_graph
from kerasformer.export.formats.onnx.file_writer import ModelFile, write_models
from kerasformer.export.formats.onnx.fused import FusedWriter
from kerasformer.export.formats.onnx.markers import HANDLERS, MARKER_DOMAIN, Marker, OnnxLowering
from kerasformer.export.formats.onnx.matrix_nodes import StoragePlan
from kerasformer.export.formats.onnx.node_list import CONTRIB_DOMAIN
from kerasformer.export.formats.onnx.nodes import NodeWriter
from kerasformer.export.formats.onnx.weights import WeightStore
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.variable_names import by_path
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.layers.primitives import lowering
from kerasformer.progress import CountProgress

OPSET = 17
"""The default: what it lacks, ONNX Runtime makes of simpler operators, and old runtimes read it."""

NEWEST_OPSET = 23
_CONVERTED_OPSET = 18
"""The newest that tf2onnx writes. Later versions of the operators that it leaves only take more types."""

WRITERS = {"portable": NodeWriter, "ort": FusedWriter}

_converter = threading.Lock()  # two exports at once would restore each other's level of tf2onnx's log


def write_onnx(
    files: Mapping[Path, Function],
    variables: Sequence[keras.Variable],
    recipe: Recipe,
    *,
    profile: str = "ort",
    opset: int | None = None,
    calibration: Calibration | None = None,
    progress: CountProgress | None = None,
    converted: dict[Any, Any] | None = None,
) -> None:
    """Writes functions and their weights as ONNX files.

    Args:
        files: What each file computes; a function's names, their order and symbolic dimensions become the graph's.
        variables: All that the functions read. Those that none of them reads do not enter the files.
        recipe: How the matrices of `linear` and the tables of `embedding` are stored.
        profile: `"ort"` or `"portable"`; see `kerasformer.export.export`.
        opset: Version of the standard operators; 17 to 23, by default 17.
        calibration: For a recipe with static activations.
        progress: Told how far the writing of the weights is.
        converted: Graphs of earlier calls with the same functions, profile and opset, which need no conversion; those
            of this call are added.
    Raises:
        ExportError: an opset that is not known, or lacks what the recipe needs; a product without ranges; an operation
            that has no ONNX operator; a function that gives other outputs than it says, reads a variable that was not
            given, or does not compute in float32.
    """
    opset = _known(opset)
    named = by_path(variables)
    writer = WRITERS[profile]
    graphs = {} if converted is None else converted
    for path, function in files.items():
        if path not in graphs:
            graphs[path] = _convert(function, named, writer.lowering, opset)
    skeletons = {path: graphs[path] if converted is None else deepcopy(graphs[path]) for path in files}
    tied = _tied([marker for skeleton in skeletons.values() for marker in skeleton.markers])
    store = WeightStore(named)
    complete = {}
    for path, skeleton in skeletons.items():
        plan = StoragePlan(recipe, opset, calibration or {}, tied, skeleton.function.incremental)
        complete[path] = _complete(skeleton, store, writer(store, plan))
    write_models(complete, progress)


def _known(opset: int | None) -> int:
    """A version of the standard operators that is written here."""
    if opset is None:
        return OPSET
    if not OPSET <= opset <= NEWEST_OPSET:
        raise ExportError(
            f"opset must lie between {OPSET}, the first with LayerNormalization, and {NEWEST_OPSET}. Received: {opset}"
        )
    return opset


@dataclass(frozen=True)
class _Skeleton:
    """A converted function.

    Attributes:
        function: What was converted.
        model: Its graph, with markers for primitives and placeholders `weight_0`, … for weights.
        markers: The primitives.
    """

    function: Function
    model: onnx.ModelProto
    markers: list[Marker]


def _tied(markers: Sequence[Marker]) -> frozenset[str]:
    """Tables that are looked up and multiplied with."""
    tables = {marker.weights["table"] for marker in markers if marker.kind == "embedding"}
    return frozenset(tables.intersection(m.weights["kernel"] for m in markers if m.kind == "linear"))


def _complete(skeleton: _Skeleton, store: WeightStore, nodes: NodeWriter) -> ModelFile:
    """The graph with nodes for the primitives and weights for the placeholders, checked."""
    model, graph = skeleton.model, skeleton.model.graph
    defaults = skeleton.function.defaults
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in defaults.items())
    onnx_graph.simplify_reshapes(graph)
    onnx_graph.attach_weights(graph, {f"weight_{i}": name for i, name in enumerate(store.variables)}, store)
    nodes.merge(graph, skeleton.markers)
    onnx_graph.expand_markers(graph, skeleton.markers, nodes)
    _set_versions(model, nodes.opset)
    helper.set_model_props(model, nodes.metadata)
    read = {name for node in graph.node for name in node.input}
    weights = {name: weight for name, weight in store.stored.items() if name in read}
    onnx_graph.check(model, weights.values())
    return ModelFile(model, weights, skeleton.function.alone)


def _convert(
    function: Function, named: dict[str, keras.Variable], lowering_type: type[OnnxLowering], opset: int
) -> _Skeleton:
    """Traces and converts."""
    paths = {id(variable): name for name, variable in named.items()}
    concrete, _ = _trace(function, named, list(named), lowering_type(paths, opset))
    # Markers know their weights by name, so few arguments are read; the converter allocates each that there is.
    stand_ins = concrete.inputs[len(function.inputs) :]
    read = [name for name, tensor in zip(named, stand_ins, strict=True) if tensor.consumers()]
    concrete, markers = _trace(function, named, read, lowering_type(paths, opset))
    try:
        with _quiet_tf2onnx():
            model = _to_model(concrete, min(opset, _CONVERTED_OPSET))
    except Exception as error:  # tf2onnx raises whatever its parts raise
        raise ExportError(f"tf2onnx cannot convert the function {function.name!r}: {error}") from error
    _declare(model.graph, function, [tensor.name for tensor in concrete.outputs])
    onnx_graph.refuse_foreign(model.graph, opset)
    onnx_graph.canonize(model.graph, {variable.path.partition("/")[0] for variable in named.values()})
    return _Skeleton(function, model, markers)


def _declare(graph: onnx.GraphProto, function: Function, results: Sequence[str]) -> None:
    """The function's own names, shapes and types; `results` are TensorFlow's names of the outputs."""
    # Outputs first: an input that is also an output keeps the input's name.
    names = {f"input_{index}": name for index, name in enumerate(function.inputs)}
    onnx_graph.rename(graph, names | dict(zip(results, function.outputs, strict=True)))
    graph.name, graph.doc_string = function.name, ""
    del graph.input[:], graph.output[:], graph.value_info[:]
    graph.input.extend(onnx_graph.declare(function.inputs))
    graph.output.extend(onnx_graph.declare(function.outputs))


def _trace(
    function: Function, named: dict[str, keras.Variable], read: list[str], marking: OnnxLowering
) -> tuple[Any, list[Marker]]:
    """The graph of a function over its inputs and the weights of these names, and the markers in it."""
    tf = require("tensorflow", "export")
    arguments = [
        tf.TensorSpec([None if isinstance(size, str) else size for size in info.shape], info.dtype, f"input_{index}")
        for index, info in enumerate(function.inputs.values())
    ]
    weights = [
        tf.TensorSpec(variable.shape, keras.backend.standardize_dtype(variable.dtype), f"weight_{index}")
        for index, (name, variable) in enumerate(named.items())
        if name in read
    ]

    def body(*values: Any) -> list[Any]:
        given, stand_ins = values[: len(arguments)], values[len(arguments) :]
        mapping = list(zip([named[name] for name in read], stand_ins, strict=True))
        with keras.StatelessScope(state_mapping=mapping), lowering(marking):
            results = function.call(**dict(zip(function.inputs, given, strict=True)))
        if set(results) != set(function.outputs):
            raise ExportError(
                f"The function {function.name!r} must give {list(function.outputs)}. Received: {list(results)}"
            )
        return [tf.identity(results[name]) for name in function.outputs]

    traced = tf.function(body, input_signature=arguments + weights, autograph=False)
    concrete = traced.get_concrete_function()
    if any(tensor.dtype == tf.resource for tensor in concrete.captured_inputs):
        raise ExportError(f"The function {function.name!r} reads a variable that was not given to the exporter")
    return concrete, marking.markers


def _to_model(concrete: Any, opset: int) -> onnx.ModelProto:
    """A traced function as ONNX: `tf2onnx.convert.from_function`, which takes no list of optimizers."""
    tf = require("tensorflow", "export")
    inputs, outputs = ([tensor.name for tensor in tensors] for tensors in (concrete.inputs, concrete.outputs))
    names = require("tf2onnx.convert", "export").tensor_names_from_structed(concrete, inputs, outputs)
    optimizer = require("tf2onnx.optimizer", "export")
    optimizers = dict(optimizer._get_optimizers())
    # It merges two Reshapes whose zeros mean dimensions of different tensors.
    optimizers.pop("remove_back_to_back", None)
    with tf.device("/cpu:0"):
        frozen = require("tf2onnx.tf_loader", "export").from_function(concrete, inputs, outputs)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(frozen, name="")
            converted = require("tf2onnx.tfonnx", "export").process_tf_graph(
                graph,
                continue_on_error=True,
                opset=opset,
                custom_op_handlers=dict(HANDLERS),
                extra_opset=[helper.make_opsetid(MARKER_DOMAIN, 1)],
                input_names=inputs,
                output_names=outputs,
                tensors_to_rename=names,
            )
            optimized = optimizer.optimize_graph(converted, optimizers=optimizers)
            return optimized.make_model(f"converted from {concrete.name}")


@contextmanager
def _quiet_tf2onnx() -> Iterator[None]:
    """tf2onnx without its log: faults are found in the graph itself."""
    log = logging.getLogger("tf2onnx")
    with _converter:
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            log.setLevel(level)


def _set_versions(model: onnx.ModelProto, opset: int) -> None:
    opsets = [helper.make_opsetid("", opset)]
    if any(node.domain == CONTRIB_DOMAIN for node in model.graph.node):
        opsets.append(helper.make_opsetid(CONTRIB_DOMAIN, 1))
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    model.ir_version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    model.producer_name, model.producer_version = "kerasformer", __version__

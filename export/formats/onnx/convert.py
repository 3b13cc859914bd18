"""Conversion of Keras functions to ONNX files, without passing weights to the converter.

A function is traced with every variable as an argument, and tf2onnx converts this skeleton. (It copies constants
repeatedly, so that a model with weights would take minutes and tens of gigabytes.) The weights are then written into
the finished graph directly from Keras, and quantized as they are written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import onnx
from onnx import helper, numpy_helper

from kerasformer import __version__
from kerasformer.basics.progress import CountProgress
from kerasformer.bundle.recipes import Recipe
from kerasformer.errors import ExportError
from kerasformer.export.formats.base import Converted
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
from kerasformer.extras import require
from kerasformer.layers.primitives import lowering
from kerasformer.layers.tensor import Tensor

if TYPE_CHECKING:
    import tensorflow as tf

OPSET = 17
"""Default opset. Old runtimes support it, and ONNX Runtime fuses the simple operators that replace newer ones."""

NEWEST_OPSET = 23
_CONVERTED_OPSET = 18
"""Newest opset that tf2onnx writes. For the operators that it writes, later versions only support more types."""

WRITERS = {"portable": NodeWriter, "ort": FusedWriter}

_log_lock = threading.Lock()  # concurrent exports would restore each other's log level of tf2onnx


def write_onnx(
    files: Mapping[Path, Function],
    variables: Sequence[keras.Variable],
    recipe: Recipe,
    *,
    profile: str = "ort",
    opset: int | None = None,
    calibration: Calibration | None = None,
    progress: CountProgress | None = None,
    converted: Converted | None = None,
) -> dict[Path, frozenset[str]]:
    """Writes functions and their weights as ONNX files.

    Args:
        files: The function of each file. The graph has its names, their order and its symbolic dimensions.
        variables: All variables that the functions read. Unused variables are not stored.
        recipe: How the matrices of products and the embedding tables are stored.
        profile: `"ort"` or `"portable"`; see `kerasformer.export.Onnx`.
        opset: Version of the standard operators, from 17 (the default) to 23.
        calibration: Activation ranges: required for a recipe with static activations; with dynamic ones, inputs of
            products are scaled by them.
        progress: Called with the number of bytes of weights that are written, and the total.
        converted: Cache of converted graphs, for several calls with the same functions, profile and opset.

    Returns:
        For each file, the inputs that may share a buffer with the output that continues them.

    Raises:
        ExportError: The opset is unsupported or lacks an operator for the recipe; the ranges of a product are missing;
            an operation has no ONNX operator; or a function returns undeclared outputs, reads a variable that was not
            passed, or does not compute in float32.
    """
    opset = _supported(opset)
    matrices = {id(variable) for function in files.values() for variable in function.matrices.values()}
    named = by_path([variable for variable in variables if id(variable) not in matrices])
    writer = WRITERS[profile]
    graphs = {} if converted is None else converted
    for function in files.values():
        if function.name not in graphs:  # the path also depends on the recipe
            graphs[function.name] = _convert(function, named, writer.lowering, opset)
    skeletons = {
        path: graphs[function.name] if converted is None else graphs[function.name].copy()
        for path, function in files.items()
    }
    tied = _tied_tables([marker for skeleton in skeletons.values() for marker in skeleton.markers])
    store = WeightStore(named)
    complete, in_place = {}, {}
    for path, skeleton in skeletons.items():
        plan = StoragePlan(recipe, opset, calibration or {}, tied, skeleton.function.incremental)
        nodes = writer(store, plan)
        complete[path] = _complete(skeleton, store, nodes)
        in_place[path] = frozenset(nodes.in_place)
    write_models(complete, progress)
    return in_place


def _supported(opset: int | None) -> int:
    """Returns the opset, or the default, after checking that it is supported."""
    if opset is None:
        return OPSET
    if not OPSET <= opset <= NEWEST_OPSET:
        raise ExportError(
            f"opset must be between {OPSET}, the first with LayerNormalization, and {NEWEST_OPSET}. Received: {opset}"
        )
    return opset


@dataclass(frozen=True)
class _Skeleton:
    """A converted function.

    Attributes:
        function: The function.
        model: Its graph, with markers for primitives and placeholders `weight_0`, … for weights.
        markers: The markers in the graph.
    """

    function: Function
    model: onnx.ModelProto
    markers: list[Marker]

    def copy(self) -> _Skeleton:
        """Returns a copy whose graph and markers can be changed."""
        return _Skeleton(self.function, *deepcopy((self.model, self.markers)))


def _tied_tables(markers: Sequence[Marker]) -> frozenset[str]:
    """Returns the tables that are used in both lookups and products."""
    tables = {marker.weights["table"] for marker in markers if marker.kind == "embedding"}
    return frozenset(tables.intersection(m.weights["kernel"] for m in markers if m.kind == "linear"))


def _complete(skeleton: _Skeleton, store: WeightStore, nodes: NodeWriter) -> ModelFile:
    """Replaces markers by nodes and placeholders by weights, and checks the result."""
    model, graph = skeleton.model, skeleton.model.graph
    defaults = skeleton.function.defaults
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in defaults.items())
    onnx_graph.simplify_reshapes(graph)
    onnx_graph.attach_weights(graph, {f"weight_{i}": name for i, name in enumerate(store.variables)}, store)
    nodes.merge(graph, skeleton.markers)
    onnx_graph.expand_markers(graph, skeleton.markers, nodes)
    _set_versions(model, nodes.opset)
    read = {name for node in graph.node for name in node.input}
    weights = {name: weight for name, weight in store.stored.items() if name in read}
    onnx_graph.check(model, weights.values())
    return ModelFile(model, weights, skeleton.function.standalone)


def _convert(
    function: Function, named: dict[str, keras.Variable], lowering_type: type[OnnxLowering], opset: int
) -> _Skeleton:
    paths = {id(variable): name for name, variable in named.items()}
    concrete, markers = _trace(function, named, lowering_type(paths, opset))
    try:
        with _quiet_tf2onnx():
            model = _to_model(concrete, len(function.inputs), min(opset, _CONVERTED_OPSET))
    except Exception as error:  # tf2onnx raises whatever its parts raise
        raise ExportError(f"tf2onnx cannot convert the function {function.name!r}: {error}") from error
    _declare(model.graph, function, [tensor.name for tensor in concrete.outputs])
    onnx_graph.refuse_foreign(model.graph, opset)
    onnx_graph.canonize(model.graph, {variable.path.partition("/")[0] for variable in named.values()})
    return _Skeleton(function, model, markers)


def _declare(graph: onnx.GraphProto, function: Function, results: Sequence[str]) -> None:
    """Sets the function's names, shapes and types; `results` are TensorFlow's names of the outputs."""
    # An input that is also an output keeps the input's name.
    names = {f"input_{index}": name for index, name in enumerate(function.inputs)}
    onnx_graph.rename(graph, names | dict(zip(results, function.outputs, strict=True)))
    graph.name, graph.doc_string = function.name, ""
    del graph.input[:], graph.output[:], graph.value_info[:]
    graph.input.extend(onnx_graph.declare(function.inputs))
    graph.output.extend(onnx_graph.declare(function.outputs))


def _trace(
    function: Function, named: dict[str, keras.Variable], marker_lowering: OnnxLowering
) -> tuple[tf.types.experimental.ConcreteFunction, list[Marker]]:
    """Traces a function over its inputs and all weights; returns the graph and its markers."""
    tf = require("tensorflow", "export")
    arguments = [
        tf.TensorSpec([None if isinstance(size, str) else size for size in info.shape], info.dtype, f"input_{index}")
        for index, info in enumerate(function.inputs.values())
    ]
    weights = [
        tf.TensorSpec(variable.shape, _placeholder_dtype(variable), f"weight_{index}")
        for index, variable in enumerate(named.values())
    ]

    def body(*values: Tensor) -> list[Tensor]:
        inputs, placeholders = values[: len(arguments)], values[len(arguments) :]
        scope = keras.StatelessScope()
        # Not an argument of the scope, which would round the placeholders of matrices that are stored in 16 bits.
        scope.state_mapping = dict(zip(map(id, named.values()), placeholders, strict=True))
        arguments_by_name = dict(zip(function.inputs, inputs, strict=True))
        for name, variable in function.matrices.items():
            scope.state_mapping[id(variable)] = (
                arguments_by_name.pop(name) if name in arguments_by_name else tf.zeros(variable.shape)
            )
        with scope, lowering(marker_lowering):
            results = function.call(**arguments_by_name)
        if set(results) != set(function.outputs):
            raise ExportError(
                f"The function {function.name!r} must return {list(function.outputs)}. Received: {list(results)}"
            )
        return [tf.identity(results[name]) for name in function.outputs]

    traced = tf.function(body, input_signature=arguments + weights, autograph=False)
    concrete = traced.get_concrete_function()
    if any(tensor.dtype == tf.resource for tensor in concrete.captured_inputs):
        raise ExportError(
            f"The function {function.name!r} reads a variable that was not passed. Expected: all variables of the model"
        )
    return concrete, marker_lowering.markers


def _placeholder_dtype(variable: keras.Variable) -> str:
    """Returns the data type of a weight in the graph: float32 for matrices that are stored in 16 bits."""
    dtype: str = keras.backend.standardize_dtype(variable.dtype)
    return "float32" if dtype in ("bfloat16", "float16") and len(variable.shape) == 2 else dtype


def _to_model(concrete: tf.types.experimental.ConcreteFunction, count: int, opset: int) -> onnx.ModelProto:
    """Converts a traced function like `tf2onnx.convert.from_function`, which has no parameter for the optimizers.

    Its arguments are `count` inputs and then weights. Markers refer to most weights by name, so that few of them are
    used; the converter would allocate memory for the others.
    """
    tf = require("tensorflow", "export")
    inputs, outputs = ([tensor.name for tensor in tensors] for tensors in (concrete.inputs, concrete.outputs))
    names = require("tf2onnx.convert", "export").tensor_names_from_structed(concrete, inputs, outputs)
    inputs = inputs[:count] + [tensor.name for tensor in concrete.inputs[count:] if tensor.consumers()]
    optimizer = require("tf2onnx.optimizer", "export")
    optimizers = dict(optimizer._get_optimizers())
    # It wrongly merges two Reshapes whose zeros refer to dimensions of different tensors.
    optimizers.pop("remove_back_to_back", None)
    with tf.device("/cpu:0"):
        frozen = require("tf2onnx.tf_loader", "export").from_function(concrete, inputs, outputs)

    def converted(skip_failed: bool) -> onnx.ModelProto:
        with tf.device("/cpu:0"), tf.Graph().as_default() as graph:
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
            optimized = optimizer.optimize_graph(converted, skip_failed, optimizers)
            return optimized.make_model(f"converted from {concrete.name}")

    try:
        return converted(skip_failed=False)
    except Exception:
        # To skip an optimizer that fails, tf2onnx copies the graph before each, which takes half of the conversion.
        return converted(skip_failed=True)


@contextmanager
def _quiet_tf2onnx() -> Iterator[None]:
    """Silences the log of tf2onnx, since errors are detected in the graph itself."""
    log = logging.getLogger("tf2onnx")
    with _log_lock:
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

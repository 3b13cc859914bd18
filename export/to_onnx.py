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
from pathlib import Path
from typing import Any

import keras
import onnx
from onnx import helper

from kerasformer import __version__
from kerasformer.errors import ExportError, require
from kerasformer.export import onnx_graph
from kerasformer.export.calibration import Calibration
from kerasformer.export.functions import Function
from kerasformer.export.onnx_fused import FusedWriter
from kerasformer.export.onnx_markers import HANDLERS, MARKER_DOMAIN, Marker, OnnxLowering
from kerasformer.export.onnx_nodes import CONTRIB_DOMAIN, NodeWriter
from kerasformer.export.onnx_weights import Progress, WeightStore, write_model
from kerasformer.export.recipes import Recipe
from kerasformer.layers.primitives import lowering

OPSET = 17
IR_VERSION = 8

WRITERS = {"portable": NodeWriter, "ort": FusedWriter}

_converter = threading.Lock()  # tf2onnx's list of optimizers is global


def write_onnx(
    files: Mapping[Path, Function],
    variables: Sequence[keras.Variable],
    recipe: Recipe,
    *,
    profile: str = "ort",
    opset: int | None = None,
    calibration: Calibration | None = None,
    progress: Progress | None = None,
) -> None:
    """Writes functions and their weights as ONNX files.

    Args:
        files: What each file computes; a function's names, their order and symbolic dimensions become the graph's.
        variables: All that the functions read. Those that none of them reads do not enter the files.
        recipe: How the matrices of `linear` and the tables of `embedding` are stored.
        profile: `"ort"` or `"portable"`; see `kerasformer.export.export`.
        opset: Version of the standard operators.
        calibration: For a recipe with static activations.
        progress: Told how far the writing of the weights is.
    Raises:
        ExportError: an operation has no ONNX operator; a function gives other outputs than it says, reads a
            variable that was not given, or does not compute in float32.
    """
    for path, function in files.items():
        _write(function, variables, recipe, path, WRITERS[profile], progress)


def _write(
    function: Function,
    variables: Sequence[keras.Variable],
    recipe: Recipe,
    path: Path,
    writer: type[NodeWriter],
    progress: Progress | None,
) -> None:
    named = _names(variables)
    markers, names, model = _convert(function, named, writer.lowering)
    store = WeightStore(named)
    graph = model.graph
    graph.name = function.name
    # Outputs first: an input that is also an output keeps the input's name.
    onnx_graph.rename(graph, names)
    del graph.input[:], graph.output[:], graph.value_info[:]
    graph.input.extend(onnx_graph.declare(function.inputs))
    graph.output.extend(onnx_graph.declare(function.outputs))
    onnx_graph.simplify_reshapes(graph)
    onnx_graph.attach_weights(graph, {f"weight_{i}": name for i, name in enumerate(named)}, store)
    nodes = writer(store, recipe)
    nodes.merge(graph, markers)
    onnx_graph.expand_markers(graph, markers, nodes)
    _set_versions(model)
    weights = list(store.stored.values())
    onnx_graph.check(model, weights)
    write_model(model, weights, path, progress)


def _names(variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    """Variables by their path, made unique."""
    named: dict[str, keras.Variable] = {}
    for variable in variables:
        name, count = variable.path, 1
        while name in named:
            name, count = f"{variable.path}_{count}", count + 1
        named[name] = variable
    return named


def _convert(
    function: Function, named: dict[str, keras.Variable], lowering_type: type[OnnxLowering]
) -> tuple[list[Marker], dict[str, str], onnx.ModelProto]:
    """Traces and converts; returns the markers, the names that tensors shall have, and the skeleton."""
    converter = require("tf2onnx.convert", "export")
    _, concrete, _ = _trace(function, named, list(named), lowering_type)
    # Markers know their weights by name, so few arguments are read; the converter allocates each that there is.
    stand_ins = concrete.inputs[len(function.inputs) :]
    read = [name for name, tensor in zip(named, stand_ins, strict=True) if tensor.consumers()]
    traced, concrete, markers = _trace(function, named, read, lowering_type)
    try:
        with _quiet_tf2onnx():
            model, _ = converter.from_function(
                traced,
                input_signature=traced.input_signature,
                opset=OPSET,
                custom_op_handlers=dict(HANDLERS),
                extra_opset=[helper.make_opsetid(MARKER_DOMAIN, 1)],
            )
    except Exception as error:  # tf2onnx raises whatever its parts raise
        raise ExportError(f"tf2onnx cannot convert the function {function.name!r}: {error}") from error
    names = {f"input_{index}": name for index, name in enumerate(function.inputs)}
    names |= {tensor.name: name for tensor, name in zip(concrete.outputs, function.outputs, strict=True)}
    return markers, names, model


def _trace(
    function: Function, named: dict[str, keras.Variable], read: list[str], lowering_type: type[OnnxLowering]
) -> tuple[Any, Any, list[Marker]]:
    """The TensorFlow function over the inputs and the weights of these names; its only trace, and the markers in it."""
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
    marking = lowering_type({id(variable): name for name, variable in named.items()})

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
    return traced, concrete, marking.markers


@contextmanager
def _quiet_tf2onnx() -> Iterator[None]:
    """tf2onnx without an optimizer that is wrong, and without its log: faults are found in the graph itself."""
    optimizers = require("tf2onnx.optimizer", "export")._optimizers
    log = logging.getLogger("tf2onnx")
    with _converter:
        before, level = dict(optimizers), log.level
        # It merges two Reshapes whose zeros mean dimensions of different tensors.
        optimizers.pop("remove_back_to_back", None)
        log.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            log.setLevel(level)
            optimizers.clear()
            optimizers.update(before)


def _set_versions(model: onnx.ModelProto) -> None:
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "kerasformer", __version__
    contrib = any(node.domain == CONTRIB_DOMAIN for node in model.graph.node)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", OPSET))
    if contrib:
        model.opset_import.append(helper.make_opsetid(CONTRIB_DOMAIN, 1))

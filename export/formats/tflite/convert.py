"""Keras functions to one TFLite file, a signature each, without a weight passing through TensorFlow's converter.

The functions are traced with every variable as an argument. The converter then sees a skeleton of a few hundred
kilobytes, whatever the size of the model; `tflite_weights` and `flatbuffer` turn those arguments into constants
afterwards, quantized straight from the Keras values, each stored once for all signatures.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasformer.bundle import TensorInfo
from kerasformer.errors import ExportError, argument
from kerasformer.export.formats.tflite.flatbuffer import MAX_BYTES, write
from kerasformer.export.formats.tflite.fusion import fuse
from kerasformer.export.formats.tflite.graph_skeleton import Skeleton
from kerasformer.export.formats.tflite.lowering import TfliteLowering, tensorflow
from kerasformer.export.formats.tflite.storage import form_of
from kerasformer.export.formats.tflite.weights import store_weights
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.saving import save_module
from kerasformer.export.graph.variable_names import by_path
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.layers.primitives import lowering
from kerasformer.layers.tensor import Tensor
from kerasformer.progress import CountProgress


@dataclass(frozen=True)
class VariableWeight:
    """A variable as the file stores it: kernels output-first, as FULLY_CONNECTED reads them.

    Attributes:
        argument: Name of the traced functions' argument that stands for it.
        name: Readable name of its tensor.
        transposed: It is stored as the transpose of the variable's value.
    """

    argument: str
    name: str
    variable: keras.Variable
    transposed: bool = False

    @property
    def path(self) -> str:
        """Path of the Keras variable, which recipes know it by."""
        return str(self.variable.path)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape as stored."""
        shape = tuple(self.variable.shape)
        return shape[::-1] if self.transposed else shape

    def value(self) -> np.ndarray:
        """The value as stored (a transpose is a view)."""
        value = self.variable.value.numpy()
        return value.T if self.transposed else value


def write_tflite(
    functions: Sequence[Function],
    variables: Sequence[keras.Variable],
    recipe: Recipe,
    path: Path,
    calibration: Calibration | None = None,
    progress: CountProgress | None = None,
    converted: dict[Any, Any] | None = None,
) -> None:
    """Writes functions and weights as one TFLite file.

    Args:
        functions: One signature each; static shapes, int32 and float32 tensors.
        variables: All that the functions read. Variables that none of them reads do not enter the file.
        recipe: How weights are stored.
        path: The file, overwritten.
        calibration: For a recipe with static activations.
        progress: Told how far the writing of the weights is.
        converted: Graphs of earlier calls with the same functions, which need no conversion; those of this call are
            added.
    Raises:
        ExportError: the file would exceed 2 GB; a tensor has a symbolic dimension or another dtype; an operation has
            no TFLite operator; a function reads a variable that was not given.
    """
    _check_interface(functions)
    _check_size(variables, recipe)
    weights = _weights(variables)
    graphs = {} if converted is None else converted
    form = recipe if recipe.activations == "float" else None  # all that a graph depends on
    if form not in graphs:
        graphs[form] = _convert(functions, weights, recipe)
    skeleton = Skeleton(graphs[form], {weight.argument: weight for weight in weights})
    fuse(skeleton)
    store_weights(skeleton, recipe, calibration)
    skeleton.finish()
    skeleton.check({function.name: (function.inputs, function.outputs) for function in functions})
    write(skeleton, path, progress)


def _check_interface(functions: Sequence[Function]) -> None:
    for function in functions:
        for name, info in {**function.inputs, **function.outputs}.items():
            if any(isinstance(size, str) for size in info.shape):
                raise ExportError(f"TFLite needs static shapes. Received: {info.shape} for {name} of {function.name}")
            if info.dtype not in ("int32", "float32"):
                raise ExportError(
                    f"TFLite signatures take and give int32 and float32. Received: {info.dtype} for {name} of "
                    f"{function.name}"
                )


def _check_size(variables: Sequence[keras.Variable], recipe: Recipe) -> None:
    """Refuses before the work starts what a flatbuffer, with its 32-bit offsets, cannot hold.

    Only the graphs will tell which matrices are tables, so each counts as the smaller of both: nothing that fits is
    refused here, and the writer has the last word.
    """
    size = 0
    for variable in {id(v): v for v in variables}.values():
        shape = tuple(variable.shape)
        size += min(form_of(recipe, variable.path, shape, table).num_bytes(shape) for table in (False, True))
    if size > MAX_BYTES:
        raise ExportError(
            f"A TFLite file holds less than 2 GB. Received: {size / 1e9:.2f} GB of weights with the recipe "
            f"{recipe.name!r}. Take a recipe with fewer bits, such as {argument('quantize', 'int8')}, or "
            f"{argument('format', 'onnx')}"
        )


def _weights(variables: Sequence[keras.Variable]) -> list[VariableWeight]:
    """Two candidates for every matrix, one per layout; those that no function reads fall away in the skeleton."""
    weights = []
    for index, (name, variable) in enumerate(by_path(list({id(v): v for v in variables}.values())).items()):
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if "int" in dtype or dtype == "bool":
            continue  # states of random generators, which inference does not read
        if dtype != "float32":
            raise ExportError(f"TFLite export needs float32 variables. Received: {dtype} for {variable.path}")
        weights.append(VariableWeight(f"weight_{index}", name, variable))
        if len(variable.shape) == 2:
            weights.append(VariableWeight(f"weight_{index}_transposed", name, variable, transposed=True))
    return weights


def _trace(function: Function, weights: Sequence[VariableWeight], recipe: Recipe) -> Any:
    """The function as a TensorFlow graph whose arguments are its inputs and all weights."""
    tf = tensorflow()

    def call(**tensors: Tensor) -> dict[str, Tensor]:
        tables = {id(w.variable): tensors[w.argument] for w in weights if not w.transposed}
        kernels = {id(w.variable): tensors[w.argument] for w in weights if w.transposed}
        mapping = [(w.variable, tensors[w.argument]) for w in weights if not w.transposed]
        with keras.StatelessScope(state_mapping=mapping), lowering(TfliteLowering(recipe, kernels, tables)):
            results = function.call(**{name: tensors[name] for name in function.inputs})
        if set(results) != set(function.outputs):
            raise ExportError(f"{function.name} must give {sorted(function.outputs)}. Received: {sorted(results)}")
        return {name: _declared(results[name], info, name) for name, info in function.outputs.items()}

    arguments = {name: tf.TensorSpec(info.shape, info.dtype) for name, info in function.inputs.items()}
    arguments |= {weight.argument: tf.TensorSpec(weight.shape, "float32") for weight in weights}
    graph = tf.function(call, autograph=False).get_concrete_function(**arguments)
    if any(tensor.dtype == tf.resource for tensor in graph.captured_inputs):
        raise ExportError(
            f"{function.name} reads a variable that is not among those given. Expected: every variable of the model"
        )
    return graph


def _declared(result: Tensor, info: TensorInfo, name: str) -> Tensor:
    """The result, once it is what the function declares."""
    received = (tuple(result.shape), keras.backend.standardize_dtype(result.dtype))
    if received != (tuple(info.shape), info.dtype):
        raise ExportError(f"{name} must be {info.dtype} {info.shape}. Received: {received[1]} {received[0]}")
    return tensorflow().identity(result)


def _convert(functions: Sequence[Function], weights: Sequence[VariableWeight], recipe: Recipe) -> bytes:
    """The skeleton: all signatures, every weight still an input."""
    tf = tensorflow()
    module = tf.Module()
    # Tracked by the module, so that saving finds what the graphs hold on to.
    module.graphs = {function.name: _trace(function, weights, recipe) for function in functions}
    with tempfile.TemporaryDirectory(prefix="kerasformer-") as folder:
        try:
            save_module(module, folder, module.graphs)
            converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=list(module.graphs))
            # What has no TFLite operator stays in the graph as a custom one, where the check finds and names it.
            converter.allow_custom_ops = True
            return bytes(converter.convert())
        except Exception as error:
            raise ExportError(f"TensorFlow's TFLite converter failed: {error}") from error

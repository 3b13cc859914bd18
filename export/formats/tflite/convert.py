"""Conversion of Keras functions to one TFLite file with a signature for each, without passing weights to the converter.

The functions are traced with every variable as an argument, so that the converter processes only a skeleton of a few
hundred kilobytes, whatever the size of the model. The modules `weights` and `flatbuffer` then turn these arguments into
constants, quantized directly from the Keras values and stored once for all signatures.
"""

from __future__ import annotations

import gc
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np

from kerasformer.basics.progress import CountProgress
from kerasformer.bundle import GpuFinding, TensorInfo
from kerasformer.bundle.recipes import OFFSETS, Recipe
from kerasformer.engines.litert.gpu_rules import look_at
from kerasformer.errors import ExportError
from kerasformer.export.formats.base import Converted
from kerasformer.export.formats.tflite.flatbuffer import MAX_BYTES, write
from kerasformer.export.formats.tflite.fusion import fuse
from kerasformer.export.formats.tflite.gpu_graph import lower_for_gpu
from kerasformer.export.formats.tflite.graph_skeleton import Skeleton
from kerasformer.export.formats.tflite.lowering import TfliteLowering, tensorflow
from kerasformer.export.formats.tflite.storage import form_of
from kerasformer.export.formats.tflite.weights import store_weights
from kerasformer.export.graph.functions import Function, spanning
from kerasformer.export.graph.variable_names import by_path
from kerasformer.export.graph.variable_values import value_of
from kerasformer.export.quantization.calibration import Calibration, input_scale, wide_inputs
from kerasformer.layers.primitives import lowering
from kerasformer.layers.tensor import Tensor, TensorFunction
from kerasformer.process import return_memory

if TYPE_CHECKING:
    import tensorflow as tf

    pass

_TAG = "serve"
"""The tag of the SavedModel that the converter reads."""
_AT_ONCE = 6
"""Functions that are converted together: more take more memory, fewer more time."""
_Tracer = Callable[[Function], TensorFunction]


@dataclass(frozen=True)
class VariableWeight:
    """A variable as the file stores it; kernels are output-first, as FULLY_CONNECTED requires.

    Attributes:
        argument: Name of the argument of the traced functions that replaces the variable.
        name: Readable name of its tensor.
        variable: The Keras variable.
        transposed: Whether the transpose of the variable's value is stored.
        input_scale: Scales of the input's channels, by which the columns are divided; optional.
        offsets: The offsets of the blocks of the variable `(N, blocks)`, if this is not the weight of its values.
    """

    argument: str
    name: str
    variable: keras.Variable
    transposed: bool = False
    input_scale: np.ndarray | None = None
    offsets: np.ndarray | None = None

    @property
    def path(self) -> str:
        """Path of the Keras variable, by which recipes select it."""
        return f"{self.variable.path}{'' if self.offsets is None else OFFSETS}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape as stored."""
        shape = tuple((self.variable if self.offsets is None else self.offsets).shape)
        return shape[::-1] if self.transposed else shape

    def value(self) -> np.ndarray:
        """Returns the value in the shape as stored; a transpose that is not scaled is a view."""
        if self.offsets is not None:
            return self.offsets
        value = value_of(self.variable)
        value = value.T if self.transposed else value
        return value if self.input_scale is None else value / self.input_scale


def write_tflite(
    functions: Sequence[Function],
    variables: Sequence[keras.Variable],
    recipe: Recipe,
    path: Path,
    calibration: Calibration | None = None,
    progress: CountProgress | None = None,
    converted: Converted | None = None,
    accelerator: str = "cpu",
    window: int | None = None,
) -> tuple[GpuFinding, ...]:
    """Writes functions and weights as one TFLite file.

    Args:
        functions: The functions, one for each signature, with static shapes and int32, float32 or int8 tensors.
        variables: All variables that the functions read. Unused variables are not stored.
        recipe: How weights are stored.
        path: The file, which is overwritten.
        calibration: Activation ranges: required for a recipe with static activations; with dynamic ones, inputs of
            products are scaled by them.
        progress: Called with the number of bytes of weights that are written, and the total.
        converted: Cache of converted graphs, for several calls with the same functions.
        accelerator: `"cpu"`, or `"gpu"` for operators that LiteRT's GPU delegate runs as the CPU does.
        window: Number of positions of a decoder, for the GPU.

    Returns:
        What LiteRT's GPU delegate is known to compute wrongly or to leave to the CPU.

    Raises:
        ExportError: The file would exceed 2 GB, a tensor has a symbolic dimension or an unsupported dtype, an operation
            has no TFLite operator, or a function reads a variable that was not passed.
    """
    matrices = {id(variable) for function in functions for variable in function.matrices.values()}
    variables = [variable for variable in variables if id(variable) not in matrices]
    _check_interface(functions)
    _check_size(variables, recipe)
    if accelerator == "gpu":
        _check_blocks(variables, recipe)
    scales = _input_scales(variables, recipe, calibration or {})
    offsets = _offsets(variables, recipe, calibration or {})
    weights = _weights(variables, scales, offsets)
    graphs = {} if converted is None else converted
    wide = _wide(variables, recipe, calibration or {}) if accelerator == "cpu" else frozenset()
    # Graphs depend on nothing else.
    key = recipe if recipe.activations == "float" else None, frozenset(scales), wide, frozenset(offsets)
    if key not in graphs:
        parts = [functions[start : start + _AT_ONCE] for start in range(0, len(functions), _AT_ONCE)]
        trace = _tracer(functions, weights, recipe, scales, wide)
        graphs[key] = [_convert(part, weights, trace) for part in parts]
    skeleton = Skeleton(graphs[key], {weight.argument: weight for weight in weights})
    fuse(skeleton)
    store_weights(skeleton, recipe, calibration)
    if accelerator == "gpu":
        lower_for_gpu(skeleton, window)
    skeleton.finish()
    skeleton.check({function.name: (function.inputs, function.outputs) for function in functions})
    findings = look_at(skeleton.model)  # reading the file again takes as long as converting it
    write(skeleton, path, progress)
    return findings


def _check_interface(functions: Sequence[Function]) -> None:
    for function in functions:
        for name, info in {**function.inputs, **function.outputs}.items():
            if any(isinstance(size, str) for size in info.shape):
                raise ExportError(f"TFLite needs static shapes. Received: {info.shape} for {name} of {function.name}")
            if info.dtype not in ("int32", "float32", "int8"):
                raise ExportError(
                    f"TFLite signatures need int32, float32 and int8 tensors. Received: {info.dtype} for {name} of "
                    f"{function.name}"
                )


def _check_size(variables: Sequence[keras.Variable], recipe: Recipe) -> None:
    """Refuses early a model whose weights exceed the 32-bit offsets of a flatbuffer.

    Which matrices are tables is known only after conversion. Each matrix counts with its smaller size, so that nothing
    that fits is refused here; the exact check follows when the file is written.
    """
    size = 0
    for variable in {id(v): v for v in variables}.values():
        shape = tuple(variable.shape)
        size += min(form_of(recipe, variable.path, shape, table).num_bytes(shape) for table in (False, True))
    if size > MAX_BYTES:
        raise ExportError(
            f"A TFLite file must be smaller than 2 GB. Received: {size / 1e9:.2f} GB of weights with the recipe "
            f"{recipe.name!r}. Use a recipe with fewer bits, such as quantize='int8', or "
            "format='onnx'"
        )


def _check_blocks(variables: Sequence[keras.Variable], recipe: Recipe) -> None:
    """Refuses scales for blocks, with which LiteRT's GPU delegate ends the process: rule `blockwise-weights`."""
    for variable in variables:
        if form_of(recipe, variable.path, tuple(variable.shape)[::-1], table=False).block is not None:
            raise ExportError(
                "With accelerator='gpu', weights of four bits need one scale for each row, since LiteRT's GPU delegate "
                f"ends the process otherwise. Received: the recipe {recipe.name!r}, with scales for blocks of "
                f"{variable.path}. Use quantize='int4_channel' or 'int8'"
            )


def _input_scales(
    variables: Sequence[keras.Variable], recipe: Recipe, calibration: Calibration
) -> dict[str, np.ndarray]:
    """Returns the scales of the inputs of products, by the path of the kernel."""
    scales = {
        variable.path: input_scale(calibration, recipe, {variable.path: variable.shape}) for variable in variables
    }
    return {path: scale for path, scale in scales.items() if scale is not None}


def _wide(variables: Sequence[keras.Variable], recipe: Recipe, calibration: Calibration) -> frozenset[str]:
    """Returns the paths of the kernels whose inputs the CPU must not round to eight bits; a GPU rounds no inputs."""
    paths = [variable.path for variable in variables]
    if recipe.activations == "float":
        return frozenset(paths)
    wide = wide_inputs(calibration, recipe, paths)
    return frozenset(path for path in wide if recipe.storage(path, (1 << 16, 1 << 16)) == "int8")


def _offsets(variables: Sequence[keras.Variable], recipe: Recipe, calibration: Calibration) -> dict[str, np.ndarray]:
    """Returns the offsets of kernels that keep the levels of a quantized checkpoint, by the path of the kernel."""
    kernels = {v.path: calibration[v.path].rounded for v in variables if v.path in calibration}
    return {
        path: kernel.offsets
        for path, kernel in kernels.items()
        if kernel and kernel.offsets is not None and recipe.storage(path, kernel.levels.shape) == "int4"
    }


def _weights(
    variables: Sequence[keras.Variable], scales: Mapping[str, np.ndarray], offsets: Mapping[str, np.ndarray]
) -> list[VariableWeight]:
    """Returns the weights; every matrix twice, once for each orientation. `Skeleton` drops the unused ones."""
    weights = []
    for index, (name, variable) in enumerate(by_path(list({id(v): v for v in variables}.values())).items()):
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if "int" in dtype or dtype == "bool":
            continue  # states of random generators, which inference does not use
        if dtype != "float32" and not (dtype in ("bfloat16", "float16") and len(variable.shape) == 2):
            raise ExportError(f"TFLite export needs float32 variables. Received: {dtype} for {variable.path}")
        weights.append(VariableWeight(f"weight_{index}", name, variable))
        if len(variable.shape) == 2:
            weights.append(
                VariableWeight(f"weight_{index}_transposed", name, variable, True, scales.get(variable.path))
            )
        if (added := offsets.get(variable.path)) is not None:
            weights.append(VariableWeight(f"weight_{index}_offsets", f"{name}{OFFSETS}", variable, offsets=added))
    return weights


def _trace(
    function: Function,
    weights: Sequence[VariableWeight],
    recipe: Recipe,
    scales: Mapping[str, np.ndarray],
    wide: frozenset[str],
) -> tf.types.experimental.ConcreteFunction:
    """Traces a function as a TensorFlow graph whose arguments are its inputs and all weights."""
    tf = tensorflow()

    def call(**tensors: Tensor) -> dict[str, Tensor]:
        tables = {id(w.variable): tensors[w.argument] for w in weights if not w.transposed and w.offsets is None}
        offsets = {id(w.variable): tensors[w.argument] for w in weights if w.offsets is not None}
        kernels = {id(w.variable): tensors[w.argument] for w in weights if w.transposed}
        scope = keras.StatelessScope()
        # Not an argument of the scope, which would round the placeholders of matrices that are stored in 16 bits.
        scope.state_mapping = tables
        matrices = {
            id(variable): tensors[name] if name in function.inputs else tf.zeros(tuple(variable.shape)[::-1])
            for name, variable in function.matrices.items()
        }
        with scope, lowering(TfliteLowering(recipe, kernels, tables, scales, matrices, wide, offsets)):
            results = function.call(**{name: tensors[name] for name in function.inputs.keys() - function.matrices})
        if not set(results) >= set(function.outputs):
            raise ExportError(f"{function.name} must return {sorted(function.outputs)}. Received: {sorted(results)}")
        return {name: _declared(results[name], info, name) for name, info in function.outputs.items()}

    arguments = {name: tf.TensorSpec(_known(info.shape), info.dtype) for name, info in function.inputs.items()}
    arguments |= {weight.argument: tf.TensorSpec(weight.shape, "float32") for weight in weights}
    graph = tf.function(call, autograph=False).get_concrete_function(**arguments)
    if any(tensor.dtype == tf.resource for tensor in graph.captured_inputs):
        raise ExportError(
            f"{function.name} reads a variable that was not passed. Expected: every variable of the model"
        )
    return graph


def _declared(result: Tensor, info: TensorInfo, name: str) -> Tensor:
    """Returns the result after checking its shape and dtype."""
    dtype = keras.backend.standardize_dtype(result.dtype)
    if dtype != info.dtype or not result.shape.is_compatible_with(_known(info.shape)):
        raise ExportError(f"{name} must be {info.dtype} {info.shape}. Received: {dtype} {tuple(result.shape)}")
    return tensorflow().identity(result)


def _known(shape: Sequence[int | str]) -> list[int | None]:
    """Returns a shape with `None` for symbolic sizes."""
    return [None if isinstance(size, str) else size for size in shape]


def _tracer(
    functions: Sequence[Function],
    weights: Sequence[VariableWeight],
    recipe: Recipe,
    scales: Mapping[str, np.ndarray],
    wide: frozenset[str],
) -> _Tracer:
    """Returns what traces each of the functions, or returns the trace of one that differs only in lengths.

    Functions of one call differ in inputs if only some of their outputs depend on an adapter's matrix. Traces are kept
    until the last function that needs them.
    """
    traces: dict[Hashable, TensorFunction] = {}

    def key(function: Function) -> Hashable:
        return (function.call, frozenset(function.inputs)) if function.any_length else function.name

    left = Counter(map(key, functions))

    def trace(function: Function) -> TensorFunction:
        kind = key(function)
        if kind not in traces:
            alike = [other for other in functions if key(other) == kind]
            alike.sort(key=lambda other: -len(other.outputs))  # a prefill has no logits
            traces[kind] = _trace(spanning(alike), weights, recipe, scales, wide)
        left[kind] -= 1
        return traces[kind] if left[kind] else traces.pop(kind)

    return trace


def _convert(functions: Sequence[Function], weights: Sequence[VariableWeight], trace: _Tracer) -> bytes:
    """Converts functions to a TFLite model in which every weight is an input."""
    with tempfile.TemporaryDirectory(prefix="kerasformer-") as folder:
        _save(functions, weights, trace, Path(folder))
        gc.collect()  # the traced graphs, which refer to each other
        return_memory()
        try:
            return _converted(folder, [function.name for function in functions])
        except Exception as error:
            raise ExportError(f"TensorFlow's TFLite converter failed: {error}") from error


def _save(functions: Sequence[Function], weights: Sequence[VariableWeight], trace: _Tracer, folder: Path) -> None:
    """Writes a SavedModel whose signatures have the inputs of the functions and all weights.

    Functions that differ only in lengths are traced once: they call one graph, and the converter computes the shapes in
    it for each of them. `tf.saved_model.save` would trace each signature again.
    """
    tf = tensorflow()
    from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

    def described(tensors: Mapping[str, Tensor]) -> dict[str, meta_graph_pb2.TensorInfo]:
        return {
            name: meta_graph_pb2.TensorInfo(
                name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto()
            )
            for name, tensor in tensors.items()
        }

    # Traced before the graph is entered, in which `==` of tensors would compare Python objects, as in TensorFlow 1.
    traces = [trace(function) for function in functions]
    meta = meta_graph_pb2.MetaGraphDef()
    with tf.Graph().as_default() as graph:
        placeholders = {
            weight.argument: tf.compat.v1.placeholder("float32", weight.shape, weight.argument) for weight in weights
        }
        for function, traced in zip(functions, traces, strict=True):
            inputs = placeholders | {
                name: tf.compat.v1.placeholder(info.dtype, info.shape, f"{function.name}_{name}")
                for name, info in function.inputs.items()
            }
            answers = traced(**inputs).items()
            results = {name: tf.identity(answer) for name, answer in answers if name in function.outputs}
            signature = meta_graph_pb2.SignatureDef(inputs=described(inputs), outputs=described(results))
            meta.signature_def[function.name].CopyFrom(signature)
    meta.graph_def.CopyFrom(graph.as_graph_def())
    meta.meta_info_def.tags.append(_TAG)
    model = saved_model_pb2.SavedModel(saved_model_schema_version=1, meta_graphs=[meta])
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())


def _converted(folder: str, signatures: list[str]) -> bytes:
    """Converts a SavedModel with the settings of `tf.lite.TFLiteConverter.from_saved_model`.

    `TFLiteConverter` also loads the SavedModel twice, for its statistics, and parses its own result several times to
    merge equal constants and to add metadata. Both take as long as the conversion and half of an export; `Skeleton`
    merges the constants anyway.
    """
    from tensorflow.lite.python import convert

    return bytes(
        convert.convert_saved_model(
            saved_model_dir=folder,
            saved_model_version=1,
            saved_model_tags={_TAG},
            saved_model_exported_names=signatures,
            target_ops={convert.OpsSet.TFLITE_BUILTINS},
            enable_composite_direct_lowering=True,
            # Unsupported operations become custom operators, which `Skeleton.check` reports by name.
            allow_custom_ops=True,
        )
    )

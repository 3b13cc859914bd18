"""Turns weights into constants of a TFLite graph, and adapts the operators that read them to how they are stored.

| stored as | read by products through | read by lookups through |
|---|---|---|
| float32 | FULLY_CONNECTED | GATHER |
| float16 | DEQUANTIZE, FULLY_CONNECTED | GATHER, DEQUANTIZE |
| integers | FULLY_CONNECTED, which quantizes its input itself | EMBEDDING_LOOKUP |
| integers, `activations="static"` | QUANTIZE, FULLY_CONNECTED in integers, DEQUANTIZE | EMBEDDING_LOOKUP |

All readers of a weight, in all signatures, share one buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kerasformer.bundle.recipes import BITS, Recipe
from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite import storage as tflite_storage
from kerasformer.export.formats.tflite.fusion import drop_dead
from kerasformer.export.formats.tflite.graph_skeleton import FileWeight, Skeleton, has_bias, producers
from kerasformer.export.formats.tflite.storage import Form
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.compensation import RoundedKernel

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as tflite

# Versions since which operators support one scale for each row (and four bits in lookups). An older runtime must refuse
# the file, since it would use the first scale for all rows.
_PER_ROW_PRODUCT = 12
_PER_ROW_LOOKUP = 4
_INTEGER_PRODUCT = {"int8": 5, "int4": 10}
_QUANTIZE = 1
_DEQUANTIZE_HALF = 3
_DEQUANTIZE_LEVELS = 2
_RELU = 1
_KEEPS_TIES = ("RESHAPE", "SOFTMAX", "LOGISTIC")


@dataclass(frozen=True)
class StoredMatrix:
    """A weight in the form in which the file stores it.

    Attributes:
        weight: The weight.
        form: The form.
        rounded: The weight in the bits of the form, if it was rounded beforehand.
    """

    weight: FileWeight
    form: Form
    rounded: RoundedKernel | None = None

    @property
    def num_bytes(self) -> int:
        """Size of the values in bytes."""
        return self.form.num_bytes(self.weight.shape)

    @cached_property
    def all_scales(self) -> np.ndarray:
        """Scales of the rows or blocks; see `storage.scales`."""
        if self.rounded is not None:
            return self.rounded.scales[:, 0] if self.form.block is None else self.rounded.scales.astype(np.float16)
        return tflite_storage.scales(self.weight.value(), self.form)

    def scales(self) -> np.ndarray | None:
        """Returns the scales of rows; block scales are a separate tensor."""
        return self.all_scales if self.form.integer and self.form.block is None else None

    def content(self) -> Iterator[bytes]:
        """Yields the values."""
        if self.rounded is not None:
            return tflite_storage.content_of_levels(self.rounded.levels, self.form)
        return tflite_storage.content(self.weight.value(), self.form, self.all_scales if self.form.integer else None)


@dataclass(frozen=True)
class BlockScales:
    """float16 scales `(N, K / block)` of a matrix."""

    matrix: StoredMatrix

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of blocks in a row."""
        rows, width = self.matrix.weight.shape
        return rows, width // (self.matrix.form.block or width)

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""
        return 2 * self.shape[0] * self.shape[1]

    def scales(self) -> None:
        """Returns `None`: scales have no scales themselves."""

    def content(self) -> Iterator[bytes]:
        """Yields the scales."""
        yield self.matrix.all_scales.tobytes()


@dataclass(frozen=True)
class IntegerBias:
    """An int32 bias with the scale of the sums that it is added to: the input's scale times the kernel row's."""

    weight: FileWeight
    matrix: StoredMatrix
    input_scale: float

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""
        return 4 * self.weight.shape[0]

    def scales(self) -> np.ndarray:
        """Returns the scales, float32 `(N,)`."""
        return (self.matrix.all_scales * np.float32(self.input_scale)).astype(np.float32)

    def content(self) -> Iterator[bytes]:
        """Yields the int32 values, clipped to half of the range so that sums do not overflow."""
        levels = np.rint(self.weight.value().astype(np.float64) / self.scales())
        yield np.clip(levels, -(2**30), 2**30).astype(np.int32).tobytes()


@dataclass(frozen=True)
class Levels:
    """Quantization of an activation to 256 levels: `scale * (level - zero)` for levels from -128 to 127."""

    scale: float
    zero: int

    @classmethod
    def between(cls, low: float, high: float) -> Levels:
        """Returns levels from `low` to `high` that represent zero exactly."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = float(np.float32(max((high - low) / 255, 2.0**-100)))
        return cls(scale, int(np.clip(round(-128 - low / scale), -128, 127)))


def store_weights(skeleton: Skeleton, recipe: Recipe, calibration: Calibration | None = None) -> None:
    """Turns the weights that were inputs into constants.

    Args:
        skeleton: The graph, which is modified.
        recipe: How weights are stored.
        calibration: Activation ranges, for a recipe with static activations.

    Raises:
        ExportError: The ranges of a product with static activations are missing.
    """
    calibration = calibration or {}
    uses = {id(graph): _uses(skeleton, graph) for graph in skeleton.graphs}
    kinds = {
        name: set().union(*(uses[id(graph)][index] for graph, index in tensors))
        for name, tensors in skeleton.weight_tensors.items()
    }
    matrices = {name: _matrix(skeleton, name, kinds[name], recipe, calibration) for name in skeleton.weight_tensors}
    writer = _Writer(skeleton, recipe, matrices, calibration)
    for name in skeleton.weight_tensors:
        writer.store(name)
    for graph in skeleton.graphs:
        writer.rewrite(graph)
        drop_dead(skeleton, graph, "DEQUANTIZE")


def _matrix(skeleton: Skeleton, name: str, kinds: set[str], recipe: Recipe, calibration: Calibration) -> StoredMatrix:
    weight = skeleton.weights[name]
    form = _form(weight, kinds, recipe)
    rounded = calibration[weight.path].rounded if weight.path in calibration else None
    return StoredMatrix(weight, form, rounded if rounded and rounded.bits == BITS[form.storage] else None)


def _form(weight: FileWeight, kinds: set[str], recipe: Recipe) -> Form:
    """Returns the form that the recipe specifies, or float32 if an operator that reads the weight requires it."""
    if kinds - {"product", "lookup"}:
        return Form("float32")
    return tflite_storage.form_of(recipe, weight.path, weight.shape, table="lookup" in kinds)


def _uses(skeleton: Skeleton, graph: tflite.SubGraphT) -> dict[int, set[str]]:
    """Returns how operators use each tensor: `"product"`, `"lookup"` or `"other"`."""
    uses: dict[int, set[str]] = defaultdict(set)
    for op in graph.operators:
        kind = skeleton.kind(op)
        for position, index in enumerate(op.inputs):
            if kind == "FULLY_CONNECTED" and position == 1:
                use = "product"
            elif kind == "GATHER" and position == 0 and _is_lookup(graph, op):
                use = "lookup"
            else:
                use = "other"
            uses[int(index)].add(use)
    return uses


def _is_lookup(graph: tflite.SubGraphT, op: tflite.OperatorT) -> bool:
    """Returns whether a GATHER selects whole rows by a flat list of ids."""
    return (
        len(graph.tensors[op.inputs[1]].shape) == 1 and not op.builtinOptions.axis and not op.builtinOptions.batchDims
    )


class _Writer:
    """Stores weights in buffers and rewrites the operators that read them, sharing biases among graphs."""

    def __init__(
        self, skeleton: Skeleton, recipe: Recipe, matrices: Mapping[str, StoredMatrix], calibration: Calibration
    ) -> None:
        self.skeleton = skeleton
        self.recipe = recipe
        self.matrices = matrices
        self.calibration = calibration
        self._biases: dict[tuple[str, str, float], int] = {}
        # Of the current graph: float32 copies of weights, and quantized activations.
        self._wide: dict[int, int] = {}
        self._integers: dict[tuple[int, Levels], int] = {}

    def store(self, name: str) -> None:
        """Stores a weight in one buffer, which all of its tensors share."""
        matrix, skeleton = self.matrices[name], self.skeleton
        buffer, form = skeleton.buffer(matrix), matrix.form
        scales = skeleton.buffer(BlockScales(matrix)) if form.block is not None else 0
        for graph, index in skeleton.weight_tensors[name]:
            tensor = graph.tensors[index]
            tensor.buffer, tensor.name = buffer, matrix.weight.name
            tensor.type = getattr(skeleton.schema.TensorType, form.storage.upper())
            if form.block is not None:
                tensor.quantization = self._blockwise(graph, matrix, scales)
            elif form.integer:
                tensor.quantization = skeleton.quantization([1.0])  # placeholder until the scales are written

    def _blockwise(self, graph: tflite.SubGraphT, matrix: StoredMatrix, buffer: int) -> tflite.QuantizationParametersT:
        shape = BlockScales(matrix).shape
        details = self.skeleton.schema.BlockwiseQuantizationT()
        details.scales = self.skeleton.tensor(graph, f"{matrix.weight.name}/scales", shape, "FLOAT16", buffer)
        details.zeroPoints, details.blockSize = -1, matrix.form.block
        parameters = self.skeleton.schema.QuantizationParametersT()
        parameters.detailsType = self.skeleton.schema.QuantizationDetails.BlockwiseQuantization
        parameters.details, parameters.quantizedDimension = details, 0
        return parameters

    def rewrite(self, graph: tflite.SubGraphT) -> None:
        """Adapts the operators of a graph to how the weights are stored."""
        self._wide, self._integers = {}, {}
        weights = self.skeleton.weights_of(graph)
        answers = _answers(self.skeleton, graph, producers(graph))
        operators: list[tflite.OperatorT] = []
        for op in graph.operators:
            kind = self.skeleton.kind(op)
            table = 1 if kind == "FULLY_CONNECTED" else 0
            name = weights.get(int(op.inputs[table])) if kind in ("FULLY_CONNECTED", "GATHER") else None
            if name is None or self.matrices[name].form.storage == "float32":
                operators.append(op)
            elif kind == "GATHER":
                operators += self._lookup(graph, op, self.matrices[name])
            else:
                # Products that compute answers stay in float32, since with 256 levels the best answers would be ties.
                static = self.recipe.activations == "static" and int(op.outputs[0]) not in answers
                operators += self._product(graph, op, self.matrices[name], weights, static)
        graph.operators = operators

    def _lookup(self, graph: tflite.SubGraphT, op: tflite.OperatorT, matrix: StoredMatrix) -> list[tflite.OperatorT]:
        if matrix.form.integer:
            op.inputs = np.array([op.inputs[1], op.inputs[0]], np.int32)
            op.builtinOptionsType, op.builtinOptions = 0, None
            self.skeleton.recode(op, "EMBEDDING_LOOKUP", _PER_ROW_LOOKUP)
            return [op]
        rows = graph.tensors[op.outputs[0]]
        half = self.skeleton.tensor(graph, _name(rows), rows.shape, "FLOAT16")
        widened = self.skeleton.operator("DEQUANTIZE", _DEQUANTIZE_HALF, [half], op.outputs)
        op.outputs = np.array([half], np.int32)
        return [op, widened]

    def _product(
        self,
        graph: tflite.SubGraphT,
        op: tflite.OperatorT,
        matrix: StoredMatrix,
        weights: Mapping[int, str],
        static: bool,
    ) -> list[tflite.OperatorT]:
        if not matrix.form.integer:
            return [*self._widened(graph, int(op.inputs[1]), matrix, op), op]
        if not static:
            self.skeleton.recode(op, "FULLY_CONNECTED", _PER_ROW_PRODUCT)
            op.builtinOptions.asymmetricQuantizeInputs = True
            return [op]
        return self._static_product(graph, op, matrix, weights)

    def _widened(
        self, graph: tflite.SubGraphT, index: int, matrix: StoredMatrix, op: tflite.OperatorT
    ) -> list[tflite.OperatorT]:
        """Lets a product read a float32 copy, which runtimes create once when they load the file."""
        before: list[tflite.OperatorT] = []
        if index not in self._wide:
            wide = self.skeleton.tensor(graph, f"{matrix.weight.name}/float32", matrix.weight.shape, "FLOAT32")
            before = [self.skeleton.operator("DEQUANTIZE", _DEQUANTIZE_HALF, [index], [wide])]
            self._wide[index] = wide
        op.inputs = np.array([op.inputs[0], self._wide[index], *op.inputs[2:]], np.int32)
        return before

    def _static_product(
        self, graph: tflite.SubGraphT, op: tflite.OperatorT, matrix: StoredMatrix, weights: Mapping[int, str]
    ) -> list[tflite.OperatorT]:
        ranges = self.calibration.get(matrix.weight.path)
        if ranges is None:
            raise ExportError(
                f"The recipe {self.recipe.name!r} needs the activation ranges of every product. Received: none for "
                f"{matrix.weight.path}. Calibrate on texts for which the model uses it, or keep it in float32 with "
                f"Recipe(layers=(({matrix.weight.path!r}, 'float32'), …))"
            )
        low, high = ranges.output
        if op.builtinOptions.fusedActivationFunction == _RELU:
            low = 0.0
        source, result = int(op.inputs[0]), int(op.outputs[0])
        input_levels, output_levels = Levels.between(*ranges.input), Levels.between(low, high)
        before = [] if (source, input_levels) in self._integers else [self._quantize(graph, source, input_levels)]
        integers = self._integer_tensor(graph, result, output_levels)
        after = self.skeleton.operator("DEQUANTIZE", _DEQUANTIZE_LEVELS, [integers], [result])
        inputs = [self._integers[source, input_levels], int(op.inputs[1])]
        if has_bias(op):
            inputs.append(self._bias(graph, weights[int(op.inputs[2])], matrix, input_levels.scale))
        op.inputs, op.outputs = np.array(inputs, np.int32), np.array([integers], np.int32)
        self.skeleton.recode(op, "FULLY_CONNECTED", _INTEGER_PRODUCT[matrix.form.storage])
        return [*before, op, after]

    def _quantize(self, graph: tflite.SubGraphT, source: int, levels: Levels) -> tflite.OperatorT:
        return self.skeleton.operator("QUANTIZE", _QUANTIZE, [source], [self._integer_tensor(graph, source, levels)])

    def _integer_tensor(self, graph: tflite.SubGraphT, like: int, levels: Levels) -> int:
        """Adds an int8 tensor for the values of a float32 one, which later products with the same levels reuse."""
        tensor = graph.tensors[like]
        index = self.skeleton.tensor(graph, f"{_name(tensor)}/int8", tensor.shape, "INT8")
        graph.tensors[index].quantization = self.skeleton.quantization([levels.scale], levels.zero)
        self._integers[like, levels] = index
        return index

    def _bias(self, graph: tflite.SubGraphT, name: str, matrix: StoredMatrix, input_scale: float) -> int:
        key = (name, matrix.weight.path, input_scale)
        weight = self.skeleton.weights[name]
        if key not in self._biases:
            self._biases[key] = self.skeleton.buffer(IntegerBias(weight, matrix, input_scale))
        index = self.skeleton.tensor(graph, f"{weight.name}/int32", weight.shape, "INT32", self._biases[key])
        graph.tensors[index].quantization = self.skeleton.quantization([1.0])
        return index


def _answers(skeleton: Skeleton, graph: tflite.SubGraphT, produced: Mapping[int, tflite.OperatorT]) -> set[int]:
    """Returns the outputs of a graph and the tensors that become one through operators that preserve ties."""
    answers = {int(i) for i in graph.outputs}
    pending = list(answers)
    while pending:
        op = produced.get(pending.pop())
        if op is not None and skeleton.kind(op) in _KEEPS_TIES and int(op.inputs[0]) not in answers:
            answers.add(int(op.inputs[0]))
            pending.append(int(op.inputs[0]))
    return answers


def _name(tensor: tflite.TensorT) -> str:
    return tensor.name.decode() if isinstance(tensor.name, bytes) else str(tensor.name)

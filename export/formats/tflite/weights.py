"""Weights become constants of a TFLite graph, and the operators that read them those that read them as stored.

| stored as | products read it through | look-ups |
|---|---|---|
| float32 | FULLY_CONNECTED | GATHER |
| float16 | DEQUANTIZE, FULLY_CONNECTED | GATHER, DEQUANTIZE |
| integers | FULLY_CONNECTED, which rounds its input itself | EMBEDDING_LOOKUP |
| integers, `activations="static"` | QUANTIZE, FULLY_CONNECTED in integers, DEQUANTIZE | EMBEDDING_LOOKUP |

Every reader of a weight, in whichever signature, reads the same buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite import storage as tflite_storage
from kerasformer.export.formats.tflite.fusion import drop_dead
from kerasformer.export.formats.tflite.graph_skeleton import FileWeight, Skeleton, has_bias, producers
from kerasformer.export.formats.tflite.storage import Form
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.recipes import Recipe

# Versions since which operators read one scale for each row (and, for look-ups, four bits): an older runtime must
# refuse the file, for it would take the first scale for all rows.
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
    """A weight in the form in which the file holds it."""

    weight: FileWeight
    form: Form

    @property
    def num_bytes(self) -> int:
        """Of the values."""
        return self.form.num_bytes(self.weight.shape)

    @cached_property
    def all_scales(self) -> np.ndarray:
        """See `tflite_storage.scales`."""
        return tflite_storage.scales(self.weight.value(), self.form)

    def scales(self) -> np.ndarray | None:
        """Those of rows; those of blocks are a tensor of their own."""
        return self.all_scales if self.form.integer and self.form.block is None else None

    def content(self) -> Iterator[bytes]:
        """The values."""
        return tflite_storage.content(self.weight.value(), self.form, self.all_scales if self.form.integer else None)


@dataclass(frozen=True)
class BlockScales:
    """float16 scales `(N, K / block)` of a matrix."""

    matrix: StoredMatrix

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and blocks of a row."""
        rows, width = self.matrix.weight.shape
        return rows, width // (self.matrix.form.block or width)

    @property
    def num_bytes(self) -> int:
        """Two for each."""
        return 2 * self.shape[0] * self.shape[1]

    def scales(self) -> None:
        """None."""

    def content(self) -> Iterator[bytes]:
        """The scales."""
        yield self.matrix.all_scales.tobytes()


@dataclass(frozen=True)
class IntegerBias:
    """A bias in the unit of the sums that it is added to: the input's scale times that of the kernel's row."""

    weight: FileWeight
    matrix: StoredMatrix
    input_scale: float

    @property
    def num_bytes(self) -> int:
        """Four for each."""
        return 4 * self.weight.shape[0]

    def scales(self) -> np.ndarray:
        """Units, float32 `(N,)`."""
        return (self.matrix.all_scales * np.float32(self.input_scale)).astype(np.float32)

    def content(self) -> Iterator[bytes]:
        """int32, half of the range left to the sums."""
        units = np.rint(self.weight.value().astype(np.float64) / self.scales())
        yield np.clip(units, -(2**30), 2**30).astype(np.int32).tobytes()


@dataclass(frozen=True)
class Levels:
    """256 levels of an activation: `scale * (level - zero)` for levels from -128 to 127."""

    scale: float
    zero: int

    @classmethod
    def between(cls, low: float, high: float) -> Levels:
        """Levels from `low` to `high` that have an exact zero."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = float(np.float32(max((high - low) / 255, 2.0**-100)))
        return cls(scale, int(np.clip(round(-128 - low / scale), -128, 127)))


def store_weights(skeleton: Skeleton, recipe: Recipe, calibration: Calibration | None = None) -> None:
    """Turns the weights that were inputs into constants.

    Args:
        skeleton: Changed.
        recipe: How each of them is stored.
        calibration: For a recipe with static activations.
    Raises:
        ExportError: a product with static activations whose ranges are not known.
    """
    matrices = {name: StoredMatrix(skeleton.weights[name], _form(skeleton, name, recipe)) for name in skeleton.places}
    writer = _Writer(skeleton, recipe, matrices, calibration or {})
    for name in skeleton.places:
        writer.place(name)
    for graph in skeleton.graphs:
        writer.rewrite(graph)
        drop_dead(skeleton, graph, "DEQUANTIZE")


def _form(skeleton: Skeleton, name: str, recipe: Recipe) -> Form:
    """What the recipe says, as far as all readers of the weight can read it."""
    weight = skeleton.weights[name]
    kinds = {kind for graph, index in skeleton.places[name] for kind in _readings(skeleton, graph, index)}
    if kinds - {"product", "lookup"}:
        return Form("float32")
    return tflite_storage.form_of(recipe, weight.path, weight.shape, table="lookup" in kinds)


def _readings(skeleton: Skeleton, graph: Any, index: int) -> Iterator[str]:
    """How a tensor is read: `"product"`, `"lookup"`, or otherwise."""
    for op in graph.operators:
        for place in (place for place, i in enumerate(op.inputs) if int(i) == index):
            kind = skeleton.kind(op)
            if kind == "FULLY_CONNECTED" and place == 1:
                yield "product"
            elif kind == "GATHER" and place == 0 and _is_lookup(graph, op):
                yield "lookup"
            else:
                yield "otherwise"


def _is_lookup(graph: Any, op: Any) -> bool:
    """Whole rows, by a flat list of ids."""
    return (
        len(graph.tensors[op.inputs[1]].shape) == 1 and not op.builtinOptions.axis and not op.builtinOptions.batchDims
    )


class _Writer:
    """Places weights and rewrites their readers; remembers what the graphs have in common."""

    def __init__(
        self, skeleton: Skeleton, recipe: Recipe, matrices: Mapping[str, StoredMatrix], calibration: Calibration
    ) -> None:
        self.skeleton = skeleton
        self.recipe = recipe
        self.matrices = matrices
        self.calibration = calibration
        self._biases: dict[tuple[str, str, float], int] = {}
        # In the graph at hand: widened weights, and the integer forms of activations.
        self._wide: dict[int, int] = {}
        self._integers: dict[tuple[int, Levels], int] = {}

    def place(self, name: str) -> None:
        """One buffer for a weight, whatever the number of tensors that show it."""
        matrix, skeleton = self.matrices[name], self.skeleton
        buffer, form = skeleton.buffer(matrix), matrix.form
        scales = skeleton.buffer(BlockScales(matrix)) if form.block is not None else 0
        for graph, index in skeleton.places[name]:
            tensor = graph.tensors[index]
            tensor.buffer, tensor.name = buffer, matrix.weight.name
            tensor.type = getattr(skeleton.schema.TensorType, form.storage.upper())
            if form.block is not None:
                tensor.quantization = self._blockwise(graph, matrix, scales)
            elif form.integer:
                tensor.quantization = skeleton.quantization([1.0])  # until the scales are written

    def _blockwise(self, graph: Any, matrix: StoredMatrix, buffer: int) -> Any:
        shape = BlockScales(matrix).shape
        details = self.skeleton.schema.BlockwiseQuantizationT()
        details.scales = self.skeleton.tensor(graph, f"{matrix.weight.name}/scales", shape, "FLOAT16", buffer)
        details.zeroPoints, details.blockSize = -1, matrix.form.block
        parameters = self.skeleton.schema.QuantizationParametersT()
        parameters.detailsType = self.skeleton.schema.QuantizationDetails.BlockwiseQuantization
        parameters.details, parameters.quantizedDimension = details, 0
        return parameters

    def rewrite(self, graph: Any) -> None:
        """Makes the operators of a graph read the weights as they are stored."""
        self._wide, self._integers = {}, {}
        weights, made = self.skeleton.weights_of(graph), producers(graph)
        answers = _answers(self.skeleton, graph, made)
        operators: list[Any] = []
        for op in graph.operators:
            kind = self.skeleton.kind(op)
            table = 1 if kind == "FULLY_CONNECTED" else 0
            name = weights.get(int(op.inputs[table])) if kind in ("FULLY_CONNECTED", "GATHER") else None
            if name is None or self.matrices[name].form.storage == "float32":
                operators.append(op)
            elif kind == "GATHER":
                operators += self._lookup(graph, op, self.matrices[name])
            else:
                # 256 levels would make the best of the answers ties: those are computed in float32.
                static = self.recipe.activations == "static" and int(op.outputs[0]) not in answers
                operators += self._product(graph, op, self.matrices[name], weights, static)
        graph.operators = operators

    def _lookup(self, graph: Any, op: Any, matrix: StoredMatrix) -> list[Any]:
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
        self, graph: Any, op: Any, matrix: StoredMatrix, weights: Mapping[int, str], static: bool
    ) -> list[Any]:
        if not matrix.form.integer:
            return [*self._widened(graph, int(op.inputs[1]), matrix, op), op]
        if not static:
            self.skeleton.recode(op, "FULLY_CONNECTED", _PER_ROW_PRODUCT)
            op.builtinOptions.asymmetricQuantizeInputs = True
            return [op]
        return self._static_product(graph, op, matrix, weights)

    def _widened(self, graph: Any, index: int, matrix: StoredMatrix, op: Any) -> list[Any]:
        """Lets a product read a float32 copy, which runtimes make once, when they load the file."""
        before: list[Any] = []
        if index not in self._wide:
            wide = self.skeleton.tensor(graph, f"{matrix.weight.name}/float32", matrix.weight.shape, "FLOAT32")
            before = [self.skeleton.operator("DEQUANTIZE", _DEQUANTIZE_HALF, [index], [wide])]
            self._wide[index] = wide
        op.inputs = np.array([op.inputs[0], self._wide[index], *op.inputs[2:]], np.int32)
        return before

    def _static_product(self, graph: Any, op: Any, matrix: StoredMatrix, weights: Mapping[int, str]) -> list[Any]:
        ranges = self.calibration.get(matrix.weight.path)
        if ranges is None:
            raise ExportError(
                f"The recipe {self.recipe.name!r} needs the ranges of every product. Received none of "
                f"{matrix.weight.path}. Calibrate on texts that reach it, or keep it in float32 with "
                f"Recipe(layers=(({matrix.weight.path!r}, 'float32'), …))"
            )
        low, high = ranges.output
        if op.builtinOptions.fusedActivationFunction == _RELU:
            low = 0.0
        source, result = int(op.inputs[0]), int(op.outputs[0])
        taken, given = Levels.between(*ranges.input), Levels.between(low, high)
        before = [] if (source, taken) in self._integers else [self._quantize(graph, source, taken)]
        integers = self._integer_tensor(graph, result, given)
        after = self.skeleton.operator("DEQUANTIZE", _DEQUANTIZE_LEVELS, [integers], [result])
        inputs = [self._integers[source, taken], int(op.inputs[1])]
        if has_bias(op):
            inputs.append(self._bias(graph, weights[int(op.inputs[2])], matrix, taken.scale))
        op.inputs, op.outputs = np.array(inputs, np.int32), np.array([integers], np.int32)
        self.skeleton.recode(op, "FULLY_CONNECTED", _INTEGER_PRODUCT[matrix.form.storage])
        return [*before, op, after]

    def _quantize(self, graph: Any, source: int, levels: Levels) -> Any:
        return self.skeleton.operator("QUANTIZE", _QUANTIZE, [source], [self._integer_tensor(graph, source, levels)])

    def _integer_tensor(self, graph: Any, like: int, levels: Levels) -> int:
        """An int8 tensor for the values of a float32 one; later products that want these levels read it too."""
        tensor = graph.tensors[like]
        index = self.skeleton.tensor(graph, f"{_name(tensor)}/int8", tensor.shape, "INT8")
        graph.tensors[index].quantization = self.skeleton.quantization([levels.scale], levels.zero)
        self._integers[like, levels] = index
        return index

    def _bias(self, graph: Any, name: str, matrix: StoredMatrix, input_scale: float) -> int:
        key = (name, matrix.weight.path, input_scale)
        weight = self.skeleton.weights[name]
        if key not in self._biases:
            self._biases[key] = self.skeleton.buffer(IntegerBias(weight, matrix, input_scale))
        index = self.skeleton.tensor(graph, f"{weight.name}/int32", weight.shape, "INT32", self._biases[key])
        graph.tensors[index].quantization = self.skeleton.quantization([1.0])
        return index


def _answers(skeleton: Skeleton, graph: Any, made: Mapping[int, Any]) -> set[int]:
    """The results of a graph, and what becomes one by a change of shape or as probabilities: ties would stay ties."""
    found = {int(i) for i in graph.outputs}
    waiting = list(found)
    while waiting:
        op = made.get(waiting.pop())
        if op is not None and skeleton.kind(op) in _KEEPS_TIES and int(op.inputs[0]) not in found:
            found.add(int(op.inputs[0]))
            waiting.append(int(op.inputs[0]))
    return found


def _name(tensor: Any) -> str:
    return tensor.name.decode() if isinstance(tensor.name, bytes) else str(tensor.name)

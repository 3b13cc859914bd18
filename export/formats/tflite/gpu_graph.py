"""Rewriting of a TFLite graph to operators that LiteRT's GPU delegate runs, with the same results.

The delegate stores every tensor as batch, height, width and channels, and fills up the axes of smaller tensors
differently in different operators: most of what it computes wrongly are tensors with fewer than four axes. Here, every
computed tensor gets four axes, the first of them of size 1 where there were fewer, so that sums need no alignment and
attention has its heads in the first axes. Operators that the delegate lacks are expressed by others. `gpu_rules` looks
at the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer.engines.litert.gpu_rules import ORDERED, SMALLEST_HALF
from kerasformer.export.formats.tflite.fusion import drop_dead
from kerasformer.export.formats.tflite.graph_skeleton import Skeleton

if TYPE_CHECKING:
    import numpy.typing as npt
    from ai_edge_litert import schema_py_generated as tflite

_RANK = 4
_HIDDEN, _HIDDEN_IN_HALVES = 5e8, 3e4
"""Smallest magnitude of what masks add to the scores of hidden keys, and what replaces it."""
_EXACT_IN_HALVES = 2048
"""Integers up to this number are exact in 16-bit floats."""


def lower_for_gpu(skeleton: Skeleton, window: int | None = None) -> None:
    """Rewrites all graphs.

    Args:
        skeleton: The model, which is modified.
        window: Number of positions of the text, of whose angles tables are made; without it, the graph computes them.
    """
    _limit_numbers(skeleton)
    stored: dict[bytes, int] = {}
    for graph in skeleton.graphs:
        _Rewriting(skeleton, graph, stored, window).run()
        drop_dead(skeleton, graph, "RESHAPE", "GATHER", "STRIDED_SLICE", "MUL", "CAST")


def _limit_numbers(skeleton: Skeleton) -> None:
    """Replaces numbers that 16-bit floats do not have.

    An epsilon becomes the smallest number that is not 0, and what masks add to the scores of hidden keys one that is
    finite, also twice. In float32, that is so large that nothing remains of the scores of a query without visible keys,
    which then has equal weights as in PyTorch. With the smaller number, such a query, whose output is not used, has
    other weights.
    """
    buffers = skeleton.model.buffers
    for graph in skeleton.graphs:
        for tensor in graph.tensors:
            data = None if tensor.buffer in skeleton.stored else buffers[tensor.buffer].data
            if tensor.type == skeleton.schema.TensorType.FLOAT32 and data is not None:
                values = np.frombuffer(bytes(data), np.float32)
                hidden = np.abs(values) >= _HIDDEN  # positive where it is subtracted
                vanishing = values.size == 1 and 0 < abs(values[0]) < SMALLEST_HALF
                if hidden.any() or vanishing:
                    limit = np.float32(SMALLEST_HALF if vanishing else _HIDDEN_IN_HALVES)
                    limited = np.where(hidden | vanishing, np.sign(values) * limit, values)
                    buffers[tensor.buffer].data = np.frombuffer(limited.tobytes(), np.uint8)


def four_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape with leading axes of size 1, so that it has four."""
    return (1,) * (_RANK - len(shape)) + tuple(shape)


class _Rewriting:
    """Rewriting of one graph.

    Args:
        skeleton: The model.
        graph: One of its graphs, which is modified.
        stored: Places of the constants that rewriting has added, by their content; all graphs share them.
        window: Number of positions of the text.
    """

    def __init__(
        self, skeleton: Skeleton, graph: tflite.SubGraphT, stored: dict[bytes, int], window: int | None
    ) -> None:
        self.skeleton, self.graph, self.stored, self.window = skeleton, graph, stored, window
        self.operators: list[tflite.OperatorT] = []
        self.outputs = {int(index) for index in graph.outputs}
        self.constants = {i for i, t in enumerate(graph.tensors) if skeleton.model.buffers[t.buffer].data is not None}
        # Of each tensor of the original graph: its shape, and the tensor that has its values with four axes.
        self.shapes = {i: tuple(int(n) for n in self._shape(i)) for i in range(len(graph.tensors))}
        self.aligned: dict[int, int] = {}
        # Operators are changed while others that follow still ask for what they read.
        self.origins = {int(op.outputs[0]): (skeleton.kind(op), [int(i) for i in op.inputs]) for op in graph.operators}
        self._plain: dict[tuple[int, tuple[int, ...]], int] = {}
        self._zero: int | None = None

    def run(self) -> None:
        """Replaces the operators."""
        for op in self.graph.operators:
            kind = self.skeleton.kind(op)
            if kind == "DEQUANTIZE" and int(op.inputs[0]) in self.constants:  # a weight with 16 bits
                self.constants.add(int(op.outputs[0]))
                self.operators.append(op)
                continue
            ranks = [len(self.shapes[int(i)]) for i in (*op.inputs, *op.outputs) if i >= 0]
            handler = _HANDLERS.get(kind) if max(ranks) <= _RANK or kind == "RESHAPE" else None
            (handler or _Rewriting._keep)(self, op)
        for index in self.outputs & self.aligned.keys():
            if self.aligned[index] != index:
                self._emit("RESHAPE", [self.aligned[index]], [index])
        self.graph.operators = self.operators

    # Tensors.

    def _shape(self, index: int) -> tuple[int, ...]:
        shape = self.graph.tensors[index].shape
        return () if shape is None else tuple(int(size) for size in shape)

    def _new(self, like: int, shape: Sequence[int], dtype: str | None = None) -> int:
        """Adds a tensor with the type of another one."""
        source = self.graph.tensors[like]
        index = self.skeleton.tensor(self.graph, "", shape, dtype or "FLOAT32")
        if dtype is None:
            self.graph.tensors[index].type, self.graph.tensors[index].quantization = source.type, source.quantization
        return index

    def _constant(self, value: npt.ArrayLike, dtype: str = "int32") -> int:
        array = np.asarray(value, dtype)
        content, buffers = array.tobytes(), self.skeleton.model.buffers
        place = self.stored.setdefault(content, len(buffers))
        if place == len(buffers):
            buffers.append(self.skeleton.schema.BufferT())
            buffers[place].data = np.frombuffer(content, np.uint8)
        index = self.skeleton.tensor(self.graph, "", array.shape, dtype.upper(), place)
        self.constants.add(index)
        return index

    def _value(self, index: int) -> np.ndarray:
        """Returns the value of a constant that is not a weight."""
        tensor = self.graph.tensors[index]
        dtype = {v: k for k, v in vars(self.skeleton.schema.TensorType).items()}[tensor.type].lower()
        data = bytes(self.skeleton.model.buffers[tensor.buffer].data)
        return np.frombuffer(data, dtype).reshape(self._shape(index))

    def _is_float(self, index: int) -> bool:
        types = self.skeleton.schema.TensorType
        return self.graph.tensors[index].type in (types.FLOAT32, types.FLOAT16)

    def _is_weight(self, index: int) -> bool:
        return index in self.constants and self.graph.tensors[index].buffer in self.skeleton.stored

    def _four(self, index: int) -> int:
        """Returns the tensor with the values of an operand and four axes."""
        index = int(index)
        if index < 0:
            return index
        shape = self.shapes[index]
        if index in self.constants:
            if prod(shape) == 1 or len(shape) == _RANK or (len(shape) <= 1 and self._is_float(index)):
                return index  # broadcast along the last axis, as everywhere; integers with one axis are not
            copied = self._new(index, four_axes(shape))
            self.graph.tensors[copied].buffer = self.graph.tensors[index].buffer
            self.constants.add(copied)
            return copied
        if index not in self.aligned:
            self.aligned[index] = self._reshaped(index, four_axes(shape))
        return self.aligned[index]

    def _computed(self, index: int) -> int:
        """Returns the tensor with four axes of an operand; a constant becomes the result of an operator."""
        index = int(index)
        if index not in self.constants:
            return self._four(index)
        if index not in self.aligned:
            shape = self.shapes[index]
            rows = self._gathered(index, self._computed_ids(np.arange(shape[0])), 0)
            self.aligned[index] = self._reshaped(rows, four_axes(shape))
        return self.aligned[index]

    def _as(self, index: int, shape: Sequence[int]) -> int:
        """Returns the tensor with the values of an operand and another shape."""
        key = int(index), tuple(shape)
        if key not in self._plain:
            self._plain[key] = self._reshaped(self._four(index), shape)
        return self._plain[key]

    def _reshaped(self, index: int, shape: Sequence[int]) -> int:
        if self._shape(index) == tuple(shape):
            return index
        result = self._new(index, shape)
        self._emit("RESHAPE", [index], [result])
        return result

    def _result(self, index: int, shape: Sequence[int] | None = None) -> int:
        """Returns the tensor with four axes that an operator writes in place of a tensor.

        Args:
            index: The tensor.
            shape: Shape that the operator writes, if it is another one; a RESHAPE then has to follow, see `_finish`.
        """
        index = int(index)
        wanted = four_axes(self.shapes[index])
        if shape is not None and tuple(shape) != wanted:
            return self._new(index, shape)
        if index in self.outputs and self.shapes[index] != wanted:
            self.aligned[index] = self._new(index, wanted)
        else:
            self.aligned[index] = index
            self.graph.tensors[index].shape = np.array(wanted, np.int32)
        return self.aligned[index]

    def _finish(self, written: int, index: int) -> None:
        """Gives the values of a tensor that was written with another shape the shape of the one that it replaces."""
        if int(index) not in self.aligned:
            self._emit("RESHAPE", [written], [self._result(index)])

    # Operators.

    def _emit(
        self, kind: str, inputs: Sequence[int], outputs: Sequence[int], version: int = 1, options: Any = None
    ) -> tflite.OperatorT:
        op = self.skeleton.operator(kind, version, inputs, outputs)
        if kind == "RESHAPE":
            shape = self._shape(outputs[0])
            options = self.skeleton.schema.ReshapeOptionsT()
            options.newShape = np.array(shape, np.int32)
            op.inputs = np.array([inputs[0], self._constant(shape)], np.int32)
        if options is not None:
            op.builtinOptions = options
            name = type(options).__name__.removesuffix("T")
            op.builtinOptionsType = getattr(self.skeleton.schema.BuiltinOptions, name)
        self.operators.append(op)
        return op

    def _append(self, op: tflite.OperatorT, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        op.inputs, op.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        self.operators.append(op)

    def _keep(self, op: tflite.OperatorT) -> None:
        """Keeps an operator, with operands of the original shapes."""
        inputs = [int(i) if i < 0 or int(i) in self.constants else self._as(i, self.shapes[int(i)]) for i in op.inputs]
        self._append(op, inputs, [int(i) for i in op.outputs])
        for index in op.outputs:
            self._plain[int(index), self.shapes[int(index)]] = int(index)

    def _each(self, op: tflite.OperatorT) -> None:
        """Operators that compute each entry, with operands that are broadcast."""
        if all(int(i) in self.constants for i in op.inputs):
            inputs = [self._computed(op.inputs[0]), *map(self._four, op.inputs[1:])]
        else:
            inputs = [self._four(i) for i in op.inputs]
        if (
            len(inputs) == 2
            and self.skeleton.kind(op) in ORDERED
            and self._is_exchanged(inputs[0], inputs[1], int(op.outputs[0]))
        ):
            inputs[0] = self._computed_integers(self._value(inputs[0]))
        self._append(op, inputs, [self._result(i) for i in op.outputs])

    def _angle(self, op: tflite.OperatorT) -> None:
        """COS and SIN of positions times frequencies, which 16-bit floats lose: rows of a table of all positions."""
        source = self._positions(int(op.inputs[0]))
        largest = None if source is None else self._largest(source[0])
        if source is None or largest is None:
            return self._each(op)
        positions, frequencies = source
        angles = np.arange(largest + 1, dtype="float32")[:, None] * frequencies.reshape(1, -1)
        table = self._constant((np.cos if self.skeleton.kind(op) == "COS" else np.sin)(angles), "float32")
        self._finish(self._gathered(table, self._flat_ids(positions), 0), int(op.outputs[0]))

    def _positions(self, angle: int) -> tuple[int, np.ndarray] | None:
        """Returns the integer positions and the constant frequencies whose product is an angle, if it is one."""
        kind, operands = self.origins.get(angle, ("", []))
        constants = [i for i in operands if i in self.constants and not self._is_weight(i)]
        computed = [i for i in operands if i not in self.constants]
        if kind != "MUL" or len(constants) != 1 or len(computed) != 1:
            return None
        (positions,), frequencies = computed, self._value(constants[0])
        if prod(self.shapes[angle]) != prod(self.shapes[positions]) * frequencies.size:
            return None
        while self._is_float(positions):
            kind, operands = self.origins.get(positions, ("", []))
            if kind not in _SAME_NUMBERS:
                return None
            positions = operands[0]
        return positions, frequencies

    def _largest(self, index: int) -> int | None:
        """Returns the largest number that integers can be which are computed from positions; `None` if unknown."""
        if self._dtype(index) == "bool":
            return 1
        if index in self.constants:
            return int(self._value(index).max())
        kind, operands = self.origins.get(index, ("", []))
        if not kind:  # an input: a position of the text
            return None if self.window is None else self.window - 1
        if kind in _SAME_NUMBERS:
            return self._largest(operands[0])
        if kind == "CUMSUM":
            one, axis = self._largest(operands[0]), int(self._value(operands[1]))
            return None if one is None else one * self.shapes[operands[0]][axis]
        if kind not in ("ADD", "MUL", "MAXIMUM"):
            return None
        first, second = map(self._largest, operands)
        if first is None or second is None:
            return None
        return {"ADD": first + second, "MUL": first * second, "MAXIMUM": max(first, second)}[kind]

    def _is_exchanged(self, first: int, second: int, result: int) -> bool:
        """Returns whether the delegate takes the first of two operands for the second one."""
        several = first in self.constants and not self._is_float(first) and prod(self._shape(first)) > 1
        return several and self._shape(second) == four_axes(self.shapes[result])

    def _reshape(self, op: tflite.OperatorT) -> None:
        source, result = int(op.inputs[0]), int(op.outputs[0])
        before = self._computed(source) if len(self.shapes[source]) <= _RANK else source
        if len(self.shapes[result]) > _RANK:
            self._emit("RESHAPE", [before], [result])
        elif self._shape(before) == four_axes(self.shapes[result]) and result not in self.outputs:
            self.aligned[result] = before
        else:
            self._emit("RESHAPE", [before], [self._result(result)])

    def _transpose(self, op: tflite.OperatorT) -> None:
        given = self._value(int(op.inputs[1]))
        missing = _RANK - len(given)
        order = [*range(missing), *(int(axis) + missing for axis in given)]
        self._append(op, [self._computed(op.inputs[0]), self._constant(order)], [self._result(op.outputs[0])])

    def _reduce(self, op: tflite.OperatorT) -> None:
        source, result = int(op.inputs[0]), int(op.outputs[0])
        axes = self._axes(self._value(int(op.inputs[1])), source)
        before = self._computed(source)
        shape = [1 if axis in axes else size for axis, size in enumerate(self._shape(before))]
        op.builtinOptions.keepDims = True
        written = self._result(result, shape)
        self._append(op, [before, self._constant(axes)], [written])
        self._finish(written, result)

    def _axes(self, axes: npt.ArrayLike, index: int) -> list[int]:
        """Returns axes of a tensor as those of the one with four axes."""
        rank = len(self.shapes[index])
        return [int(axis) % rank + _RANK - rank for axis in np.atleast_1d(axes)]

    def _cumsum(self, op: tflite.OperatorT) -> None:
        """Sums floats instead of integers, which is exact for as many ones as 16-bit floats count."""
        source, result = int(op.inputs[0]), int(op.outputs[0])
        axis = self._axes(self._value(int(op.inputs[1])), source)[0]
        before = self._computed(source)
        if self._shape(before)[axis] > _EXACT_IN_HALVES:
            return self._keep(op)
        integers = self.graph.tensors[source].type == self.skeleton.schema.TensorType.INT32
        if integers:
            before = self._cast(before, self._new(source, self._shape(before), "FLOAT32"))
        written = self._result(result)
        total = self._new(result, self._shape(written), "FLOAT32") if integers else written
        self._append(op, [before, self._constant(axis)], [total])
        if integers:
            self._cast(total, written)

    def _cast(self, index: int, result: int) -> int:
        self._emit("CAST", [index], [result])
        return result

    def _concatenate(self, op: tflite.OperatorT) -> None:
        axis = self._axes(op.builtinOptions.axis, int(op.outputs[0]))[0]
        op.builtinOptions.axis = axis
        self._append(op, [self._operand(i) for i in op.inputs], [self._result(op.outputs[0])])

    def _operand(self, index: int) -> int:
        """Returns an operand of a concatenation, which is not broadcast: a constant has four axes, too."""
        if int(index) not in self.constants or self._is_weight(int(index)):
            return self._four(index)
        return self._constant(
            self._value(int(index)).reshape(four_axes(self.shapes[int(index)])), self._dtype(int(index))
        )

    def _dtype(self, index: int) -> str:
        types = {v: k for k, v in vars(self.skeleton.schema.TensorType).items()}
        return str(types[self.graph.tensors[index].type].lower())

    def _pack(self, op: tflite.OperatorT) -> None:
        """Joins tensors along a new axis: with this axis of size 1, they are concatenated."""
        result = int(op.outputs[0])
        axis = self._axes(op.builtinOptions.axis, result)[0]
        shape = list(four_axes(self.shapes[result]))
        shape[axis] = 1
        inputs = []
        for index in map(int, op.inputs):
            if index in self.constants and not self._is_weight(index):
                inputs.append(self._constant(self._value(index).reshape(shape), self._dtype(index)))
            else:
                inputs.append(self._as(index, shape))
        options = self.skeleton.schema.ConcatenationOptionsT()
        options.axis = axis
        self._emit("CONCATENATION", inputs, [self._result(result)], 1, options)

    def _unpack(self, op: tflite.OperatorT) -> None:
        """Takes slices along an axis."""
        source = int(op.inputs[0])
        axis = self._axes(op.builtinOptions.axis, source)[0]
        before = self._four(source)
        for place, result in enumerate(map(int, op.outputs)):
            begin, end = [0] * _RANK, list(self._shape(before))
            begin[axis], end[axis] = place, place + 1
            self._sliced(before, begin, end, [1] * _RANK, result)

    def _split(self, op: tflite.OperatorT) -> None:
        axis = self._axes(self._value(int(op.inputs[0])), int(op.inputs[1]))[0]
        self._append(op, [self._constant(axis), self._four(op.inputs[1])], [self._result(i) for i in op.outputs])

    def _strided_slice(self, op: tflite.OperatorT) -> None:
        """Writes out masks; axes that the operator drops are dropped by a RESHAPE."""
        source, options = int(op.inputs[0]), op.builtinOptions
        if any(int(i) not in self.constants for i in op.inputs[1:]) or options.ellipsisMask or options.newAxisMask:
            return self._keep(op)
        shape = self.shapes[source]
        begin, end, strides = [0] * len(shape), list(shape), [1] * len(shape)
        given = zip(*(self._value(int(i)) for i in op.inputs[1:]), strict=True)
        for axis, (first, last, step) in enumerate(given):
            size, bit = shape[axis], 1 << axis
            if step < 0:
                return self._keep(op)
            strides[axis] = int(step)
            if options.shrinkAxisMask & bit:
                begin[axis] = int(first) % size
                end[axis], strides[axis] = begin[axis] + 1, 1
                continue
            if not options.beginMask & bit:
                begin[axis] = min(max(int(first) + (size if first < 0 else 0), 0), size)
            if not options.endMask & bit:
                end[axis] = min(max(int(last) + (size if last < 0 else 0), 0), size)
        if source in self.constants and begin[1:] == [0] * (len(shape) - 1) and end[1:] == list(shape[1:]):
            rows = self._gathered(source, self._computed_ids(np.arange(begin[0], end[0], strides[0])), 0)
            return self._finish(rows, int(op.outputs[0]))
        missing = _RANK - len(shape)
        self._sliced(
            self._computed(source),
            [0] * missing + begin,
            [1] * missing + end,
            [1] * missing + strides,
            int(op.outputs[0]),
        )

    def _slice(self, op: tflite.OperatorT) -> None:
        source = int(op.inputs[0])
        if any(int(i) not in self.constants for i in op.inputs[1:]):
            return self._keep(op)
        begin, size = (self._value(int(i)) for i in op.inputs[1:])
        shape, missing = self.shapes[source], _RANK - len(self.shapes[source])
        ends = [
            total if length < 0 else int(first) + int(length)
            for total, first, length in zip(shape, begin, size, strict=True)
        ]
        before = self._computed(source)
        self._sliced(
            before, [0] * missing + [int(n) for n in begin], [1] * missing + ends, [1] * _RANK, int(op.outputs[0])
        )

    def _sliced(
        self, before: int, begin: Sequence[int], end: Sequence[int], strides: Sequence[int], result: int
    ) -> None:
        shape = [-(-(last - first) // step) for first, last, step in zip(begin, end, strides, strict=True)]
        if list(self._shape(before)) == shape and result not in self.outputs:
            self.aligned[result] = self._reshaped(before, four_axes(self.shapes[result]))
            return
        written = self._result(result, shape)
        inputs = [before, self._constant(begin), self._constant(end), self._constant(strides)]
        self._emit("STRIDED_SLICE", inputs, [written], 1, self.skeleton.schema.StridedSliceOptionsT())
        self._finish(written, result)

    def _pad(self, op: tflite.OperatorT) -> None:
        widths = self._value(int(op.inputs[1]))
        widths = np.concatenate([np.zeros((_RANK - len(widths), 2), "int32"), widths.astype("int32")])
        inputs = [self._computed(op.inputs[0]), self._constant(widths), *map(int, op.inputs[2:])]
        self._append(op, inputs, [self._result(op.outputs[0])])

    def _tile(self, op: tflite.OperatorT) -> None:
        """Repeats a tensor until it has the size of the result, as TILE and BROADCAST_TO do."""
        before, result = self._computed(op.inputs[0]), int(op.outputs[0])
        sizes = zip(self._shape(before), four_axes(self.shapes[result]), strict=True)
        multiples = [there // here for here, there in sizes]
        if max(multiples) == 1 and result not in self.outputs:
            self.aligned[result] = before
            return
        options = self.skeleton.schema.TileOptionsT()
        self._emit("TILE", [before, self._constant(multiples)], [self._result(result)], 1, options)

    def _select(self, op: tflite.OperatorT) -> None:
        """Repeats the values until they have the size of the result; the condition may be broadcast."""
        condition, *branches = map(int, op.inputs)
        wanted = four_axes(self.shapes[int(op.outputs[0])])
        inputs = [self._operand(condition)]
        for index in branches:
            if index not in self.constants or self._is_weight(index):
                inputs.append(self._repeated(self._computed(index), wanted))
                continue
            value = self._value(index)
            full = value if value.size == 1 else np.broadcast_to(value.reshape(four_axes(value.shape)), wanted)
            inputs.append(self._constant(full, self._dtype(index)))
        options = self.skeleton.schema.SelectV2OptionsT()
        self._emit("SELECT_V2", inputs, [self._result(op.outputs[0])], 1, options)

    def _repeated(self, before: int, wanted: Sequence[int]) -> int:
        """Returns the tensor repeated along axes of size 1."""
        if self._shape(before) == tuple(wanted):
            return before
        after = self._new(before, wanted)
        multiples = [there // here for here, there in zip(self._shape(before), wanted, strict=True)]
        options = self.skeleton.schema.TileOptionsT()
        self._emit("TILE", [before, self._constant(multiples)], [after], 1, options)
        return after

    def _product(self, op: tflite.OperatorT) -> None:
        """BATCH_MATMUL: transposes and repeats operands that the operator would transpose or repeat."""
        options, inputs = op.builtinOptions, []
        outer = four_axes(self.shapes[int(op.outputs[0])])[:2]
        for index, flipped in zip(op.inputs, (options.adjX, options.adjY), strict=True):
            before = self._four(index)
            if flipped:
                shape = self._shape(before)
                after = self._new(before, (*shape[:-2], shape[-1], shape[-2]))
                order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
                self._emit(
                    "TRANSPOSE", [before, self._constant(order)], [after], 1, self.skeleton.schema.TransposeOptionsT()
                )
                before = after
            if before not in self.constants:
                before = self._repeated(before, (*outer, *self._shape(before)[2:]))
            inputs.append(before)
        options.adjX = options.adjY = False
        self._append(op, inputs, [self._result(op.outputs[0])])

    def _fully_connected(self, op: tflite.OperatorT) -> None:
        source, result = int(op.inputs[0]), int(op.outputs[0])
        before = self._computed(source)
        op.builtinOptions.keepNumDims = True
        written = self._result(result, (*self._shape(before)[:-1], self.shapes[result][-1]))
        self._append(op, [before, *map(int, op.inputs[1:])], [written])
        self._finish(written, result)

    def _gather(self, op: tflite.OperatorT) -> None:
        """Looks up with a flat list of ids that is not constant."""
        data, ids, result = int(op.inputs[0]), int(op.inputs[1]), int(op.outputs[0])
        if op.builtinOptions.batchDims or (ids in self.constants and self._is_weight(ids)):
            return self._keep(op)
        axis = int(op.builtinOptions.axis) % len(self.shapes[data])
        if data in self.constants:
            written = self._gathered(data, self._flat_ids(ids), axis)
        else:
            written = self._gathered(self._four(data), self._flat_ids(ids), self._axes(axis, data)[0])
        self._finish(written, result)

    def _lookup(self, op: tflite.OperatorT) -> None:
        ids, table, result = int(op.inputs[0]), int(op.inputs[1]), int(op.outputs[0])
        ids = self._flat_ids(ids)
        written = self._new(result, (*self._shape(ids), *self._shape(table)[1:]))
        self._append(op, [ids, table], [written])
        self._finish(written, result)

    def _flat_ids(self, index: int) -> int:
        if index in self.constants:
            return self._computed_ids(self._value(index).reshape(-1))
        return self._as(index, (prod(self.shapes[index]),))

    def _computed_ids(self, ids: np.ndarray) -> int:
        """Returns constant ids as the result of an operator, since the delegate looks up no constant ids."""
        return self._reshaped(self._computed_integers(ids.reshape(1, 1, 1, -1)), (len(ids),))

    def _computed_integers(self, values: np.ndarray) -> int:
        """Returns constant integers with four axes as a sum with 0 times the first input."""
        total = self._new(self._computed_zero(), values.shape)
        zeros = self._repeated(self._computed_zero(), values.shape)
        self._emit("ADD", [zeros, self._constant(values)], [total], 1, self.skeleton.schema.AddOptionsT())
        return total

    def _computed_zero(self) -> int:
        if self._zero is None:
            integers = self.skeleton.schema.TensorType.INT32
            first = next(int(i) for i in self.graph.inputs if self.graph.tensors[int(i)].type == integers)
            before = self._four(first)
            element = self._new(before, (1, 1, 1, 1))
            corner = [self._constant([0] * _RANK), self._constant([1] * _RANK), self._constant([1] * _RANK)]
            options = self.skeleton.schema.StridedSliceOptionsT()
            self._emit("STRIDED_SLICE", [before, *corner], [element], 1, options)
            self._zero = self._new(before, (1, 1, 1, 1))
            self._emit("MUL", [element, self._constant(0)], [self._zero], 1, self.skeleton.schema.MulOptionsT())
        return self._zero

    def _gathered(self, data: int, ids: int, axis: int) -> int:
        shape = self._shape(data)
        written = self._new(data, (*shape[:axis], *self._shape(ids), *shape[axis + 1 :]))
        options = self.skeleton.schema.GatherOptionsT()
        options.axis = axis
        self._emit("GATHER", [data, ids], [written], 1, options)
        return written

    def _update(self, op: tflite.OperatorT) -> None:
        """DYNAMIC_UPDATE_SLICE, with a flat list of indices."""
        data, update, start = map(int, op.inputs)
        missing = _RANK - len(self.shapes[data])
        if missing or start in self.constants:
            return self._keep(op)
        inputs = [self._four(data), self._four(update), self._as(start, self.shapes[start])]
        self._append(op, inputs, [self._result(op.outputs[0])])


_SAME_NUMBERS = ("CAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE")
_EACH = (
    "ABS ADD CAST CEIL DEQUANTIZE DIV ELU EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD GELU GREATER GREATER_EQUAL "
    "HARD_SWISH LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MINIMUM MUL NEG "
    "NOT_EQUAL POW QUANTIZE RELU RELU6 ROUND RSQRT SIGN SOFTMAX SQRT SQUARE SQUARED_DIFFERENCE SUB TANH"
).split()

_HANDLERS: dict[str, Callable[[_Rewriting, tflite.OperatorT], None]] = {
    **dict.fromkeys(_EACH, _Rewriting._each),
    **dict.fromkeys(
        ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ALL", "REDUCE_ANY"), _Rewriting._reduce
    ),
    **dict.fromkeys(("RESHAPE", "EXPAND_DIMS", "SQUEEZE"), _Rewriting._reshape),
    **dict.fromkeys(("COS", "SIN"), _Rewriting._angle),
    **dict.fromkeys(("TILE", "BROADCAST_TO"), _Rewriting._tile),
    **dict.fromkeys(("SELECT", "SELECT_V2"), _Rewriting._select),
    **dict.fromkeys(("PAD", "PADV2"), _Rewriting._pad),
    "BATCH_MATMUL": _Rewriting._product,
    "CONCATENATION": _Rewriting._concatenate,
    "CUMSUM": _Rewriting._cumsum,
    "DYNAMIC_UPDATE_SLICE": _Rewriting._update,
    "EMBEDDING_LOOKUP": _Rewriting._lookup,
    "FULLY_CONNECTED": _Rewriting._fully_connected,
    "GATHER": _Rewriting._gather,
    "PACK": _Rewriting._pack,
    "SLICE": _Rewriting._slice,
    "SPLIT": _Rewriting._split,
    "STRIDED_SLICE": _Rewriting._strided_slice,
    "TRANSPOSE": _Rewriting._transpose,
    "UNPACK": _Rewriting._unpack,
}
"""How each operator is rewritten; others keep the shapes of their operands."""

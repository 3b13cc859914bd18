"""The TFLite graph between conversion and writing, and the operations that the steps of an export apply to it.

`Skeleton` contains the result of TensorFlow's converter for functions whose weights are arguments. The module `fusion`
removes unnecessary operators, and the module `weights` turns the arguments into constants.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kerasformer.bundle import TensorInfo
from kerasformer.engines.litert.flatbuffer_schema import names, schema
from kerasformer.errors import ExportError

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as tflite

_FORBIDDEN = {"CUSTOM", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"}


class FileWeight(Protocol):
    """A weight in the layout in which the file stores it."""

    @property
    def name(self) -> str:
        """Name of its tensor."""
        ...

    @property
    def path(self) -> str:
        """Path of the Keras variable."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape as stored."""
        ...

    def value(self) -> np.ndarray:
        """Returns the value of that shape, float32 or, for a matrix, of 16 bits."""
        ...


class Stored(Protocol):
    """Content of a buffer of the file."""

    @property
    def num_bytes(self) -> int:
        """Size of the content in bytes."""
        ...

    def scales(self) -> np.ndarray | None:
        """Returns float32 scales of the tensors that use this buffer, one for each row; `None` for float values."""
        ...

    def content(self) -> Iterator[bytes]:
        """Yields the content in parts."""
        ...


@dataclass(frozen=True)
class _Code:
    """An operator with its version."""

    builtin: int
    version: int
    custom: bytes | None = None


class Skeleton:
    """A converted model whose weights are no longer inputs.

    Args:
        contents: The flatbuffers, each with some of the signatures.
        weights: Weights by the name of their input.

    Attributes:
        model: The model as objects of the schema.
        weights: Weights by the name of their input.
        weight_tensors: Graph and index of the tensors of each weight that is used, by the name of its input.
        stored: Content of the buffers of weights, by their index in the model.
    """

    def __init__(self, contents: Sequence[bytes], weights: Mapping[str, FileWeight]) -> None:
        self.schema = schema()
        self.model = self._joined(contents)
        self.weights = weights
        self.weight_tensors: dict[str, list[tuple[tflite.SubGraphT, int]]] = defaultdict(list)
        self.stored: dict[int, Stored] = {}
        self._names = names(self.schema.BuiltinOperator)
        codes = [_Code(code.builtinCode, code.version, code.customCode) for code in self.model.operatorCodes]
        self._codes = {id(op): codes[op.opcodeIndex] for _, op in self._operators()}
        for signature in self.model.signatureDefs:
            self._take_inputs(signature)

    def _joined(self, contents: Sequence[bytes]) -> tflite.ModelT:
        """Returns one model with the graphs of all; equal buffers and operator codes are merged in `finish`."""
        joined, *others = (self.schema.ModelT.InitFromPackedBuf(bytearray(content), 0) for content in contents)
        for model in others:
            for signature in model.signatureDefs:
                signature.subgraphIndex += len(joined.subgraphs)
            for graph in model.subgraphs:
                for tensor in graph.tensors:
                    tensor.buffer += len(joined.buffers)
                for op in graph.operators:
                    op.opcodeIndex += len(joined.operatorCodes)
            joined.signatureDefs += model.signatureDefs
            joined.subgraphs += model.subgraphs
            joined.buffers += model.buffers
            joined.operatorCodes += model.operatorCodes
        return joined

    @property
    def graphs(self) -> list[tflite.SubGraphT]:
        """The graphs, one for each signature."""
        return list(self.model.subgraphs)

    def kind(self, op: tflite.OperatorT) -> str:
        """Returns the name of an operator, such as `"FULLY_CONNECTED"`."""
        return self._names[self._codes[id(op)].builtin]

    def weights_of(self, graph: tflite.SubGraphT) -> dict[int, str]:
        """Returns the names of the weights by the index of their tensor in this graph."""
        return {index: name for name, tensors in self.weight_tensors.items() for g, index in tensors if g is graph}

    def recode(self, op: tflite.OperatorT, kind: str, version: int) -> None:
        """Changes the kind or version of an operator."""
        self._codes[id(op)] = _Code(getattr(self.schema.BuiltinOperator, kind), version)

    def operator(self, kind: str, version: int, inputs: Sequence[int], outputs: Sequence[int]) -> tflite.OperatorT:
        """Creates an operator without options, which the caller adds to a graph."""
        op = self.schema.OperatorT()
        op.inputs, op.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        # The key is id(op), which stays unique because the graph keeps a reference to the operator.
        self.recode(op, kind, version)
        return op

    def tensor(self, graph: tflite.SubGraphT, name: str, shape: Sequence[int], dtype: str, buffer: int = 0) -> int:
        """Adds a tensor of a type such as `"INT8"` to a graph and returns its index."""
        tensor = self.schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, np.array(shape, np.int32), buffer
        tensor.type = getattr(self.schema.TensorType, dtype)
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1

    def quantization(self, scale: Sequence[float], zero_point: int = 0) -> tflite.QuantizationParametersT:
        """Creates quantization parameters with scales along the first axis and one zero point."""
        parameters = self.schema.QuantizationParametersT()
        parameters.scale = np.array(scale, np.float32)
        parameters.zeroPoint = np.full(len(scale), zero_point, np.int64)
        parameters.quantizedDimension = 0
        return parameters

    def buffer(self, stored: Stored) -> int:
        """Adds a buffer and returns its index in the model."""
        buffer = self.schema.BufferT()
        buffer.data = np.zeros(1, np.uint8)  # placeholder until the content is written
        self.model.buffers.append(buffer)
        self.stored[len(self.model.buffers) - 1] = stored
        return len(self.model.buffers) - 1

    def finish(self) -> None:
        """Removes unused tensors, names, buffers and operator codes, which take megabytes in a large model."""
        for graph in self.graphs:
            self._drop_unused_tensors(graph)
            self._drop_details(graph)
        self._share_buffers()
        self._rebuild_codes()

    def check(self, expected: Mapping[str, tuple[Mapping[str, TensorInfo], Mapping[str, TensorInfo]]]) -> None:
        """Checks the operators of the graphs, and compares their signatures with the expected `(inputs, outputs)`.

        Raises:
            ExportError: A graph has a custom operator or a variable, or a signature differs.
        """
        foreign = {self._full_name(op) for _, op in self._operators() if self.kind(op) in _FORBIDDEN}
        if foreign:
            raise ExportError(
                "The model uses operations for which TFLite has no operator, or reads variables that were not passed. "
                f"Expected: built-in operators. Received: {', '.join(sorted(foreign))}"
            )
        received = {}
        for signature in self.model.signatureDefs:
            graph = self.model.subgraphs[signature.subgraphIndex]
            received[signature.signatureKey.decode()] = tuple(
                {entry.name.decode(): self._shape_and_dtype(graph, entry.tensorIndex) for entry in entries}
                for entries in (signature.inputs, signature.outputs)
            )
        expected_specs = {
            key: tuple({name: (tuple(info.shape), info.dtype) for name, info in part.items()} for part in parts)
            for key, parts in expected.items()
        }
        if received != expected_specs:
            raise ExportError(f"The converted signatures are wrong. Expected: {expected_specs}. Received: {received}")

    def _operators(self) -> Iterator[tuple[tflite.SubGraphT, tflite.OperatorT]]:
        for graph in self.model.subgraphs:
            for op in graph.operators:
                yield graph, op

    def _take_inputs(self, signature: tflite.SignatureDefT) -> None:
        """Removes weights from the inputs of a signature and records their tensors."""
        graph = self.model.subgraphs[signature.subgraphIndex]
        weight_inputs = {}
        for entry in signature.inputs:
            name = entry.name.decode()
            if name in self.weights:
                weight_inputs[int(entry.tensorIndex)] = name
        used = {int(index) for op in graph.operators for index in op.inputs}
        for index, name in weight_inputs.items():
            if index in used:
                self.weight_tensors[name].append((graph, index))
        signature.inputs = [entry for entry in signature.inputs if int(entry.tensorIndex) not in weight_inputs]
        graph.inputs = np.array([i for i in graph.inputs if int(i) not in weight_inputs], np.int32)

    def _drop_unused_tensors(self, graph: tflite.SubGraphT) -> None:
        used = {int(i) for i in (*graph.inputs, *graph.outputs)}
        used |= {int(i) for op in graph.operators for i in (*op.inputs, *op.outputs) if i >= 0}
        details = [graph.tensors[i].quantization.details for i in used if graph.tensors[i].quantization is not None]
        blockwise = [entry for entry in details if isinstance(entry, self.schema.BlockwiseQuantizationT)]
        used |= {int(entry.scales) for entry in blockwise}
        new = {old: index for index, old in enumerate(sorted(used))}
        new[-1] = -1
        for entry in blockwise:
            entry.scales = new[int(entry.scales)]
        for op in graph.operators:
            op.inputs = np.array([new[int(i)] for i in op.inputs], np.int32)
            op.outputs = np.array([new[int(i)] for i in op.outputs], np.int32)
        graph.inputs = np.array([new[int(i)] for i in graph.inputs], np.int32)
        graph.outputs = np.array([new[int(i)] for i in graph.outputs], np.int32)
        for signature in self.model.signatureDefs:
            if self.model.subgraphs[signature.subgraphIndex] is graph:
                for entry in (*signature.inputs, *signature.outputs):
                    entry.tensorIndex = new[int(entry.tensorIndex)]
        graph.tensors = [graph.tensors[old] for old in sorted(used)]

    def _drop_details(self, graph: tflite.SubGraphT) -> None:
        """Removes names of intermediate tensors, which are paths of TensorFlow functions, and empty quantization."""
        named = {int(i) for i in (*graph.inputs, *graph.outputs)}
        for index, tensor in enumerate(graph.tensors):
            if index not in named and tensor.buffer not in self.stored:
                tensor.name = b""
            parameters = tensor.quantization
            if parameters is not None and parameters.scale is None and parameters.details is None:
                tensor.quantization = None

    def _share_buffers(self) -> None:
        """Gives all computed tensors one buffer, and equal constants one each; removes unused buffers."""
        used = {tensor.buffer for graph in self.graphs for tensor in graph.tensors}
        used |= {metadata.buffer for metadata in self.model.metadata or []}
        buffers: list[tflite.BufferT] = [self.model.buffers[0]]
        content: dict[bytes, int] = {b"": 0}
        stored: dict[int, Stored] = {}
        new: dict[int, int] = {}
        for old, buffer in enumerate(self.model.buffers):
            if old not in used:
                continue
            data = b"" if buffer.data is None else bytes(buffer.data)
            if old in self.stored:
                new[old] = len(buffers)
                stored[new[old]] = self.stored[old]
                buffers.append(buffer)
            elif data not in content:
                new[old] = content[data] = len(buffers)
                buffers.append(buffer)
            else:
                new[old] = content[data]
        for graph in self.graphs:
            for tensor in graph.tensors:
                tensor.buffer = new[tensor.buffer]
        for metadata in self.model.metadata or []:
            metadata.buffer = new[metadata.buffer]
        self.model.buffers, self.stored = buffers, stored

    def _rebuild_codes(self) -> None:
        """Rebuilds the list of operator codes from the operators in use."""
        indices: dict[_Code, int] = {}
        entries: list[tflite.OperatorCodeT] = []
        for _, op in self._operators():
            code = self._codes[id(op)]
            if code not in indices:
                indices[code] = len(entries)
                entry = self.schema.OperatorCodeT()
                entry.builtinCode, entry.version, entry.customCode = code.builtin, code.version, code.custom
                entry.deprecatedBuiltinCode = min(entry.builtinCode, 127)
                entries.append(entry)
            op.opcodeIndex = indices[code]
        self.model.operatorCodes = entries

    def _full_name(self, op: tflite.OperatorT) -> str:
        custom = self._codes[id(op)].custom
        return self.kind(op) if custom is None else f"{self.kind(op)} {custom.decode()}"

    def _shape_and_dtype(self, graph: tflite.SubGraphT, index: int) -> tuple[tuple[int, ...], str]:
        tensor = graph.tensors[index]
        shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
        return shape, names(self.schema.TensorType)[tensor.type].lower()


def readers(graph: tflite.SubGraphT) -> Counter[int]:
    """Counts how often each tensor is used, as an input of an operator or as an output of the graph."""
    counts = Counter(int(i) for op in graph.operators for i in op.inputs)
    counts.update(int(i) for i in graph.outputs)
    return counts


def producers(graph: tflite.SubGraphT) -> dict[int, tflite.OperatorT]:
    """Returns the operator that produces each tensor."""
    return {int(out): op for op in graph.operators for out in op.outputs}


def has_bias(product: tflite.OperatorT) -> bool:
    """Returns whether a FULLY_CONNECTED has a bias."""
    return len(product.inputs) > 2 and product.inputs[2] >= 0

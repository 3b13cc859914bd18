"""The graph between conversion and writing: weight inputs become constants, and operators that read them change.

`Skeleton` holds what TensorFlow's converter made of functions whose weights were arguments. A kernel that only
FULLY_CONNECTED and look-ups read becomes int8; a bias is folded into the product before it; all signatures read the
same buffers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from kerasformer.bundle import TensorInfo
from kerasformer.errors import ExportError, require
from kerasformer.export.recipes import Recipe

_DYNAMIC_FULLY_CONNECTED = 9
_PER_ROW_EMBEDDING_LOOKUP = 3
_FORBIDDEN = {"CUSTOM", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"}


class StoredWeight(Protocol):
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
        """float32 of that shape."""
        ...


def schema() -> Any:
    """The classes that flatbuffers generated from TFLite's schema."""
    return require("ai_edge_litert.schema_py_generated", "litert")


def names(enumeration: type) -> dict[int, str]:
    """Numbers of a generated enumeration, with their names."""
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


class Skeleton:
    """A converted model whose weights are still inputs.

    Args:
        content: The flatbuffer.
        weights: By the name of the input that stands for them.

    Attributes:
        model: The graph, as the schema's objects.
        buffers: Place of each stored weight among the model's buffers.
        quantized: Names of the weights that are stored as int8.
    """

    def __init__(self, content: bytes, weights: Mapping[str, StoredWeight]) -> None:
        self.schema = schema()
        self.model = self.schema.ModelT.InitFromPackedBuf(bytearray(content), 0)
        self.weights = weights
        self._tensors: dict[str, list[tuple[Any, int]]] = defaultdict(list)
        self.quantized: set[str] = set()
        self.buffers: dict[str, int] = {}
        self._versions: dict[int, int] = {id(op): self._opcode(op).version for _, op in self._operators()}
        self._codes: dict[int, int] = {id(op): self._opcode(op).builtinCode for _, op in self._operators()}

    def absorb_weights(self, recipe: Recipe) -> None:
        """Turns weight inputs into constants, stored as the recipe says."""
        for signature in self.model.signatureDefs:
            self._take_inputs(signature)
        self._fold_biases()
        self._keep_dimensions()
        self.quantized = {name for name in self._tensors if self._quantizable(name, recipe)}
        self._point_at_buffers()
        for graph in self.model.subgraphs:
            self._drop_unused_tensors(graph)
        self._rebuild_opcodes()

    def check(self, expected: Mapping[str, tuple[Mapping[str, TensorInfo], Mapping[str, TensorInfo]]]) -> None:
        """Compares the graph with the signatures' `(inputs, outputs)`.

        Raises:
            ExportError: an operator that is not TFLite's own, a variable, a signature or tensor that differs.
        """
        foreign = {self._operator_name(op) for _, op in self._operators()}
        foreign = {name for name in foreign if name.split()[0] in _FORBIDDEN}
        if foreign:
            raise ExportError(
                "The model uses operations that TFLite has no operator for, or reads variables that were not given. "
                f"Expected: builtin operators. Received: {', '.join(sorted(foreign))}"
            )
        received = {}
        for signature in self.model.signatureDefs:
            graph = self.model.subgraphs[signature.subgraphIndex]
            received[signature.signatureKey.decode()] = tuple(
                {entry.name.decode(): self._shape_and_dtype(graph, entry.tensorIndex) for entry in entries}
                for entries in (signature.inputs, signature.outputs)
            )
        wanted = {
            key: tuple({name: (tuple(info.shape), info.dtype) for name, info in part.items()} for part in parts)
            for key, parts in expected.items()
        }
        if received != wanted:
            raise ExportError(f"The converted signatures differ. Expected: {wanted}. Received: {received}")

    def stored(self) -> Iterator[tuple[str, StoredWeight]]:
        """The weights that the file holds, by name."""
        return ((name, self.weights[name]) for name in self.buffers)

    def _opcode(self, op: Any) -> Any:
        return self.model.operatorCodes[op.opcodeIndex]

    def _is(self, op: Any, name: str) -> bool:
        return self._codes[id(op)] == getattr(self.schema.BuiltinOperator, name)

    def _operators(self) -> Iterator[tuple[Any, Any]]:
        for graph in self.model.subgraphs:
            for op in graph.operators:
                yield graph, op

    def _name_of(self, graph: Any) -> dict[int, str]:
        """Names of the weights, by the index of their tensor in this graph."""
        return {index: name for name, places in self._tensors.items() for g, index in places if g is graph}

    def _take_inputs(self, signature: Any) -> None:
        """Weight inputs stop being inputs; what they are is remembered."""
        graph = self.model.subgraphs[signature.subgraphIndex]
        taken = {}
        for entry in signature.inputs:
            name = entry.name.decode()
            if name in self.weights:
                taken[int(entry.tensorIndex)] = name
        used = {int(index) for op in graph.operators for index in op.inputs}
        for index, name in taken.items():
            if index in used:
                self._tensors[name].append((graph, index))
        signature.inputs = [entry for entry in signature.inputs if int(entry.tensorIndex) not in taken]
        graph.inputs = np.array([i for i in graph.inputs if int(i) not in taken], np.int32)

    def _fold_biases(self) -> None:
        """FULLY_CONNECTED and ADD of a vector become one operator."""
        for graph in self.model.subgraphs:
            weights = self._name_of(graph)
            producers = {int(out): op for op in graph.operators for out in op.outputs}
            readers = _readers(graph)
            folded = set()
            for op in graph.operators:
                if not self._is(op, "ADD"):
                    continue
                for x, bias in ((op.inputs[0], op.inputs[1]), (op.inputs[1], op.inputs[0])):
                    product = producers.get(int(x))
                    if product is None or not self._is(product, "FULLY_CONNECTED") or int(bias) not in weights:
                        continue
                    if len(graph.tensors[bias].shape) != 1 or readers[int(x)] != 1 or _has_bias(product):
                        continue
                    product.inputs = np.array([product.inputs[0], product.inputs[1], bias], np.int32)
                    product.outputs = op.outputs
                    product.builtinOptions.fusedActivationFunction = op.builtinOptions.fusedActivationFunction
                    folded.add(id(op))
                    break
            graph.operators = [op for op in graph.operators if id(op) not in folded]

    def _keep_dimensions(self) -> None:
        """RESHAPE to rows, FULLY_CONNECTED, RESHAPE back become one operator that keeps the leading dimensions."""
        for graph in self.model.subgraphs:
            producers = {int(out): op for op in graph.operators for out in op.outputs}
            readers = _readers(graph)
            consumers = {int(i): op for op in graph.operators for i in op.inputs if readers[int(i)] == 1}
            dropped: set[int] = set()
            for op in graph.operators:
                after = consumers.get(int(op.outputs[0]))
                if not self._is(op, "FULLY_CONNECTED") or after is None or not self._is(after, "RESHAPE"):
                    continue
                # The converter may have left out the first RESHAPE: the operator takes any rank.
                before = producers.get(int(op.inputs[0]))
                sources = [int(op.inputs[0])]
                if before is not None and self._is(before, "RESHAPE"):
                    sources.append(int(before.inputs[0]))
                width = int(graph.tensors[op.inputs[0]].shape[-1])
                wanted = [*graph.tensors[after.outputs[0]].shape[:-1], width]
                for source in sources:
                    if list(graph.tensors[source].shape) == wanted:
                        op.inputs = np.array([source, *op.inputs[1:]], np.int32)
                        op.outputs = after.outputs
                        op.builtinOptions.keepNumDims = True
                        dropped.add(id(after))
                        break
            graph.operators = [op for op in graph.operators if id(op) not in dropped]
            self._drop_dead_operators(graph)

    def _drop_dead_operators(self, graph: Any) -> None:
        """Takes out RESHAPEs whose result nobody reads any more."""
        readers = _readers(graph)
        outputs = {int(i) for i in graph.outputs}
        graph.operators = [
            op
            for op in graph.operators
            if not self._is(op, "RESHAPE") or readers[int(op.outputs[0])] or int(op.outputs[0]) in outputs
        ]

    def _quantizable(self, name: str, recipe: Recipe) -> bool:
        """A matrix that is only multiplied with and looked up in: those operators read int8."""
        weight = self.weights[name]
        if recipe.storage(weight.path, weight.shape) != "int8":
            return False
        for graph, index in self._tensors[name]:
            for op in graph.operators:
                places = [place for place, i in enumerate(op.inputs) if int(i) == index]
                if self._is(op, "FULLY_CONNECTED") and places in ([], [1]):
                    continue
                if self._is(op, "GATHER") and places in ([], [0]):
                    flat = len(graph.tensors[op.inputs[1]].shape) == 1
                    if not places or (flat and not op.builtinOptions.axis and not op.builtinOptions.batchDims):
                        continue
                if places:
                    return False
        return True

    def _point_at_buffers(self) -> None:
        """One buffer for each weight, whatever the number of tensors that show it."""
        for name, places in self._tensors.items():
            buffer = self.schema.BufferT()
            buffer.data = np.zeros(1, np.uint8)
            self.buffers[name] = len(self.model.buffers)
            self.model.buffers.append(buffer)
            for graph, index in places:
                tensor = graph.tensors[index]
                tensor.buffer = self.buffers[name]
                tensor.name = self.weights[name].name
                if name in self.quantized:
                    tensor.type = self.schema.TensorType.INT8
                    tensor.quantization = self.schema.QuantizationParametersT()
                    # Placeholders, as the buffer's content is.
                    tensor.quantization.scale = np.ones(1, np.float32)
                    tensor.quantization.zeroPoint = np.zeros(1, np.int64)
                    tensor.quantization.quantizedDimension = 0
                    self._read_quantized(graph, index)

    def _read_quantized(self, graph: Any, index: int) -> None:
        for op in graph.operators:
            if index not in [int(i) for i in op.inputs]:
                continue
            if self._is(op, "FULLY_CONNECTED"):
                self._versions[id(op)] = _DYNAMIC_FULLY_CONNECTED
                op.builtinOptions.asymmetricQuantizeInputs = True
            elif self._is(op, "GATHER"):
                self._codes[id(op)] = self.schema.BuiltinOperator.EMBEDDING_LOOKUP
                self._versions[id(op)] = _PER_ROW_EMBEDDING_LOOKUP
                op.inputs = np.array([op.inputs[1], op.inputs[0]], np.int32)
                op.builtinOptionsType, op.builtinOptions = 0, None

    def _drop_unused_tensors(self, graph: Any) -> None:
        used = {int(i) for i in (*graph.inputs, *graph.outputs)}
        used |= {int(i) for op in graph.operators for i in (*op.inputs, *op.outputs) if i >= 0}
        new = {old: place for place, old in enumerate(sorted(used))}
        new[-1] = -1
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

    def _rebuild_opcodes(self) -> None:
        """The list of operators in use, and no others."""
        places: dict[tuple[int, int, bytes | None], int] = {}
        entries: list[Any] = []
        for _, op in self._operators():
            key = (self._codes[id(op)], self._versions[id(op)], self._opcode(op).customCode)
            if key not in places:
                places[key] = len(entries)
                entry = self.schema.OperatorCodeT()
                entry.builtinCode, entry.version, entry.customCode = key
                entry.deprecatedBuiltinCode = min(entry.builtinCode, 127)
                entries.append(entry)
            op.opcodeIndex = places[key]
        self.model.operatorCodes = entries

    def _operator_name(self, op: Any) -> str:
        name = names(self.schema.BuiltinOperator)[self._codes[id(op)]]
        custom = self._opcode(op).customCode
        return name if custom is None else f"{name} {custom.decode()}"

    def _shape_and_dtype(self, graph: Any, index: int) -> tuple[tuple[int, ...], str]:
        tensor = graph.tensors[index]
        shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
        return shape, names(self.schema.TensorType)[tensor.type].lower()


def _readers(graph: Any) -> Counter[int]:
    """How often each tensor is read, as an operator's input or as a result of the graph."""
    counts = Counter(int(i) for op in graph.operators for i in op.inputs)
    counts.update(int(i) for i in graph.outputs)
    return counts


def _has_bias(product: Any) -> bool:
    return len(product.inputs) > 2 and product.inputs[2] >= 0

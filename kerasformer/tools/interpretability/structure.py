"""What a model is made of, seen while it runs on symbols: which parts read the output of which.

Nothing here knows an architecture: parts are recorded when they are called, and residual sums when they are added.
The graphs of TensorFlow also tell what a tensor was computed from by other operations. On other backends, a part whose
input was computed so reads what nothing has read before; of all architectures, this moves one line, the one to the
convolution of DeBERTa v2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras

from kerasformer.layers import (
    Decoder,
    Dropout,
    Encoder,
    LayerArguments,
    Outputs,
    Tensor,
    TransformerEmbeddings,
    Visibility,
)
from kerasformer.models import Backbone, PretrainedModel
from kerasformer.tools.interpretability.costs import Costs, Counting, count, kind_of

INPUT = -1
"""In `Part.inputs`: the input of the section."""
_SUM_INPUTS = 2


@dataclass(eq=False)
class Part:
    """A layer that is called, or a sum.

    Attributes:
        layer: The layer; `None` for a sum.
        inputs: Indices of the parts of the section whose outputs it reads, or `INPUT`.
        shape: Shape of its output; `None` if that is no tensor.
        reads_memory: Whether it reads the encoded text.
        visibility: Which keys a token may attend to.
        macs: Multiply-adds in products with weights, for the whole traced text.
        attention_macs: Multiply-adds of queries with keys and of weights with values, likewise.
    """

    layer: keras.layers.Layer | None
    inputs: tuple[int, ...]
    shape: tuple[int, ...] | None
    reads_memory: bool = False
    visibility: Visibility | None = None
    macs: int = 0
    attention_macs: int = 0


@dataclass(eq=False)
class Section:
    """Parts in the order of their calls.

    Attributes:
        parts: The parts.
        result: Index of the part whose output leaves the section; `INPUT` without parts.
    """

    parts: list[Part] = field(default_factory=list)
    result: int = INPUT


@dataclass(eq=False)
class TracedStack:
    """A stack of layers.

    Attributes:
        stack: The stack.
        embeddings: What comes before its first layer.
        layers: Layers in the order of their application, with the index of their kind.
        kinds: The parts of each kind of layer.
        final: The norm after the last layer, if there is one.
    """

    stack: Encoder | Decoder
    embeddings: Section
    layers: list[tuple[keras.layers.Layer, int]] = field(default_factory=list)
    kinds: list[Section] = field(default_factory=list)
    final: Section = field(default_factory=Section)


@dataclass(frozen=True, eq=False)
class Structure:
    """What a model is made of.

    Attributes:
        stacks: The stacks, in the order of their calls.
        head: What comes after the last stack.
        costs: What the model costs.
        products: Variables that activations are multiplied with, by identity; `True` for one row for each output.
        tables: Variables of which rows are looked up, by identity.
        containers: Layers whose parts are drawn one by one.
    """

    stacks: list[TracedStack]
    head: Section
    costs: Costs
    products: dict[int, bool]
    tables: set[int]
    containers: list[keras.layers.Layer]


def structure(model: PretrainedModel, parameter_size: int) -> Structure:
    """Traces a model that `abstract_model` has created; its layers must not be used by anything else.

    Args:
        model: The model; its variables need no values.
        parameter_size: Bytes of a parameter in its files.
    """
    trace = _Trace(model)
    costs = count(model, trace, parameter_size)
    trace.complete()
    return Structure(trace.stacks, trace.outside.section, costs, trace.products, trace.tables, trace.containers)


class _Flow:
    """A section while it is recorded: which tensor comes from which part."""

    def __init__(self) -> None:
        self.section = Section()
        self._sources: dict[object, tuple[int, ...]] = {}
        self._kept: list[Tensor] = []  # so that no identity is given twice

    def enters(self, x: Tensor) -> None:
        """Records a tensor as the input of the section."""
        self._remember(x, (INPUT,))

    def add(self, part: Part, output: object) -> None:
        """Records a part and what it returned."""
        self.section.parts.append(part)
        self.section.result = len(self.section.parts) - 1
        for tensor in _tensors(output):
            self._remember(tensor, (self.section.result,))

    def passes(self, x: Tensor, y: Tensor) -> None:
        """Records that `y` is `x`, as for dropout."""
        self._remember(y, self._producers(x))

    def inputs(self, arguments: object) -> tuple[int, ...]:
        """Returns the parts that the tensors of a call come from; those that are added before the call become a sum."""
        states = [tensor for tensor in _tensors(arguments) if _is_float(tensor)]
        found = [part for tensor in states for part in self._summed(tensor, self._producers(tensor))]
        if states and not found:  # nothing is known of the operations in between
            found = self._summed(states[0], self._unread())
        return tuple(dict.fromkeys(found))

    def leaves(self, y: Tensor) -> None:
        """Records the output of the section."""
        (self.section.result,) = self._summed(y, self._producers(y) or self._unread())

    def _summed(self, tensor: Tensor, parts: Sequence[int]) -> list[int]:
        """Returns the parts that a tensor is computed from, or the sum of several."""
        if len(parts) < _SUM_INPUTS:
            return list(parts)
        self.add(Part(None, tuple(parts), tuple(tensor.shape)), tensor)
        return [self.section.result]

    def _remember(self, tensor: Tensor, parts: tuple[int, ...]) -> None:
        self._kept.append(tensor)
        self._sources[_key(tensor)] = parts

    def _producers(self, tensor: Tensor) -> tuple[int, ...]:
        """Returns the parts whose outputs a tensor is computed from without another part in between."""
        found: dict[int, None] = {}
        seen, pending = set(), [tensor]
        while pending:
            current = pending.pop()
            if (key := _key(current)) in seen:
                continue
            seen.add(key)
            if key in self._sources:
                found |= dict.fromkeys(self._sources[key])
            else:  # only the graphs of TensorFlow know from what a tensor was computed
                pending += list(getattr(getattr(current, "op", None), "inputs", ()))
        return tuple(sorted(found))

    def _unread(self) -> list[int]:
        """Returns the parts whose output nothing has read yet, without biases of scores; else the last one."""
        parts = self.section.parts
        read = {index for part in parts for index in part.inputs}
        states = [i for i, part in enumerate(parts) if i not in read and part.shape is not None and len(part.shape) < 4]
        return states or [len(parts) - 1]


class _Trace(Counting):
    """Counts, and records the parts of a model while it is traced."""

    def __init__(self, model: PretrainedModel) -> None:
        super().__init__()
        self.stacks: list[TracedStack] = []
        self.products: dict[int, bool] = {}
        self.tables: set[int] = set()
        self.containers: list[keras.layers.Layer] = []
        self.outside = self._flow = _Flow()
        self._depth = 0
        self._kinds: dict[str, Section] = {}
        stacks = [layer for layer in model._flatten_layers() if isinstance(layer, Encoder | Decoder)]
        self._stack_of = {id(layer): stack for stack in stacks for layer in stack.layers}
        self._final_norms = {id(stack.final_norm) for stack in stacks}
        for layer in self._drawn(model):
            object.__setattr__(layer, "call", self._recorded(layer, layer.call))

    def _drawn(self, layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
        """Yields the layers that are drawn as one part each."""
        opened = PretrainedModel, Backbone, Encoder, Decoder, TransformerEmbeddings
        children = list(layer._flatten_layers(include_self=False, recursive=False))
        if not children or not (isinstance(layer, opened) or id(layer) in self._stack_of):
            yield layer
            return
        self.containers.append(layer)
        for child in children:
            yield from self._drawn(child)

    def _recorded(self, layer: keras.layers.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return call(*args, **kwargs)
            flow = self._flow
            arguments = [*args, *(value for name, value in kwargs.items() if name != "memory")]
            inputs = flow.inputs(arguments)
            linear, attention = self.linear_macs, self.attention_macs
            self._depth += 1
            try:
                output = call(*args, **kwargs)
            finally:
                self._depth -= 1
            if isinstance(layer, Dropout):
                flow.passes(args[0], output)
                return output
            visibility = kwargs.get("visibility")
            reads_memory = any(_key(tensor) in self._memory for tensor in _tensors([args, kwargs]))
            macs = self.linear_macs - linear, self.attention_macs - attention
            part = Part(layer, inputs, _shape(output), reads_memory, visibility, *macs)
            if id(layer) in self._final_norms and self.stacks and flow is self.outside:
                self.stacks[-1].final.parts.append(Part(layer, (INPUT,), part.shape))
                self.stacks[-1].final.result = 0
                flow.enters(output)
            else:
                flow.add(part, output)
            return output

        return recorded

    _memory: frozenset[object] = frozenset()
    """Keys of the tensors with the encoded text, for the layer that is traced."""

    def layer(self, layer: keras.layers.Layer, x: Tensor, arguments: LayerArguments) -> Tensor | Outputs:
        """See `Primitives.layer`; records a layer of a stack."""
        stack = self._stack_of[id(layer)]
        if not self.stacks or self.stacks[-1].stack is not stack:
            self.outside.leaves(x)
            self.stacks.append(TracedStack(stack, self.outside.section))
            self.outside = _Flow()
        current = self.stacks[-1]
        kind = kind_of(layer)
        self._flow, self._memory = _Flow(), frozenset(map(_key, _tensors(arguments.get("memory"))))
        self._flow.enters(x)
        output = super().layer(layer, x, arguments)
        if kind not in self._kinds:
            self._flow.leaves(_tensors(output)[0])
            self._kinds[kind] = self._flow.section
        section = self._kinds[kind]
        if section not in current.kinds:
            current.kinds.append(section)
        current.layers.append((layer, current.kinds.index(section)))
        self._flow, self._memory = self.outside, frozenset()
        self.outside.enters(_tensors(output)[0])
        return output

    def complete(self) -> None:
        """Records the matrices of the layers that were not traced, since they equal another one."""
        for stack in self.stacks:
            first: dict[int, keras.layers.Layer] = {}
            for layer, kind in stack.layers:
                traced = first.setdefault(kind, layer)
                for variable, same in zip(layer.variables, traced.variables, strict=True):
                    if id(same) in self.products:
                        self.products[id(variable)] = self.products[id(same)]
                    if id(same) in self.tables:
                        self.tables.add(id(variable))

    def residual(self, x: Tensor, y: Tensor) -> Tensor:
        """See `Primitives.residual`; records the sum."""
        if self._depth:
            return super().residual(x, y)
        inputs = tuple(dict.fromkeys(self._flow.inputs([x]) + self._flow.inputs([y])))
        total = super().residual(x, y)
        self._flow.add(Part(None, inputs, tuple(total.shape)), total)
        return total

    def linear(self, x: Tensor, kernel: Tensor, bias: Tensor | None = None, *, transposed: bool = False) -> Tensor:
        self.products[id(kernel)] = transposed
        return super().linear(x, kernel, bias, transposed=transposed)

    def embedding(self, table: keras.Variable | Tensor, ids: Tensor) -> Tensor:
        self.tables.add(id(table))
        return super().embedding(table, ids)


def _key(tensor: Tensor) -> object:
    """Returns what identifies a tensor; operations of TensorFlow return new objects for the tensors of a graph."""
    op = getattr(tensor, "op", None)
    return id(tensor) if op is None else (id(op.graph), tensor.name)


def _tensors(values: object) -> list[Tensor]:
    """Returns the tensors in a nest of arguments or results."""
    found: list[Tensor] = []
    pending: list[object] = [values]
    while pending:
        value = pending.pop(0)
        if isinstance(value, Mapping):
            pending[:0] = list(value.values())
        elif isinstance(value, Iterable) and isinstance(value, list | tuple):
            pending[:0] = list(value)
        elif keras.ops.is_tensor(value) or isinstance(value, keras.KerasTensor):
            found.append(value)
    return found


def _is_float(tensor: Tensor) -> bool:
    return keras.backend.is_float_dtype(keras.backend.standardize_dtype(tensor.dtype))


def _shape(output: object) -> tuple[int, ...] | None:
    tensors = _tensors(output)
    return tuple(tensors[0].shape) if tensors else None

"""Equal layers of a stack as calls of one TensorFlow function, which is traced once for all of them.

Tracing a layer takes far longer than calling a function. TensorFlow and its converters inline the calls, so that the
result is the same.

Called by `models.compilation`, and by the export to TFLite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import keras
import numpy as np

from kerasformer.extras import require
from kerasformer.layers.layer_types import LayerArguments, Outputs
from kerasformer.layers.primitives import Primitives
from kerasformer.layers.tensor import Tensor, TensorFunction
from kerasformer.layers.visibility import Visibility


class EqualLayers:
    """The layers of one graph that are traced.

    The first layer of each kind is traced in the graph itself, where later ones find the masks and angles that layers
    share. A later one becomes a function, which all further ones call.

    Args:
        placeholders: Dictionaries of the tensors that take the place of variables, by the `id` of the variable. While a
            function is traced, its arguments are there instead.
        storage: Returns what a graph depends on beside the shape and data type of a variable, such as how it is stored.
        alone: Number of layers of each kind that are traced in the graph itself. A function of few calls saves nothing.
    """

    def __init__(
        self,
        placeholders: Sequence[MutableMapping[int, Tensor]],
        storage: Callable[[keras.Variable], Hashable] = lambda variable: None,
        alone: int = 1,
    ) -> None:
        self._placeholders, self._storage, self._alone = placeholders, storage, alone
        self._seen: Counter[Hashable] = Counter()
        self._functions: dict[Hashable, tuple[TensorFunction, Any]] = {}
        # Objects that are part of a key by their id, which must stay unique.
        self._alive: list[object] = []

    def call(self, layer: keras.layers.Layer, x: Tensor, arguments: LayerArguments) -> Tensor | Outputs:
        """Returns `layer(x, **arguments)`."""
        form, tensors = self._flat((x, arguments))
        key = form, self._likeness(layer)
        self._seen[key] += 1
        if self._seen[key] <= self._alone:
            return layer(x, **arguments)
        if key not in self._functions:
            self._functions[key] = self._traced(layer, (x, arguments), tensors)
        function, result = self._functions[key]
        return _filled(result, iter(function(*tensors, *(store[key] for store, key in self._variables(layer)))))

    def _traced(
        self, layer: keras.layers.Layer, arguments: tuple[Tensor, LayerArguments], tensors: Sequence[Tensor]
    ) -> tuple[TensorFunction, Any]:
        """Returns the function of a layer, of all tensors and variables, and its result, in which tensors count."""
        tf = require("tensorflow", "export")
        entries = list(self._variables(layer))
        result: Any = None

        def call(*values: Tensor) -> list[Tensor]:
            nonlocal result
            outer = [store[key] for store, key in entries]
            try:
                for (store, key), value in zip(entries, values[len(tensors) :], strict=True):
                    store[key] = value
                x, keywords = _filled(arguments, iter(values))
                result = layer(x, **keywords)
                return [tf.identity(tensor) for tensor in _tensors(result)]
            finally:
                for (store, key), value in zip(entries, outer, strict=True):
                    store[key] = value

        specs = [tf.TensorSpec(t.shape, t.dtype) for t in (*tensors, *(store[key] for store, key in entries))]
        return tf.function(call, autograph=False).get_concrete_function(*specs), result

    def _variables(self, layer: keras.layers.Layer) -> Iterator[tuple[MutableMapping[int, Tensor], int]]:
        """Yields where the placeholders of a layer's variables are."""
        for variable in layer.variables:
            for store in self._placeholders:
                if id(variable) in store:
                    yield store, id(variable)

    def _flat(self, value: object) -> tuple[Hashable, list[Tensor]]:
        """Returns a key of everything in a value except the tensors, and these."""
        tensors: list[Tensor] = []

        def form(value: Any) -> Hashable:
            if keras.ops.is_tensor(value):
                tensors.append(value)
                return tuple(value.shape), value.dtype
            if isinstance(value, dict):
                return tuple((name, form(entry)) for name, entry in value.items())
            if isinstance(value, list | tuple):
                return type(value), *map(form, value)
            if _is_structure(value):
                return type(value), *(form(getattr(value, field.name)) for field in fields(value))
            return self._constant(value)

        return form(value), tensors

    def _likeness(self, layer: keras.layers.Layer) -> Hashable:
        """Returns a key that two layers share only if their calls differ in nothing but the variables."""

        def likeness(value: Any) -> Hashable:
            if isinstance(value, keras.Variable):
                stores = tuple(id(value) in store for store in self._placeholders)
                return tuple(value.shape), value.dtype, stores, self._storage(value)
            if isinstance(value, keras.layers.Layer):
                attributes = {name: entry for name, entry in vars(value).items() if not _is_bookkeeping(name)}
                policy = value.dtype_policy.name
                return type(value), policy, tuple((name, likeness(entry)) for name, entry in sorted(attributes.items()))
            if isinstance(value, keras.initializers.Initializer):
                return None
            if isinstance(value, dict):
                return tuple((name, likeness(entry)) for name, entry in value.items())
            if isinstance(value, list | tuple):
                return tuple(map(likeness, value))
            return self._constant(value)

        return likeness(layer)

    def _constant(self, value: object) -> Hashable:
        """Returns a key of a value by which unknown objects equal only themselves."""
        if value is None or isinstance(value, bool | int | float | str):
            return type(value), value
        if is_dataclass(value) and isinstance(value, Hashable) and not isinstance(value, Visibility):
            try:
                return type(value), hash(value), value
            except TypeError:
                pass
        if isinstance(value, np.ndarray):
            return value.shape, value.dtype.str, value.tobytes()
        self._alive.append(value)
        return id(value)


class WithEqualLayers(Primitives):
    """Plain primitives with equal layers as calls of one function.

    Args:
        values: The tensors that take the place of variables, by the `id` of the variable.
    """

    def __init__(self, values: MutableMapping[int, Tensor]) -> None:
        self._layers = EqualLayers([values], alone=2)

    def layer(self, layer: keras.layers.Layer, x: Tensor, arguments: LayerArguments) -> Tensor | Outputs:
        """Applies a layer, which is traced once for all equal ones."""
        return self._layers.call(layer, x, arguments)


_BOOKKEEPING = frozenset(vars(keras.layers.Layer()))


def _is_bookkeeping(name: str) -> bool:
    """Returns whether an attribute is one by which Keras and TensorFlow track a layer."""
    return name in _BOOKKEEPING or name.startswith("_self_")


def _is_structure(value: object) -> bool:
    """Returns whether a value is searched for tensors: a cache is, but not a visibility, which all layers share."""
    if not is_dataclass(value) or isinstance(value, type | Visibility):
        return False
    return any(
        keras.ops.is_tensor(entry) or _is_structure(entry) or isinstance(entry, tuple) for entry in _entries(value)
    )


def _entries(value: Any) -> list[Any]:
    return [getattr(value, field.name) for field in fields(value)]


def _tensors(value: object) -> list[Tensor]:
    """Returns the tensors of a value in the order in which `_filled` replaces them."""
    tensors: list[Tensor] = []
    _mapped(value, tensors.append)
    return tensors


def _filled(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Returns a value with all tensors replaced by others."""
    return _mapped(value, lambda _: next(tensors))


def _mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    if keras.ops.is_tensor(value):
        return function(value)
    if isinstance(value, dict):
        return {name: _mapped(entry, function) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(entry, function) for entry in value)
    if _is_structure(value):
        return replace(value, **{field.name: _mapped(getattr(value, field.name), function) for field in fields(value)})
    return value

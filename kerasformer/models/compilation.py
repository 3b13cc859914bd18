"""Functions of tensors that are compiled with the active Keras backend."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

import keras

from kerasformer.layers.equal_layers import WithEqualLayers
from kerasformer.layers.layer_types import Outputs
from kerasformer.layers.primitives import is_lowered, lowering
from kerasformer.layers.tensor import Tensor, TensorFunction

if TYPE_CHECKING:
    import tensorflow as tf

_Compiled = TypeVar("_Compiled")


def compiled(
    function: TensorFunction, model: keras.Model, jit_compile: bool, any_length: bool = False
) -> TensorFunction:
    """Compiles a function with the active Keras backend.

    Args:
        function: A function of tensors.
        model: The model whose variables it reads.
        jit_compile: Whether to compile it with XLA.
        any_length: Whether to compile it only once for arrays `(batch, length)` of all shapes, the values of the
            dictionary that is its first argument (TensorFlow).
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return Graphs(_with_equal_layers(function, model), jit_compile, any_length)
    if backend == "jax":
        import jax

        def pure(values: Sequence[Tensor], *arguments: Tensor) -> Tensor | Outputs:
            # Weights are arguments; otherwise the compiled function would contain their current values as constants.
            with keras.StatelessScope(state_mapping=list(zip(model.variables, values, strict=True))):
                return function(*arguments)

        jitted = jax.jit(pure) if jit_compile else pure
        return lambda *arguments: jitted([variable.value for variable in model.variables], *arguments)
    import torch

    def without_gradient(*arguments: Tensor) -> Tensor | Outputs:
        with torch.no_grad():
            return function(*arguments)

    return without_gradient


def _with_equal_layers(function: TensorFunction, model: keras.Model) -> TensorFunction:
    """Returns the function in which equal layers are traced once, unless the caller computes them in its own way."""

    def call(*arguments: Tensor) -> Tensor | Outputs:
        if is_lowered():
            return function(*arguments)
        scope = keras.StatelessScope([(variable, variable.value) for variable in model.variables])
        with scope, lowering(WithEqualLayers(scope.state_mapping)):
            return function(*arguments)

    return call


def stored(model: keras.Model, key: tuple[object, ...], make: Callable[[], _Compiled]) -> _Compiled:
    """Returns compiled functions, which are stored in the model, so that the next engine does not compile again."""
    functions: dict[object, _Compiled] = model.__dict__.setdefault("_compiled_functions", {})
    if key not in functions:
        functions[key] = make()
    return functions[key]


class Graphs:
    """A function as TensorFlow graphs, traced for each new combination of shapes; see `compiled`."""

    def __init__(self, function: TensorFunction, jit_compile: bool, any_length: bool) -> None:
        import tensorflow as tf

        self._function = tf.function(function, jit_compile=jit_compile, autograph=False)
        # XLA needs all shapes, and beside texts of any length, arguments may be weights.
        self._any_batch = not jit_compile and not any_length
        self._any_length = any_length
        self._traced: dict[Hashable, tf.types.experimental.ConcreteFunction] = {}

    def graph(self, *tensors: Tensor) -> tf.types.experimental.ConcreteFunction:
        """Returns the concrete function for these tensors."""
        import tensorflow as tf

        free, fixed = (tensors[0], tensors[1:]) if self._any_length else ({}, tensors)
        # The lookup of TensorFlow takes a millisecond, which is significant for steps of small models.
        key = (*free, *(self._shape(tensor) for tensor in tf.nest.flatten(fixed)))
        if key not in self._traced:
            specs = {name: tf.TensorSpec([None, None], tensor.dtype) for name, tensor in free.items()}
            others = tf.nest.map_structure(lambda tensor: tf.TensorSpec(self._shape(tensor), tensor.dtype), fixed)
            self._traced[key] = self._function.get_concrete_function(*([specs] if free else []), *others)
        return self._traced[key]

    def _shape(self, tensor: Tensor) -> tuple[int | None, ...]:
        """Returns the shape that a graph for this tensor has, with any number of rows except for XLA."""
        shape = tuple(tensor.shape)
        return (None, *shape[1:]) if shape and self._any_batch else shape

    def __call__(self, *arguments: Tensor) -> Tensor | Outputs:
        """Runs the graph for these shapes."""
        import tensorflow as tf

        tensors = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        return self.graph(*tensors)(*tensors)

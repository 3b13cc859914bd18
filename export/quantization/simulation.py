"""Effect of coarser storage of some matrices on a model's answers, simulated in Keras without an export.

The matrices are replaced by the values that the file would contain, and their inputs are rounded as the runtimes round
them. All trials use the same compiled function, since the matrices are among its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
from keras import ops

from kerasformer.bundle import Fidelity
from kerasformer.bundle.recipes import Recipe
from kerasformer.engines.fidelity.comparison import compare
from kerasformer.export.quantization.layouts import Layout
from kerasformer.export.quantization.model_matrices import ModelMatrix
from kerasformer.export.quantization.sample_inputs import as_inputs, compared
from kerasformer.layers.primitives import Primitives, Weight, lowering
from kerasformer.layers.tensor import Tensor
from kerasformer.models.compilation import compiled
from kerasformer.models.pretrained import PretrainedModel

_INTEGERS = ("int8", "int4")


class Simulation:
    """A Keras model that computes with some of its matrices as a bundle would store them.

    Replaced matrices are kept in float32, so that the next mix costs only what differs from the current one.

    Args:
        model: A model of the zoo.
        parts: Its matrices.
        layout: Layout of the simulated files.
        function: Takes the model's inputs as keyword arguments and returns the outputs to compare, by name. By default
            they are the model's own outputs.
    """

    def __init__(
        self,
        model: PretrainedModel,
        parts: Sequence[ModelMatrix],
        layout: Layout,
        function: Callable[..., dict[str, Tensor]] | None = None,
    ) -> None:
        self.parts, self.layout = parts, layout
        self._replaced: dict[str, tuple[object, Tensor]] = {}
        self._rounded = {part.path: np.float32(0) for part in parts}
        self._scales: dict[str, np.ndarray] = {part.path: np.ones(part.rows[1], np.float32) for part in parts}
        variables = {part.path: part.variable for part in parts}

        def answer(
            inputs: dict[str, Tensor],
            values: Mapping[str, Tensor],
            rounded: Mapping[str, Tensor],
            scales: Mapping[str, Tensor],
        ) -> dict[str, Tensor]:
            mapping = [(variables[path], value) for path, value in values.items()]
            with keras.StatelessScope(state_mapping=mapping), lowering(_RoundedInputs(rounded, scales)):
                return model.named(model(inputs, training=False)) if function is None else function(**inputs)

        self._answer = compiled(answer, model, jit_compile=False, any_length=True)

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the answers to one passage; see `Forward.run`."""
        values = {
            part.path: self._replaced[part.path][1] if part.path in self._replaced else part.variable.value
            for part in self.parts
        }
        outputs = self._answer(as_inputs(inputs), values, self._rounded, self._scales)
        arrays = {name: ops.convert_to_numpy(value).astype("float32") for name, value in outputs.items()}
        return {name: compared(array, inputs) for name, array in arrays.items()}

    def fidelity(self, recipe: Recipe, references: Mapping[str, np.ndarray]) -> Fidelity:
        """Compares the answers with the matrices stored by a recipe with those of the Keras model.

        Args:
            recipe: How the matrices are stored.
            references: Result of `single_pass_references`.
        """
        self.store(recipe)
        return compare(self, references)

    def store(self, recipe: Recipe) -> None:
        """Stores the matrices by a recipe for the following runs."""
        for part in self.parts:
            self._replace(part, recipe)

    def _replace(self, part: ModelMatrix, recipe: Recipe) -> None:
        storage = recipe.storage(part.path, part.rows, part.table)
        self._rounded[part.path] = np.float32(recipe.activations == "dynamic" and storage in _INTEGERS)
        scale = part.input_scale(recipe)
        self._scales[part.path] = np.ones(part.rows[1], np.float32) if scale is None else scale
        if storage == "float32":
            self._replaced.pop(part.path, None)
            return
        setting = (storage, recipe.block, scale is not None)
        if part.path not in self._replaced or self._replaced[part.path][0] != setting:
            value = np.ascontiguousarray(part.in_keras(self.layout.as_stored(part, recipe)), "float32")
            self._replaced[part.path] = (setting, ops.convert_to_tensor(value, dtype=part.variable.dtype))


class _RoundedInputs(Primitives):
    """Plain primitives that round the inputs of products with integer kernels to 8 bits, with a scale for each row.

    Args:
        rounded: By the kernel's path, 1 if its input is rounded and 0 if not.
        scales: By the kernel's path, the scales of the input's channels.
    """

    def __init__(self, rounded: Mapping[str, Tensor], scales: Mapping[str, Tensor]) -> None:
        self.rounded, self.scales = rounded, scales

    def linear(self, x: Tensor, kernel: Weight, bias: Weight | None = None, *, transposed: bool = False) -> Tensor:
        """Computes the product with a rounded input."""
        if kernel.path in self.rounded:
            scaled = x * self.scales[kernel.path]
            step = ops.maximum(ops.max(ops.abs(scaled), axis=-1, keepdims=True) / 127, 1e-30)
            rounded = ops.round(scaled / step) * step / self.scales[kernel.path]
            x = ops.where(self.rounded[kernel.path] > 0, rounded, x)
        return super().linear(x, kernel, bias, transposed=transposed)

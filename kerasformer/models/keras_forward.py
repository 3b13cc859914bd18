"""The engine of Keras models that do not generate."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from kerasformer.bundle.adapters import Adapter
from kerasformer.layers.core import lora_change
from kerasformer.layers.tensor import TensorFunction
from kerasformer.models.adaptation import set_adapter
from kerasformer.models.compilation import Graphs, compiled, stored
from kerasformer.models.named_arrays import check_shapes
from kerasformer.models.pretrained import PretrainedModel


class KerasForward:
    """The `Forward` protocol for a Keras model that does not generate.

    Args:
        model: A model with `generates = False`.
        function: Function from the inputs, as keyword arguments, to outputs by name; by default `model.named_outputs`.
    """

    def __init__(self, model: PretrainedModel, function: TensorFunction | None = None) -> None:
        self.model = model
        self._key = "outputs", lora_change(model)
        compiled_function = (
            None if function is None or function == model.named_outputs else _of_named_inputs(function, model)
        )
        self._function = compiled_function

    @property
    def _call(self) -> TensorFunction:
        """The compiled function, compiled anew after an adapter was loaded or removed."""
        if self._function is not None:
            return self._function
        return stored(self.model, self._key, self._compiled)

    def _compiled(self) -> TensorFunction:
        return _of_named_inputs(self.model.named_outputs, self.model)

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Runs the model with an adapter, or without; see `AdaptableEngine.set_adapter`."""
        set_adapter(self.model, adapter)

    def output_shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Returns the shapes of the model's outputs, in which the batch size and the length of texts are `None`."""
        names = self.model.input_names
        if isinstance(call := self._call, Graphs):  # the graph that will be run
            outputs = call.graph({name: ops.zeros((1, 1), "int32") for name in names}).structured_outputs
        else:
            outputs = self.model.named_outputs(**{name: keras.KerasTensor((None, None), "int32") for name in names})
        return {name: tuple(output.shape) for name, output in outputs.items()}

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes the outputs; see `Forward.run`."""
        arrays = {name: self.model.ids(name, array) for name, array in inputs.items()}
        check_shapes(arrays, self.model.max_length)  # the compiled function has no shapes that it could check
        outputs = self._call(arrays)
        return {name: ops.convert_to_numpy(value).astype("float32") for name, value in outputs.items()}


def _of_named_inputs(function: TensorFunction, model: PretrainedModel) -> TensorFunction:
    return compiled(lambda inputs: function(**inputs), model, jit_compile=False, any_length=True)

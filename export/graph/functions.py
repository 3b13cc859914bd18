"""One function to be exported: what a converter needs to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from kerasformer.bundle.interface import Signature, TensorInfo, described

Infos = dict[str, TensorInfo]


@dataclass(frozen=True)
class Function:
    """A function of named tensors, written in `keras.ops`, that a converter traces.

    Attributes:
        name: Of the TFLite signature, or of the ONNX file without suffix.
        inputs: Shape and dtype of each argument, in the order in which the artifact declares them. A string in a shape
            is a symbolic dimension, such as `"batch_size"`.
        outputs: Likewise for the results.
        call: Takes the inputs as keyword arguments and returns a dictionary with the keys of `outputs`. It reads the
            model's variables; the converter replaces them by placeholders, so that no weight enters the graph.
        incremental: It reads a few tokens at a time, with those before them in a cache: its time goes into reading
            weights, not into arithmetic.
        defaults: Values of inputs that a caller may leave out.
        alone: Its file reads no other file's weights (ONNX); a table that several files need is then in each.
    """

    name: str
    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    call: Callable[..., dict[str, Any]]
    incremental: bool = False
    defaults: dict[str, np.ndarray] = field(default_factory=dict)
    alone: bool = False

    def signature(self, file: str = "") -> Signature:
        """Its description for the manifest; `file` is relative to the bundle."""
        return described(self.name, Signature(file, self.inputs, self.outputs))


def forward(model: Any, name: str, batch: int | str, length: int | str, dtype: str) -> Function:
    """An encoder with its head, which reads a text `(batch, length)` at once."""

    def call(**inputs: Any) -> dict[str, Any]:
        return model.named(model(inputs, training=False))

    inputs = {key: TensorInfo((batch, length), dtype) for key in model.input_names}
    return Function(name, inputs, _output_infos(call, inputs), call)


def _output_infos(call: Callable[..., dict[str, Any]], inputs: Infos) -> Infos:
    """Shapes of the results; what Keras does not know is the batch, then the length."""
    free = list(dict.fromkeys(dim for info in inputs.values() for dim in info.shape if isinstance(dim, str)))
    specs = {
        key: keras.KerasTensor([None if isinstance(dim, str) else dim for dim in info.shape], dtype="int32")
        for key, info in inputs.items()
    }
    outputs = call(**specs)
    return {
        key: TensorInfo(tuple(free[axis] if dim is None else dim for axis, dim in enumerate(spec.shape)), "float32")
        for key, spec in outputs.items()
    }

"""Calibration for static activations: measures the ranges of each product's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops

from kerasformer.errors import ExportError
from kerasformer.export.quantization.sample_inputs import as_inputs, one_by_one, passages
from kerasformer.layers.primitives import Primitives, lowering
from kerasformer.layers.tensor import Tensor
from kerasformer.models.keras_engine import compiled
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.progress import CountProgress


@dataclass(frozen=True)
class Ranges:
    """Ranges of a product `x @ kernel + bias` over all uses of its kernel.

    Attributes:
        input: Smallest and largest value of `x`.
        output: Smallest and largest value of the result, including the bias.
    """

    input: tuple[float, float]
    output: tuple[float, float]


Calibration = Mapping[str, Ranges]
"""Ranges by the path of the kernel's Keras variable."""


def calibrate(model: PretrainedModel, texts: Sequence[str], progress: CountProgress | None = None) -> Calibration:
    """Measures the ranges while the Keras model reads texts and generates its own continuations of them.

    Args:
        model: Any model of the zoo, with any backend.
        texts: Texts of the kind that the model is used for.
        progress: Called with the number of texts read and their total.

    Returns:
        Ranges of every kernel that a product used.

    Raises:
        ExportError: A product's inputs or outputs are not finite.
    """

    def read(inputs: Any) -> dict[str, Tensor]:
        observer = _Observer()
        with lowering(observer):
            model(inputs, training=False)
        return observer.extents

    run = compiled(read, model, jit_compile=False, any_length=True)
    arrays = passages(model, texts)
    extents: dict[str, np.ndarray] = {}
    total = len(arrays["input_ids"])
    for done, passage in enumerate(one_by_one(arrays), start=1):
        for path, tensor in run(as_inputs(passage)).items():
            extent = ops.convert_to_numpy(tensor)
            extents[path] = np.maximum(extents.get(path, extent), extent)
        if progress is not None:
            progress(done, total)
    return {path: _ranges(path, extent) for path, extent in extents.items()}


class _Observer(Primitives):
    """Plain primitives that record the extreme values of each product.

    Attributes:
        extents: By the kernel's path, the largest `-x`, `x`, `-y` and `y` of the product `y = x @ kernel + bias`.
    """

    def __init__(self) -> None:
        self.extents: dict[str, Tensor] = {}

    def linear(self, x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
        """Computes the product and updates its extreme values."""
        y = super().linear(x, kernel, bias, transposed=transposed)
        extent = ops.stack([-ops.min(x), ops.max(x), -ops.min(y), ops.max(y)])
        self.extents[kernel.path] = ops.maximum(self.extents.get(kernel.path, extent), extent)
        return y


def _ranges(path: str, extent: np.ndarray) -> Ranges:
    if not np.isfinite(extent).all():
        raise ExportError(
            f"Calibration needs finite values. Received: infinite or NaN inputs or outputs of {path}. Check the "
            "weights of the model"
        )
    low_input, high_input, low_output, high_output = map(float, extent)
    return Ranges((-low_input, high_input), (-low_output, high_output))

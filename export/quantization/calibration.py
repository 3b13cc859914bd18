"""Calibration: measures the ranges of each product's inputs and outputs.

Static activations are rounded in these ranges. Dynamic ones are rounded in the range of each token, which a few
channels of a norm's output may make so wide that all others are rounded coarsely. Products of such an input are
therefore computed as `(x * s) @ (kernel / s)`, with a scale `s` for each channel that brings their ranges closer
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops

from kerasformer.errors import ExportError
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.export.quantization.sample_inputs import as_inputs, one_by_one, passages
from kerasformer.layers.primitives import Primitives, lowering
from kerasformer.layers.tensor import Tensor
from kerasformer.models.keras_engine import compiled
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.progress import CountProgress

_SMALLEST_SHARE = 2.0**-10
"""Smallest range of a channel, as a share of the largest one."""


@dataclass(frozen=True)
class Ranges:
    """Ranges of a product `x @ kernel + bias` over all uses of its kernel.

    Attributes:
        input: Smallest and largest value of `x`.
        output: Smallest and largest value of the result, including the bias.
        channels: Largest magnitude of each channel of `x`, float32 `(K,)`, if `x` is the output of a norm and the
            kernel, of shape `(K, N)`, is not also an embedding table; else `None`.
    """

    input: tuple[float, float]
    output: tuple[float, float]
    channels: np.ndarray | None = None


Calibration = Mapping[str, Ranges]
"""Ranges by the path of the kernel's Keras variable."""


def input_scale(calibration: Calibration, recipe: Recipe, kernels: Mapping[str, Sequence[int]]) -> np.ndarray | None:
    """Returns the scales that the channels of a product's input are multiplied by, and the kernel is divided by.

    Half of the difference between the channels' ranges is moved to the weights, as in SmoothQuant. The scales are
    powers of two, so that they change nothing but the rounding to integers.

    Args:
        calibration: Result of `calibrate`.
        recipe: The recipe of the file. Only dynamic activations are scaled, and not those of products with int4
            kernels: four bits are too coarse for kernels with wider ranges.
        kernels: Kernels that are multiplied with the same input: the shape of each, by its path.

    Returns:
        float32 `(K,)`, or `None` for an input that is not scaled.

    Reference: Xiao et al. 2023, arXiv:2211.10438, section 4.
    """
    channels = [calibration[path].channels if path in calibration else None for path in kernels]
    found = [values for values in channels if values is not None]
    storages = {recipe.storage(path, shape) for path, shape in kernels.items()}
    if recipe.activations != "dynamic" or len(found) < len(channels) or "int4" in storages:
        return None
    largest = np.max(found, axis=0)
    # A channel that is almost always 0 would get a scale that overflows for other texts.
    largest = np.maximum(largest, _SMALLEST_SHARE * largest.max())
    if not largest.max() > 0:
        return None
    return np.exp2(np.rint(-np.log2(largest) / 2)).astype(np.float32)


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

    def read(inputs: Any) -> dict[str, dict[str, Tensor]]:
        observer = _Observer()
        with lowering(observer):
            model(inputs, training=False)
        channels = {path: tensor for path, tensor in observer.channels.items() if path not in observer.tables}
        return {"extents": observer.extents, "channels": channels}

    run = compiled(read, model, jit_compile=False, any_length=True)
    arrays = passages(model, texts)
    found: dict[str, dict[str, np.ndarray]] = {"extents": {}, "channels": {}}
    total = len(arrays["input_ids"])
    for done, passage in enumerate(one_by_one(arrays), start=1):
        for kind, tensors in run(as_inputs(passage)).items():
            for path, tensor in tensors.items():
                values = ops.convert_to_numpy(tensor)
                found[kind][path] = np.maximum(found[kind].get(path, values), values)
        if progress is not None:
            progress(done, total)
    channels = found["channels"]
    return {path: _ranges(path, extent, channels.get(path)) for path, extent in found["extents"].items()}


class _Observer(Primitives):
    """Plain primitives that record the extreme values of each product.

    Attributes:
        extents: By the kernel's path, the largest `-x`, `x`, `-y` and `y` of the product `y = x @ kernel + bias`.
        channels: By the kernel's path, the largest magnitude of each channel of those inputs that are outputs of norms.
        tables: Paths of embedding tables.
    """

    def __init__(self) -> None:
        self.extents: dict[str, Tensor] = {}
        self.channels: dict[str, Tensor] = {}
        self.tables: set[str] = set()
        # Tensors and not only their ids, which other tensors could reuse.
        self._normalized: dict[int, Tensor] = {}

    def linear(self, x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
        """Computes the product and updates its extreme values."""
        y = super().linear(x, kernel, bias, transposed=transposed)
        extent = ops.stack([-ops.min(x), ops.max(x), -ops.min(y), ops.max(y)])
        self.extents[kernel.path] = ops.maximum(self.extents.get(kernel.path, extent), extent)
        if id(x) in self._normalized and not transposed:
            largest = ops.max(ops.reshape(ops.abs(x), (-1, x.shape[-1])), axis=0)
            self.channels[kernel.path] = ops.maximum(self.channels.get(kernel.path, largest), largest)
        return y

    def embedding(self, table: Any, ids: Tensor) -> Tensor:
        """Looks up the rows and records the table."""
        self.tables.add(table.path)
        return super().embedding(table, ids)

    def layer_norm(self, x: Tensor, scale: Any, bias: Any, epsilon: float) -> Tensor:
        """Normalizes and records the result."""
        return self._recorded(super().layer_norm(x, scale, bias, epsilon))

    def rms_norm(self, x: Tensor, scale: Any, epsilon: float) -> Tensor:
        """Normalizes and records the result."""
        return self._recorded(super().rms_norm(x, scale, epsilon))

    def _recorded(self, normalized: Tensor) -> Tensor:
        self._normalized[id(normalized)] = normalized
        return normalized


def _ranges(path: str, extent: np.ndarray, channels: np.ndarray | None) -> Ranges:
    if not np.isfinite(extent).all():
        raise ExportError(
            f"Calibration needs finite values. Received: infinite or NaN inputs or outputs of {path}. Check the "
            "weights of the model"
        )
    low_input, high_input, low_output, high_output = map(float, extent)
    return Ranges((-low_input, high_input), (-low_output, high_output), channels)

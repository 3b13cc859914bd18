"""Calibration: measures the ranges of each product's inputs and outputs.

Static activations are rounded in these ranges. Dynamic ones are rounded in the range of each token, which a few
channels of a norm's output may make so wide that all others are rounded coarsely. Products of such an input are
therefore computed as `(x * s) @ (kernel / s)`, with a scale `s` for each channel that brings their ranges closer
together. Kernels are rounded to four bits with the inputs of their products, see `compensation`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from keras import ops

from kerasformer.errors import ExportError
from kerasformer.export.quantization.compensation import Grid, RoundedKernel, round_kernel
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.export.quantization.sample_inputs import Passages, as_inputs, one_by_one, passages
from kerasformer.layers.primitives import Primitives, lowering
from kerasformer.layers.tensor import Tensor
from kerasformer.models.keras_engine import compiled
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.progress import CountProgress

_INPUT_BYTES = 1 << 30
"""Memory for inputs of products that are recorded in one pass over the texts."""

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
        rounded: The kernel in four bits, if its rounding depends on the inputs; else `None`.
    """

    input: tuple[float, float]
    output: tuple[float, float]
    channels: np.ndarray | None = None
    rounded: RoundedKernel | None = None


@dataclass(frozen=True, eq=False)
class FourBitKernel:
    """A kernel that is rounded to four bits with the inputs of its products.

    Attributes:
        value: Function that returns the values, float32 `(N, K)`.
        width: Number of inputs `K`.
        grid: The values that the format can store.
        table: Whether its rows are also looked up, as those of a token table that is tied to the output projection.
    """

    value: Callable[[], np.ndarray]
    width: int
    grid: Grid
    table: bool = False


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


def calibrate(
    model: PretrainedModel,
    texts: Sequence[str],
    progress: CountProgress | None = None,
    kernels: Mapping[str, FourBitKernel] | None = None,
) -> Calibration:
    """Measures the ranges while the Keras model reads texts and its own continuations of them.

    Args:
        model: Any model of the zoo, with any backend.
        texts: Texts of the kind that the model is used for.
        progress: Called with the number of texts read and their total. The model reads the texts several times if the
            inputs of `kernels` do not fit into memory at once.
        kernels: Kernels to round to four bits, by path; none by default.

    Returns:
        Ranges of every kernel that a product used.

    Raises:
        ExportError: A product's inputs or outputs are not finite.
    """
    kernels = kernels or {}
    arrays = passages(model, texts, sampled=bool(kernels))
    count = len(arrays["input_ids"])
    portions = list(_portions(kernels, int(arrays["attention_mask"].sum())))
    ranges: dict[str, Ranges] = {}
    for index, portion in enumerate(portions):

        def report(done: int, start: int = index * count) -> None:
            if progress is not None:
                progress(start + done, len(portions) * count)

        measured, inputs = _measured(model, arrays, portion, report)
        ranges |= {path: value for path, value in measured.items() if path not in ranges}
        for path in portion:
            if path in inputs:
                ranges[path] = replace(ranges[path], rounded=_rounded(kernels[path], inputs.pop(path)))
    return ranges


def _portions(kernels: Mapping[str, FourBitKernel], tokens: int) -> Iterator[list[str]]:
    """Divides kernels into lists whose inputs fit into memory together; yields at least one list, even if empty."""
    portion: list[str] = []
    size = 0
    for path, kernel in kernels.items():
        added = 4 * tokens * kernel.width
        if portion and size + added > _INPUT_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(path)
        size += added
    yield portion


def _measured(
    model: PretrainedModel, arrays: Passages, kernels: Collection[str], report: Callable[[int], None]
) -> tuple[dict[str, Ranges], dict[str, list[np.ndarray]]]:
    """Returns the ranges of all products, and the inputs `(T, K)` of the products with some kernels."""

    def read(inputs: Any) -> dict[str, dict[str, Any]]:
        observer = _Observer(kernels)
        with lowering(observer):
            model(inputs, training=False)
        channels = {path: tensor for path, tensor in observer.channels.items() if path not in observer.tables}
        return {"extents": observer.extents, "channels": channels, "inputs": observer.inputs}

    run = compiled(read, model, jit_compile=False, any_length=True)
    found: dict[str, dict[str, np.ndarray]] = {"extents": {}, "channels": {}}
    inputs: dict[str, list[np.ndarray]] = {}
    for done, passage in enumerate(one_by_one(arrays), start=1):
        results = run(as_inputs(passage))
        for path, tensors in results.pop("inputs").items():
            inputs.setdefault(path, []).extend(ops.convert_to_numpy(tensor) for tensor in tensors)
        for kind, extremes in results.items():
            for path, tensor in extremes.items():
                values = ops.convert_to_numpy(tensor)
                found[kind][path] = np.maximum(found[kind].get(path, values), values)
        report(done)
    channels = found["channels"]
    return {path: _ranges(path, extent, channels.get(path)) for path, extent in found["extents"].items()}, inputs


def _rounded(kernel: FourBitKernel, inputs: list[np.ndarray]) -> RoundedKernel:
    rows = np.concatenate(inputs)
    moments = rows.T @ rows
    if kernel.table:  # an error of each weight costs as much in a lookup as in the product, on average
        moments[np.diag_indices_from(moments)] += np.trace(moments) / len(moments)
    return round_kernel(kernel.value(), moments, kernel.grid)


class _Observer(Primitives):
    """Plain primitives that record the extreme values of each product.

    Args:
        kernels: Paths of kernels whose inputs are recorded as they are.

    Attributes:
        inputs: By the kernel's path, the inputs of its products, `(T, K)` each.
        extents: By the kernel's path, the largest `-x`, `x`, `-y` and `y` of the product `y = x @ kernel + bias`.
        channels: By the kernel's path, the largest magnitude of each channel of those inputs that are outputs of norms.
        tables: Paths of embedding tables.
    """

    def __init__(self, kernels: Collection[str] = ()) -> None:
        self.kernels = frozenset(kernels)
        self.inputs: dict[str, list[Tensor]] = {}
        self.extents: dict[str, Tensor] = {}
        self.channels: dict[str, Tensor] = {}
        self.tables: set[str] = set()
        # Tensors and not only their ids, which other tensors could reuse.
        self._normalized: dict[int, Tensor] = {}

    def linear(self, x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
        """Computes the product and updates its extreme values."""
        y = super().linear(x, kernel, bias, transposed=transposed)
        if kernel.path in self.kernels:
            self.inputs.setdefault(kernel.path, []).append(ops.reshape(x, (-1, x.shape[-1])))
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

"""Calibration: measures the ranges of each product's inputs and outputs.

Static activations are rounded in these ranges. Dynamic ones are rounded in the range of each token, which a few
channels of a norm's output may make so wide that all others are rounded coarsely. Products of such an input are
therefore computed as `(x * s) @ (kernel / s)`, with a scale `s` for each channel that brings their ranges closer
together. Kernels are rounded with the inputs of their products, see `compensation`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from keras import ops

from kerasformer.basics.progress import CountProgress
from kerasformer.bundle.recipes import Recipe
from kerasformer.errors import ExportError
from kerasformer.export.quantization.compensation import Grid, RoundedKernel, round_kernels
from kerasformer.export.quantization.sample_inputs import Passages, as_inputs, batches, passages
from kerasformer.extras import require
from kerasformer.layers.primitives import Primitives, Weight, lowering
from kerasformer.layers.tensor import Tensor
from kerasformer.models.pretrained import PretrainedModel

_MOMENT_BYTES = 1 << 30
"""Memory for the moments of inputs that are summed in one pass over the texts."""

_FACTORING_BYTES = 24  # for each of the moments of a group while its kernels are rounded

_TOKENS = 1024
"""Inputs whose moments are added to the sum at once: few products of large matrices are faster than many."""

_LARGEST_NOISE = 2e-4
"""Largest `Ranges.noise` for eight bits. That of normally distributed inputs is 5e-5 to 8e-5."""

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
        rounded: The rounded kernel, if its rounding depends on the inputs; else `None`.
        noise: Share of the energy of `x` that is lost if each token is rounded to 256 levels between its smallest and
            its largest value: the mean over the tokens of the text where it is largest.
    """

    input: tuple[float, float]
    output: tuple[float, float]
    channels: np.ndarray | None = None
    rounded: RoundedKernel | None = None
    noise: float = 0.0


@dataclass(frozen=True, eq=False)
class CalibratedKernel:
    """A kernel that is rounded with the inputs of its products.

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
        recipe: The recipe of the file. Static activations are not scaled, and not those of products with int4
            kernels: four bits are too coarse for kernels with wider ranges. Kernels that were rounded beforehand belong
            to inputs that are not scaled.
        kernels: Kernels that are multiplied with the same input: the shape of each, by its path.

    Returns:
        float32 `(K,)`, or `None` for an input that is not scaled.

    Reference: Xiao et al. 2023, arXiv:2211.10438, section 4.
    """
    channels = [calibration[path].channels if path in calibration else None for path in kernels]
    known = [values for values in channels if values is not None]
    rounded = any(calibration[path].rounded for path in kernels if path in calibration)
    storages = {recipe.storage(path, shape) for path, shape in kernels.items()}
    scaled = recipe.activations in ("dynamic", "fast")
    if not scaled or len(known) < len(channels) or "int4" in storages or rounded:
        return None
    largest = np.max(known, axis=0)
    # A channel that is almost always 0 would get a scale that overflows for other texts.
    largest = np.maximum(largest, _SMALLEST_SHARE * largest.max())
    if not largest.max() > 0:
        return None
    return np.exp2(np.rint(-np.log2(largest) / 2)).astype(np.float32)


def wide_inputs(calibration: Calibration, recipe: Recipe, kernels: Collection[str]) -> frozenset[str]:
    """Returns those kernels, of given paths, whose inputs lose too much in eight bits and need more.

    They are products of a gate, for example, whose few large values cannot be rotated away without a further product.
    Only recipes that round all kernels to eight bits with calibration texts are as accurate otherwise.
    """
    if recipe.activations != "dynamic" or recipe.rounding != "calibrated" or "int4" in recipe.integers:
        return frozenset()
    return frozenset(path for path in kernels if path in calibration and calibration[path].noise > _LARGEST_NOISE)


def calibrate(
    model: PretrainedModel,
    texts: Sequence[str] | Passages,
    progress: CountProgress | None = None,
    kernels: Mapping[str, CalibratedKernel] | None = None,
) -> Calibration:
    """Measures the ranges while the Keras model reads texts and its own continuations of them.

    Args:
        model: A model of the zoo, with any backend.
        texts: Texts of the kind that the model is used for, or `passages` of them.
        progress: Called with the number of batches of texts read and their total. The model reads the texts several
            times if the moments of the inputs of `kernels` do not fit into memory at once.
        kernels: Kernels to round, by path; none by default.

    Returns:
        Ranges of every kernel that a product used.

    Raises:
        ExportError: A product's inputs or outputs are not finite.
    """
    kernels = kernels or {}
    sampled = any(kernel.grid.bits == 4 for kernel in kernels.values())
    arrays = texts if isinstance(texts, Mapping) else passages(model, texts, sampled)
    parts, tokens = batches(model, arrays), int(arrays["attention_mask"].sum())
    groups = _same_inputs(model, parts[0], kernels) if kernels else []
    portions = list(_portions([(group, kernels[group[0]].width) for group in groups], tokens))
    ranges: dict[str, Ranges] = {}
    rounded: dict[str, RoundedKernel] = {}
    for index, portion in enumerate(portions):

        def report(done: int, start: int = index * len(parts)) -> None:
            if progress is not None:
                progress(start + done, len(portions) * len(parts))

        sums = {group[0]: _Moments(kernels[group[0]].width, tokens) for group in portion}
        measured = _measured(model, parts, sums, report, extents=not index)
        ranges = ranges or measured
        for group, of_group in zip(portion, _in_threads(kernels, portion, sums), strict=True):
            rounded |= dict(zip(group, of_group, strict=True))
    return {path: replace(extent, rounded=rounded.get(path)) for path, extent in ranges.items()}


def _same_inputs(
    model: PretrainedModel, passage: Passages, kernels: Mapping[str, CalibratedKernel]
) -> list[tuple[str, ...]]:
    """Returns groups of kernels that are rounded with the same moments to the same grid, in the order of their use.

    The products for queries, keys and values have the same inputs, for example.
    """
    observer = _Observer(kernels)
    with lowering(observer):
        model({name: array[:1] for name, array in as_inputs(passage).items()}, training=False)
    groups: dict[Hashable, list[str]] = {}
    for path, inputs in observer.inputs.items():
        same = tuple(map(id, inputs)), kernels[path].grid, kernels[path].table
        groups.setdefault(same, []).append(path)
    return [tuple(group) for group in groups.values()]


def _portions(groups: Sequence[tuple[tuple[str, ...], int]], tokens: int) -> Iterator[list[tuple[str, ...]]]:
    """Divides groups, each with its number of inputs, into lists whose moments fit into memory together.

    Yields at least one list, even if empty.
    """
    portion: list[tuple[str, ...]] = []
    size = 0
    for group, width in groups:
        added = 4 * width * min(width, tokens)
        if portion and size + added > _MOMENT_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(group)
        size += added
    yield portion


class _Moments:
    """Sum of `x x^T` over the inputs `x` of a product, `(K, K)`.

    Args:
        width: Number of inputs `K`.
        tokens: Number of inputs that will be added.
    """

    def __init__(self, width: int, tokens: int) -> None:
        self._step = _TOKENS if tokens > width else tokens  # a few inputs are smaller than their moments
        self._sum = np.zeros((0, 0), np.float32)
        self._pending: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        """Adds inputs `(T, K)`."""
        self._pending.append(rows)
        if sum(map(len, self._pending)) >= self._step:
            self._sum = self.total()

    def total(self) -> np.ndarray:
        """Returns the sum over all inputs that were added, float32 `(K, K)`."""
        if self._pending:
            rows = np.concatenate(self._pending)
            self._pending = []
            moments = rows.T @ rows
            self._sum = np.add(self._sum, moments, out=self._sum) if self._sum.size else moments
        return self._sum


def _measured(
    model: PretrainedModel,
    parts: Sequence[Passages],
    sums: Mapping[str, _Moments],
    report: Callable[[int], None],
    extents: bool,
) -> dict[str, Ranges]:
    """Sums the moments of the inputs of some kernels' products; returns the ranges of all products if `extents`."""
    measured: dict[str, dict[str, np.ndarray]] = {"extents": {}, "channels": {}}
    for done, batch in enumerate(parts, start=1):  # a graph would take longer to trace than it saves
        observer = _Observer(sums, extents)
        with lowering(observer):
            model(as_inputs(batch), training=False)
        for path, inputs in observer.inputs.items():
            sums[path].add(np.concatenate([_rows(x) for x in inputs]))
        channels = {path: values for path, values in observer.channels.items() if path not in observer.tables}
        for kind, extremes in (("extents", observer.extents), ("channels", channels)):
            for path, values in extremes.items():
                measured[kind][path] = np.maximum(measured[kind].get(path, values), values)
        report(done)
    return {path: _ranges(path, extent, measured["channels"].get(path)) for path, extent in measured["extents"].items()}


def _in_threads(
    kernels: Mapping[str, CalibratedKernel], groups: Sequence[tuple[str, ...]], sums: dict[str, _Moments]
) -> Iterator[list[RoundedKernel]]:
    """Yields the rounded kernels of each group, whose moments are taken from `sums`.

    Several groups are rounded at once, as NumPy computes without the lock of the interpreter, unless their factored
    moments would take too much memory. The BLAS gets the remaining cores: more threads of it than cores wait for each
    other, which takes several times as long as the products.
    """
    largest, cores = max((kernels[group[0]].width for group in groups), default=1), os.cpu_count() or 1
    count = max(1, min(cores, _MOMENT_BYTES // (_FACTORING_BYTES * largest**2)))
    limits = require("threadpoolctl", "export").threadpool_limits
    with limits(max(1, cores // count), user_api="blas"), ThreadPoolExecutor(count) as threads:
        yield from threads.map(
            lambda group: _rounded([kernels[path] for path in group], sums.pop(group[0]).total()), groups
        )


def _rounded(kernels: Sequence[CalibratedKernel], moments: np.ndarray) -> list[RoundedKernel]:
    """Rounds the kernels of a group with the moments of their inputs, which are changed."""
    first = kernels[0]
    if first.table:  # an error of each weight costs as much in a lookup as in the product, on average
        moments[np.diag_indices_from(moments)] += np.trace(moments) / len(moments)
    return list(round_kernels((kernel.value() for kernel in kernels), moments, first.grid))


class _Observer(Primitives):
    """Plain primitives that record the extreme values of each product.

    Args:
        kernels: Paths of kernels whose inputs are recorded as they are.
        measures: Whether extreme values are recorded, too.

    Attributes:
        inputs: By the kernel's path, the inputs of its products, `(..., K)` each.
        extents: By the kernel's path, the largest `-x`, `x`, `-y`, `y` and noise of `x`, with `y = x @ kernel + bias`.
        channels: By the kernel's path, the largest magnitude of each channel of those inputs that are outputs of norms.
        tables: Paths of embedding tables.
    """

    def __init__(self, kernels: Collection[str] = (), measures: bool = True) -> None:
        self.kernels, self.measures = frozenset(kernels), measures
        self.inputs: dict[str, list[Tensor]] = {}
        self.extents: dict[str, np.ndarray] = {}
        self.channels: dict[str, np.ndarray] = {}
        self.tables: set[str] = set()
        # Tensors and not only their ids, which other tensors could reuse.
        self._normalized: dict[int, Tensor] = {}
        self._last: tuple[Tensor | None, np.ndarray] = None, np.zeros(3)

    def linear(self, x: Tensor, kernel: Weight, bias: Weight | None = None, *, transposed: bool = False) -> Tensor:
        """Computes the product and updates its extreme values."""
        y = super().linear(x, kernel, bias, transposed=transposed)
        if kernel.path in self.kernels:
            self.inputs.setdefault(kernel.path, []).append(x)
        if not self.measures:
            return y
        if self._last[0] is not x:  # often several products in a row have the same input
            self._last = x, _extent(_rows(x))
        # In NumPy, as a reduction of TensorFlow takes ten times as long for so few values.
        (low, high, noise), results = self._last[1], _rows(y)
        extent = np.array([low, high, -results.min(), results.max(), noise], np.float32)
        self.extents[kernel.path] = np.maximum(self.extents.get(kernel.path, extent), extent)
        if id(x) in self._normalized and not transposed:
            largest = np.abs(_rows(x)).max(axis=0)
            self.channels[kernel.path] = np.maximum(self.channels.get(kernel.path, largest), largest)
        return y

    def embedding(self, table: Weight, ids: Tensor) -> Tensor:
        """Looks up the rows and records the table."""
        self.tables.add(table.path)
        return super().embedding(table, ids)

    def layer_norm(self, x: Tensor, scale: Weight | None, bias: Weight | None, epsilon: float) -> Tensor:
        """Normalizes and records the result."""
        return self._recorded(super().layer_norm(x, scale, bias, epsilon))

    def rms_norm(self, x: Tensor, scale: Weight, epsilon: float) -> Tensor:
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
    low_input, high_input, low_output, high_output, noise = map(float, extent)
    return Ranges((-low_input, high_input), (-low_output, high_output), channels, noise=noise)


def _rows(x: Tensor) -> np.ndarray:
    """Returns a tensor `(..., K)` as a float32 array `(T, K)`."""
    return np.asarray(ops.convert_to_numpy(x), np.float32).reshape(-1, x.shape[-1])


def _extent(rows: np.ndarray) -> np.ndarray:
    """Returns the largest `-x` and `x` of inputs `(T, K)`, and their `Ranges.noise`."""
    low, high = rows.min(axis=1), rows.max(axis=1)
    energy = np.einsum("tk,tk->t", rows, rows) / rows.shape[1]
    noise = np.mean(np.square((high - low) / 255) / 12 / np.maximum(energy, 1e-30))
    return np.array([-low.min(), high.max(), noise], np.float32)

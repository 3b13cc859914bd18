"""Which matrices of a decoder are stored in eight bits instead of four, by measurement.

With all kernels and a tied table rounded to four bits, one backward pass over the calibration texts says how fast the
divergence of the answers falls if a matrix is moved towards its float32 values. The matrices where it falls most for
each byte that eight bits add are then stored so, up to the size of the recipe. A table is often a good deal in four
bits, and the values of some layers of attention are worth eight.

References: HAWQ-V2, arXiv:1911.03852, chooses bits by second derivatives under a budget; Molchanov et al. 2019,
arXiv:1906.10771, estimate by first derivatives what a change of weights costs.

Shape letters: `N` outputs and `K` inputs of a kernel, `T` tokens.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from keras import ops

from kerasformer.basics.progress import CountProgress
from kerasformer.bundle.recipes import Recipe, Storage
from kerasformer.errors import ExportError
from kerasformer.export.graph.variable_names import below_model
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.compensation import RoundedKernel
from kerasformer.export.quantization.layouts import Layout
from kerasformer.export.quantization.model_matrices import ModelMatrix, matrices
from kerasformer.export.quantization.rounded_products import ProductsWith, divergence
from kerasformer.export.quantization.sample_inputs import Passages, batches
from kerasformer.layers.tensor import Tensor
from kerasformer.models.contracts import CausalLM
from kerasformer.models.pretrained import PretrainedModel

_TOKENS = 4096
"""Number of tokens on which the losses are measured; with 1,024, the KL of SmolLM2 was 6% larger."""
_LOGITS = 1 << 24  # of texts that are read as one batch; twice as many took 1.6 GB more for SmolLM2


def mixes(model: PretrainedModel, recipe: Recipe) -> bool:
    """Whether the bits of a model's matrices are chosen by measurement."""
    return recipe.budget is not None and recipe.compensates and isinstance(model, CausalLM)


def four_bits(recipe: Recipe, parts: Sequence[ModelMatrix], layout: Layout) -> Recipe:
    """Returns a recipe with four bits also for a table that is tied to the output projection.

    Args:
        recipe: A recipe with four-bit kernels.
        parts: The matrices of the model.
        layout: Layout of the files.
    """
    tied = [part for part in parts if part.table and part.product and layout.four_bit_tables]
    return _with_layers(recipe, tied, "int4")


def rounding_losses(
    model: CausalLM, calibration: Calibration, read: Passages, progress: CountProgress
) -> dict[str, float]:
    """Returns how fast the divergence falls, in nats, as each four-bit matrix is moved to its float32 values, or 0.

    Args:
        model: The model with its float32 weights.
        calibration: Result of `calibrate`.
        read: The texts of the calibration.
        progress: Called with the number of batches read and their total.
    """
    import tensorflow as tf

    parts = {part: part.rounded for part in matrices(model, calibration)}
    kernels = {part: kernel for part, kernel in parts.items() if kernel is not None and kernel.bits == 4}
    texts = [batch["input_ids"] for batch in batches(model, read)]
    longest = max(ids.shape[1] for ids in texts)
    rows = np.concatenate([ids for ids in texts if ids.shape[1] == longest])
    rows = rows[:: -(-len(rows) * longest // _TOKENS)]
    together = max(1, _LOGITS // (longest * model.config.vocab_size))
    shares = {part.path: tf.zeros(()) for part in kernels}
    primitives = ProductsWith(
        {part.path: _MovedMatrix(part, kernel, shares[part.path]) for part, kernel in kernels.items()}
    )
    losses = dict.fromkeys(shares, 0.0)
    for start in range(0, len(rows), together):  # a graph would take longer to trace than it saves
        ids = rows[start : start + together]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(shares.values()))
            change = divergence(model, tf.constant(ids), primitives)
        for path, slope in tape.gradient(change, shares, unconnected_gradients="zero").items():
            losses[path] -= float(slope) * len(ids) / len(rows)
        progress(min(start + together, len(rows)), len(rows))
    return {path: max(loss, 0.0) for path, loss in losses.items()}


def mixed(recipe: Recipe, parts: Sequence[ModelMatrix], layout: Layout, losses: Mapping[str, float]) -> Recipe:
    """Returns a recipe with an entry of `layers` for each matrix that does not have the bits of its kind.

    Args:
        recipe: A recipe with a budget.
        parts: The matrices of the model.
        layout: Layout of the files.
        losses: Result of `rounding_losses`.

    Raises:
        ExportError: The budget is smaller than the matrices in four bits.
    """
    measured = [part for part in parts if part.path in losses]
    coarse, fine = four_bits(recipe, measured, layout), _with_layers(recipe, measured, "int8")
    small, large = ({part.path: layout.num_bytes(part, each) for part in measured} for each in (coarse, fine))
    plain, least = (sum(layout.num_bytes(part, each) for part in parts) for each in (recipe, coarse))
    budget = 1.0 if recipe.budget is None else recipe.budget
    room = budget * plain - least
    if room < 0:
        raise ExportError(
            f"The budget of a recipe must be at least {least / plain:.3f} for this model, which then has only "
            f"four-bit matrices. Received: budget={budget:g}"
        )
    added = {path: large[path] - small[path] for path in losses}
    order = sorted(losses, key=lambda path: -losses[path] / max(1, added[path]))
    tables = [part.path for part in measured if part.table]
    # A table is so large that it leaves no room for others, or does not fit after them.
    choices = [_fitting(each, added, room) for each in (order, [*tables, *order])]
    chosen = max(choices, key=lambda paths: sum(losses[path] for path in paths))
    recipe = _with_layers(recipe, [part for part in measured if part.path in chosen], "int8")
    return four_bits(recipe, [part for part in measured if part.path not in chosen], layout)


def _fitting(paths: Sequence[str], added: Mapping[str, int], room: float) -> set[str]:
    """Returns the first matrices, in the order of their paths, that fit into a number of bytes."""
    chosen: set[str] = set()
    for path in paths:
        if path not in chosen and 0 < added[path] <= room:
            chosen.add(path)
            room -= added[path]
    return chosen


def _with_layers(recipe: Recipe, parts: Sequence[ModelMatrix], storage: Storage) -> Recipe:
    """Returns a recipe with an entry of `layers` for matrices, after those of the caller."""
    entries = ((f"*/{glob.escape(below_model(part.path))}", storage) for part in parts)
    return replace(recipe, layers=(*recipe.layers, *entries))


class _MovedMatrix:
    """A matrix between its rounded and its float32 values, of which the products have the rounded ones.

    Args:
        part: The matrix.
        kernel: Its rounded values.
        share: How far it is moved towards its float32 values, 0; the gradient is that of this number.
    """

    def __init__(self, part: ModelMatrix, kernel: RoundedKernel, share: Tensor) -> None:
        self._part, self._kernel, self._share = part, kernel, share

    def product(self, x: Tensor) -> Tensor:
        """Multiplies inputs `(T, K)`; to save memory, the kernel is dequantized again to compute the gradient."""
        import tensorflow as tf

        @tf.custom_gradient
        def multiplied(x: Tensor, share: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
            def gradients(upstream: Tensor) -> tuple[Tensor, Tensor]:
                kernel, exact = self._rounded(), self._exact()
                of_kernel = tf.matmul(upstream, x, transpose_a=True)
                return tf.matmul(upstream, kernel), tf.reduce_sum(of_kernel * (exact - kernel))

            return tf.matmul(x, self._rounded(), transpose_b=True), gradients

        return multiplied(x, self._share)

    def looked_up(self, ids: Tensor) -> Tensor:
        """Returns rows of a table, `(..., K)`."""
        rounded = ops.convert_to_tensor(self._kernel.rows(ops.convert_to_numpy(ids)))
        return rounded + self._share * (ops.take(self._exact(), ids, axis=0) - rounded)

    def _rounded(self) -> Tensor:
        return ops.convert_to_tensor(self._kernel.values())

    def _exact(self) -> Tensor:
        value = ops.cast(ops.convert_to_tensor(self._part.variable), "float32")
        return value if self._part.output_first else ops.transpose(value)

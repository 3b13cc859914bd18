"""Levels and scales of four-bit kernels that are learned by distillation.

The model with rounded kernels is trained to answer like the same model in float32 along the calibration texts. The loss
is the divergence of its distributions of next tokens. One window in sixteen is held out: what becomes no better there
is dropped, and learned again more slowly, since the best rate differs between models. Kernels are trained as the files
store them, which therefore contain exactly what was trained.

References: quantization-aware distillation, arXiv:2601.20088; distilled weight quantization in mlx-lm
(`mlx_lm/quant/dwq.py`, `LEARNED_QUANTS.md`), which trains scales alone; Hinton et al. 2015, arXiv:1503.02531.

Shape letters: `N` outputs and `K` inputs of a kernel, `B` batch, `T` tokens.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
from keras import ops

from kerasformer.basics.progress import StageProgress
from kerasformer.bundle.recipes import Recipe
from kerasformer.errors import ExportError, InputError
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.compensation import LEVELS, RoundedKernel
from kerasformer.export.quantization.model_matrices import matrices
from kerasformer.export.quantization.rounded_products import ProductsWith, divergence
from kerasformer.layers.tensor import Tensor
from kerasformer.models.contracts import CausalLM
from kerasformer.models.pretrained import PretrainedModel

MAX_LEARNING_TEXTS = 1 << 14
"""Largest number of texts that are read."""

_TOKENS = 1 << 16
"""Largest number of tokens that are learned from; twice as many take twice as long."""
_FEWEST = 1 << 15
"""Smallest number of tokens: what is learned from fewer fits these texts rather than others."""
_LENGTH = 128  # tokens of a window
_BATCH = 2  # windows of a step
_WAY = 0.2
"""How far a position moves, in levels, if all its steps have the same direction. The learning rate follows from it and
from the number of steps: it increases for `_WARM_UP` steps and then decreases to 0 by a cosine."""
_WARM_UP = 10
"""Number of steps in which the rate increases: the first ones of Adam move every weight equally far."""
_OF_SCALES = 0.1
"""Learning rate of the logarithms of scales, as a share of that of positions."""
_SIDE = 0.9
"""How far a weight begins from its level, as a share of its distance before rounding; at 1 it may lie between two."""
_CHECKS = 8
"""Number of times that kernels are judged on windows that they are not learned from."""
_HELD_OUT = 16
"""One window of as many is held out."""
_SMALLEST = 2.0**-14
"""Scales that are larger do not become smaller than this, the smallest normal float16; see `tflite.storage`."""


def learning_windows(model: PretrainedModel, texts: Sequence[str] | None) -> np.ndarray:
    """Returns the first tokens of texts as windows, int32 `(B, T)`, after checking that kernels can be learned.

    Args:
        model: The model.
        texts: The caller's calibration texts.

    Raises:
        ExportError: The model is no decoder with a tokenizer, or the memory does not suffice.
        InputError: There are too few tokens.
    """
    if not isinstance(model, CausalLM) or model.tokenizer is None:
        raise ExportError(
            "Rounding is learned from the next tokens of texts. Expected: a decoder for text generation with a "
            f"tokenizer. Received: {type(model).__name__}. Use the recipe int4, which rounds without learning"
        )
    tokens: list[int] = []
    for text in texts or ():
        tokens += model.tokenizer.encode(f"{text}\n")
        if len(tokens) >= _TOKENS:
            break
    if len(tokens) < _FEWEST:
        raise InputError(
            f"Rounding is learned from calibration texts of at least {_FEWEST:,} tokens, better {_TOKENS:,}. Received: "
            f"{len(tokens):,} tokens in {len(texts or ())} texts. Pass more texts of the kind that the model will read "
            "as calibration, or use the recipe int4"
        )
    length = min(_LENGTH, model.max_length or _LENGTH)
    needed, available = _memory(model, _BATCH * length), _available()
    if needed > available:
        raise ExportError(
            f"Learning the rounding needs about {needed / 2**30:.1f} GiB of memory beside the model. "
            f"Received: {available / 2**30:.1f} GiB available. Close other programs, or use the recipe int4"
        )
    return np.array(tokens[: min(len(tokens), _TOKENS) // length * length], "int32").reshape(-1, length)


def learn_rounding(
    model: CausalLM, recipe: Recipe, calibration: Calibration, windows: np.ndarray, report: StageProgress
) -> Calibration:
    """Returns the calibration with learned levels and scales of the kernels that are stored in four bits.

    Args:
        model: The model with its float32 weights.
        recipe: How its matrices are stored.
        calibration: Result of `calibrate`.
        windows: Result of `learning_windows`.
        report: Called with a stage that names the remaining minutes, and the number of steps.
    """
    import tensorflow as tf

    kernels = {
        part.path: _Kernel(part.rounded, part.value())
        for part in matrices(model, calibration)
        if part.rounded is not None
        and part.rounded.bits == 4
        and recipe.storage(part.path, part.rows, part.table) == "int4"
    }
    learned = [variable for kernel in kernels.values() for variable in kernel.learned]
    others = np.delete(windows, np.s_[::_HELD_OUT], axis=0)
    batches = _batches(others[np.random.default_rng(0).permutation(len(others))])
    steps = len(batches)
    rate = 2 * _WAY / max(1, steps)
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build(learned)

    primitives = ProductsWith(kernels)

    @tf.function(autograph=False)
    def step(ids: Tensor) -> None:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([variable.value for variable in learned])
            loss = divergence(model, ids, primitives)
        optimizer.apply(tape.gradient(loss, [variable.value for variable in learned]), learned)

    judge = tf.function(lambda ids: divergence(model, ids, primitives), autograph=False)
    held_out = [tf.constant(ids) for ids in _batches(windows[::_HELD_OUT])]

    def judged() -> tuple[float, list[np.ndarray]]:
        return float(np.mean([judge(ids) for ids in held_out])), [ops.convert_to_numpy(each) for each in learned]

    def keep(values: list[np.ndarray]) -> None:
        for variable, value in zip(learned, values, strict=True):
            variable.assign(value)

    report("learn rounding", 0, steps)
    best, kept = judged()
    done = 0
    for part in np.array_split(np.array(batches), _CHECKS):
        for ids in part:
            warmth = min(1.0, (done + 1) / _WARM_UP)
            optimizer.learning_rate = rate * warmth * (1 + math.cos(math.pi * done / steps)) / 2
            step(tf.constant(ids))
            done += 1
            if done == 1:
                started = time.monotonic()  # the first step is also compiled
            else:
                minutes = math.ceil((time.monotonic() - started) / (done - 1) * (steps - done) / 60)
                report(f"learn rounding, {minutes} min left", done, steps)
        now, values = judged()
        if now < best:
            best, kept = now, values
        else:
            rate /= 4
            keep(kept)
            for moment in optimizer.variables:  # those of steps that were too large would make the next ones tiny
                moment.assign(ops.zeros_like(moment))
    return {
        path: replace(ranges, rounded=kernels[path].rounded()) if path in kernels else ranges
        for path, ranges in calibration.items()
    }


def _batches(windows: np.ndarray) -> list[np.ndarray]:
    """Returns batches of windows; an incomplete one is left out."""
    return [windows[start : start + _BATCH] for start in range(0, len(windows) - _BATCH + 1, _BATCH)]


def _memory(model: PretrainedModel, tokens: int) -> float:
    """Estimates the bytes that a step needs beside the model: for kernels, their inputs and outputs, and logits."""
    sizes = [part.rows for part in matrices(model) if part.product]
    weights, values = sum(rows * columns for rows, columns in sizes), sum(map(sum, sizes))
    # Positions with their gradients and two moments, what was best so far, and what is compared with it.
    return 24 * weights + tokens * (12 * values + 40 * model.config.vocab_size)


def _available() -> float:
    """Returns the available memory in bytes; infinity on systems that do not report it as Linux does."""
    try:
        found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        found = None
    return 1024.0 * int(found[1]) if found else math.inf


class _Kernel:
    """A kernel whose levels and scales are learned.

    Args:
        start: The kernel as it was rounded first, of which the learned one has the block.
        values: Its values before, `(N, K)`.

    Attributes:
        positions: Where each weight lies among the levels, `(N, K)`; the nearest one is its level.
        change: Logarithms of the factors of the scales, divided by `_OF_SCALES`, `(N, blocks)`.
    """

    def __init__(self, start: RoundedKernel, values: np.ndarray) -> None:
        self.start = start
        self._lowest_level, self._highest_level = LEVELS[start.bits]
        # A weight begins at its level, on the side where it was before, so that the closest decisions change first.
        spread = np.repeat(start.scales, start.block, axis=1)[:, : values.shape[1]]
        before = np.divide(values, spread, out=start.levels.astype("float32"), where=spread != 0)
        self.positions = keras.Variable(start.levels + _SIDE * np.clip(before - start.levels, -0.5, 0.5))
        self.change = keras.Variable(np.zeros_like(start.scales))
        self._scales = ops.convert_to_tensor(start.scales)
        self._lowest = ops.convert_to_tensor(np.minimum(np.log(_SMALLEST / np.abs(start.scales)), 0))

    @property
    def learned(self) -> list[keras.Variable]:
        """The variables that are trained."""
        return [self.positions, self.change]

    def levels(self, positions: Tensor) -> Tensor:
        """Returns the levels of positions, as floats."""
        return ops.clip(ops.round(positions), self._lowest_level, self._highest_level)

    def scales(self) -> Tensor:
        """Returns the scales, float32 `(N, blocks)` with eight significant bits, which all runtimes read exactly."""
        scales = self._scales * ops.exp(ops.maximum(self.change * _OF_SCALES, self._lowest))
        return ops.cast(ops.cast(scales, "bfloat16"), "float32")

    def product(self, x: Tensor) -> Tensor:
        """Multiplies inputs `(T, K)`; to save memory, the kernel is dequantized again to compute the gradient."""
        import tensorflow as tf

        @tf.custom_gradient
        def multiplied(
            x: Tensor, scales: Tensor, positions: Tensor
        ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
            def gradients(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                with tf.control_dependencies([upstream]):  # otherwise TensorFlow keeps the kernel of the product
                    levels = self.levels(positions)
                of_kernel, spread = tf.matmul(upstream, x, transpose_a=True), self._spread(scales, levels.shape[-1])
                short = scales.shape[1] * self.start.block - levels.shape[-1]
                blocks = tf.pad(of_kernel * levels, ((0, 0), (0, short)))
                of_scales = tf.reduce_sum(tf.reshape(blocks, (*scales.shape, self.start.block)), axis=-1)
                # As if positions were not rounded (Bengio et al. 2013, arXiv:1308.3432).
                return tf.matmul(upstream, levels * spread), of_scales, of_kernel * spread

            kernel = self.levels(positions) * self._spread(scales, positions.shape[-1])
            return tf.matmul(x, kernel, transpose_b=True), gradients

        return multiplied(x, self.scales(), ops.convert_to_tensor(self.positions))

    def looked_up(self, ids: Tensor) -> Tensor:
        """Returns rows of a table, `(..., K)`."""
        positions, scales = ops.take(self.positions, ids, axis=0), ops.take(self.scales(), ids, axis=0)
        levels = positions + ops.stop_gradient(self.levels(positions) - positions)
        return levels * self._spread(scales, levels.shape[-1])

    def rounded(self) -> RoundedKernel:
        """Returns the kernel with the learned levels and scales."""
        levels = ops.convert_to_numpy(self.levels(self.positions)).astype("int8")
        return replace(self.start, levels=levels, scales=ops.convert_to_numpy(self.scales()))

    def _spread(self, scales: Tensor, width: int) -> Tensor:
        """Returns the scale of each weight."""
        return ops.repeat(scales, self.start.block, axis=-1)[..., :width]

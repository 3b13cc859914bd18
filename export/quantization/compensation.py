"""Rounding of kernels with calibration texts, so that the errors of a row's weights compensate each other.

Weights are rounded one input after the other. Each is first changed by what best makes up for the errors that were
already made, given how the inputs of the product correlate on the texts. This is GPTQ (Frantar et al. 2022,
arXiv:2210.17323), in the equivalent form of Chee et al. 2023, arXiv:2307.13304, section 4.3, which needs no inverse.

Shape letters: `N` outputs and `K` inputs of a product, `T` tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

LEVELS = {4: (-8, 7), 8: (-127, 127)}
"""Lowest and highest level of a weight, by its number of bits."""

_DAMPING = 0.01
"""What is added to the second moment of each input, as a share of their mean; few texts determine it poorly."""
_SHARES = (0.8, 0.9, 1.1, 1.2)
"""Factors of the best scale so far that are tried in turn, for outputs with a single scale."""
_ROWS = 4096  # outputs that are rounded together, to limit memory
_INPUTS = 128  # inputs that are rounded before their errors are passed on to all later ones
_FEW_INPUTS = 16  # inputs that are rounded before their errors are passed on to the later ones of these


@dataclass(frozen=True)
class Grid:
    """The values that a format can store in a number of bits; equal ones have the same block and function.

    Attributes:
        block: Number of weights of an output that share a scale; `None` if all of them do.
        scales: Function of rows `(M, block)` and of the costs `(block,)` of their squared errors, which returns a scale
            for each row, float32 `(M,)`, as the format can store it.
        bits: Number of bits, 4 or 8.
    """

    block: int | None
    scales: Callable[[np.ndarray, np.ndarray], np.ndarray]
    bits: int = 4


@dataclass(frozen=True, eq=False)
class RoundedKernel:
    """A kernel that was rounded beforehand.

    Attributes:
        levels: int8 `(N, K)`, between those of `LEVELS`.
        scales: float32 `(N, blocks)`.
        block: Number of levels that share a scale; the last block of a row may be shorter.
        bits: Number of bits of a level.
        offsets: float32 `(N, blocks)`, what is added to the products of levels and scales; `None` for 0.
    """

    levels: np.ndarray
    scales: np.ndarray
    block: int
    bits: int = 4
    offsets: np.ndarray | None = None

    def values(self) -> np.ndarray:
        """Returns the dequantized kernel, float32 `(N, K)`."""
        return self.rows(slice(None))

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        """Returns dequantized rows, float32 `(..., K)`."""
        values = self.levels[index] * self._repeated(self.scales[index])
        return values if self.offsets is None else values + self._repeated(self.offsets[index])

    def _repeated(self, numbers: np.ndarray) -> np.ndarray:
        return np.repeat(numbers, self.block, axis=-1)[..., : self.levels.shape[1]]


def round_kernel(kernel: np.ndarray, moments: np.ndarray, grid: Grid) -> RoundedKernel:
    """Rounds a kernel so that the product changes as little as possible on average.

    Args:
        kernel: Values `(N, K)`.
        moments: Sum or mean of `x x^T` over inputs `x` of the product, `(K, K)`.
        grid: The values that the format can store.
    """
    return next(round_kernels([kernel], moments, grid))


def round_kernels(kernels: Iterable[np.ndarray], moments: np.ndarray, grid: Grid) -> Iterator[RoundedKernel]:
    """Rounds kernels that are multiplied with the same inputs, one at a time, as `round_kernel` does."""
    width = len(moments)
    order = np.arange(width)
    if grid.block is None:
        order = np.argsort(-np.diag(moments), kind="stable")  # the largest inputs first, when all others can make up
        moments = moments[np.ix_(order, order)]
    problem = _Problem.of(moments, grid)
    for kernel in kernels:
        levels = np.empty(kernel.shape, np.int8)
        scales = np.empty((len(kernel), -(-width // (grid.block or width))), np.float32)
        for start in range(0, len(kernel), _ROWS):
            part = slice(start, start + _ROWS)
            rounded, scales[part] = problem.best(np.asarray(kernel[part], np.float32)[:, order])
            levels[part, order] = rounded
        yield RoundedKernel(levels, scales, grid.block or width, grid.bits)


def nearest(kernel: np.ndarray, grid: Grid) -> RoundedKernel:
    """Rounds each weight of a kernel `(N, K)` to the nearest level."""
    return round_kernel(kernel, np.eye(kernel.shape[1]), grid)


def joined(kernels: Sequence[RoundedKernel]) -> RoundedKernel:
    """Concatenates the outputs of kernels with the same inputs and blocks, all with offsets or none."""
    levels, scales = ([getattr(kernel, name) for kernel in kernels] for name in ("levels", "scales"))
    offsets = [kernel.offsets for kernel in kernels if kernel.offsets is not None]
    added = np.concatenate(offsets) if offsets else None
    return RoundedKernel(np.concatenate(levels), np.concatenate(scales), kernels[0].block, kernels[0].bits, added)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Least squares of the errors of a product.

    The moments of its inputs are factored as `F D F^T`, with `F` unit upper triangular and `D` diagonal. The squared
    error of a row is then the sum of `D[j] * r[j] ** 2`, where `r[j]` is what rounding changes at input `j` after the
    errors `e` of earlier inputs were made up for by adding `e @ F[:j, j]`.

    Attributes:
        feedback: `F`, float32 `(K, K)`.
        costs: `D`, float32 `(K,)`.
        grid: The values that the format can store.
    """

    feedback: np.ndarray
    costs: np.ndarray
    grid: Grid

    @classmethod
    def of(cls, moments: np.ndarray, grid: Grid) -> _Problem:
        damped = moments.astype(np.float64)
        mean = float(np.trace(damped)) / len(damped)
        damped[np.diag_indices(len(damped))] += _DAMPING * mean if mean > 0 else 1.0
        # Cholesky factors are lower triangular; that of the reversed matrix is the upper triangular one, reversed.
        upper = np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1]
        del damped  # several hundred MB for the widest matrices
        diagonal = np.diag(upper).copy()
        upper /= diagonal
        return cls(upper.astype(np.float32), np.square(diagonal).astype(np.float32), grid)

    def best(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns levels `(M, K)` and scales `(M, blocks)` of rows `(M, K)`."""
        levels, scales, least = self._rounded(rows)
        if self.grid.block is not None or self.grid.bits == 8:  # a few more levels hardly matter among 255
            return levels, scales
        # Scales were chosen before any weight made up for errors of others, which needs another range.
        for share in _SHARES:
            candidates = self._rounded(rows, scales * np.float32(share))
            better = candidates[2] < least
            for kept, candidate in zip((levels, scales, least), candidates, strict=True):
                kept[better] = candidate[better]
        return levels, scales

    def _rounded(self, rows: np.ndarray, given: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns levels `(M, K)`, scales `(M, blocks)`, which may be given, and squared errors `(M,)`."""
        width = rows.shape[1]
        block = self.grid.block or width
        # Inputs first, so that those which are rounded together are contiguous.
        original = np.ascontiguousarray(rows.T)
        targets, errors, levels = original.copy(), np.empty_like(original), np.empty(original.shape, np.int8)
        scales = np.empty((-(-width // block), len(rows)), np.float32) if given is None else given.T.copy()
        step, least = min(block, _INPUTS), np.zeros(len(rows), np.float32)
        lowest, highest = LEVELS[self.grid.bits]
        for start in range(0, width, step):
            part, index = slice(start, min(start + step, width)), start // block
            targets[part] += self.feedback[:start, part].T @ errors[:start]
            if given is None and start % block == 0:
                whole = slice(start, start + block)
                scales[index] = self.grid.scales(np.ascontiguousarray(targets[whole].T), self.costs[whole])
            for first in range(start, part.stop, _FEW_INPUTS):
                few = slice(first, min(first + _FEW_INPUTS, part.stop))
                targets[few] += self.feedback[start:first, few].T @ errors[start:first]
                for i in range(first, few.stop):
                    # No threads of a BLAS, whose waiting for each other costs more than so small a product.
                    target = targets[i] + np.einsum("j,jn->n", self.feedback[first:i, i], errors[first:i])
                    levels[i] = np.clip(np.rint(target / scales[index]), lowest, highest)
                    rounded = levels[i] * scales[index]
                    least += self.costs[i] * np.square(target - rounded)
                    errors[i] = original[i] - rounded
        return levels.T.copy(), scales.T.copy(), least

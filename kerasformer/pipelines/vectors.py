"""Operations on embeddings: truncation, quantization and similarity."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kerasformer.errors import InputError

Precision = Literal["float32", "int8", "binary"]
PRECISIONS = ("float32", "int8", "binary")

_BLOCK = 1 << 22
"""Number of differences that the Manhattan distance computes at once."""


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scales vectors to length 1; vectors of zeros are unchanged.

    Raises:
        InputError: a length exceeds the range of the numbers.
    """
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: np.ndarray = vectors / np.maximum(_finite("The length of an embedding", lengths), 1e-12)
    return scaled


def _finite(what: str, values: np.ndarray) -> np.ndarray:
    """Returns numbers after checking that they are neither NaN nor infinite."""
    if not np.isfinite(values).all():
        raise InputError(
            f"{what} must be a finite number. Received: {values[~np.isfinite(values)][0]}. Check the embeddings, and "
            "the weights of the model that computed them"
        )
    return values


def value_ranges(vectors: np.ndarray) -> np.ndarray:
    """Returns the smallest and the largest value of each entry, `(2, D)`, for `quantized`."""
    return np.stack([vectors.min(axis=0), vectors.max(axis=0)])


def quantized(vectors: np.ndarray, precision: str, ranges: np.ndarray | None = None) -> np.ndarray:
    """Quantizes embeddings, with the values of `quantize_embeddings` of sentence-transformers.

    Args:
        vectors: float32 `(N, D)`.
        precision: `"int8"` maps the range of each entry to 256 values. `"binary"` keeps the sign of each entry, eight
            to a byte, the first in the highest bit; bytes are int8, with 128 subtracted.
        ranges: Smallest and largest value of each entry, `(2, D)`, for `"int8"`; by default those of `vectors`.

    Returns:
        `(N, D)` float32 or int8, or `(N, ceil(D / 8))` int8.

    Raises:
        InputError: a single vector without ranges, which would be mapped to a single value, or ranges of another shape.
    """
    if precision == "float32":
        return vectors
    if precision == "binary":
        return (np.packbits(vectors > 0, axis=-1) - 128).astype("int8")
    if ranges is None and len(vectors) == 1:
        raise InputError(
            "The range of each entry cannot be inferred from a single embedding. Expected: several texts, or "
            "ranges=…, the smallest and largest value of each entry in other embeddings (2, D). "
            "Received: one text with precision='int8'"
        )
    if ranges is None:
        ranges = value_ranges(vectors) if len(vectors) else np.zeros((2, vectors.shape[1]), "float32")
    start, step = _scale(_checked_ranges(ranges, vectors.shape[-1]))
    codes = np.clip(np.floor((vectors - start) / np.where(step == 0, 1, step)), 0, 255)
    return np.asarray(codes - 128, "int8")


def dequantized(codes: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Returns float32 vectors in the middle of the intervals that int8 codes `(N, D)` stand for."""
    start, step = _scale(ranges)
    return np.asarray(start + step * (codes.astype("float32") + 128.5), "float32")


def _scale(ranges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.asarray(ranges, "float32")
    return low, (high - low) / 255


def _checked_ranges(ranges: object, size: int) -> np.ndarray:
    array = np.asarray(ranges)
    if array.shape != (2, size) or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise InputError(
            f"ranges must be the smallest and the largest value of each entry, finite numbers of shape (2, {size}). "
            f"Received: shape {array.shape}, dtype {array.dtype}"
        )
    return array.astype("float32")


def similarity(some: np.ndarray, others: np.ndarray, kind: str) -> np.ndarray:
    """Returns the similarities `(N, M)` of embeddings `(N, D)` and `(M, D)`, larger for closer ones.

    Args:
        some: Embeddings.
        others: Embeddings.
        kind: `"cosine"`, `"dot"`, or `"euclidean"` or `"manhattan"`, the negative distances.

    Raises:
        InputError: a similarity is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _finite("The similarity of two embeddings", _similarity(some, others, kind))


def _similarity(some: np.ndarray, others: np.ndarray, kind: str) -> np.ndarray:
    some, others = some.astype("float32"), others.astype("float32")
    if kind == "cosine":
        some, others = unit(some), unit(others)
    if kind in ("cosine", "dot"):
        return np.asarray(some @ others.T)
    if kind == "euclidean":
        # In double precision, since the difference of squares of close vectors is small.
        a, b = some.astype("float64"), others.astype("float64")
        squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2 * a @ b.T
        return -np.sqrt(np.maximum(squares, 0)).astype("float32")
    result = np.empty((len(some), len(others)), "float32")
    size = max(1, _BLOCK // max(others.size, 1))
    for start in range(0, len(some), size):
        part = slice(start, start + size)
        result[part] = -np.abs(some[part, None] - others[None]).sum(axis=-1)
    return result

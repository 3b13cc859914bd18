"""Vectors of a corpus as arrays of an index: embeddings of texts, weights of tokens, and vectors of tokens.

Shape letters: `N` texts, `D` entries of a vector, `T` tokens of a text, `V` different tokens, `W` weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np

from kerasformer.errors import InputError
from kerasformer.pipelines.sparse_vectors import SparseVector
from kerasformer.pipelines.vectors import Precision, dequantized, quantized, similarity, unit, value_ranges

Arrays = dict[str, np.ndarray]

_BLOCK = 16_384
"""Number of vectors that are converted to float32 and compared at once."""


class IndexedVectors(Protocol):
    """The vectors of one kind.

    Attributes:
        arrays: What the file of an index contains of them, by name.
    """

    arrays: Arrays

    def check(self, count: int) -> None:
        """Raises `ValueError` or `KeyError` unless the arrays are those of `count` texts."""

    def scores(self, query: Any) -> np.ndarray:
        """Returns the similarity of each text to the vector of a query, `(N,)`."""


class Embeddings:
    """Embeddings of texts, one vector each, in one of the precisions of `vectors.quantized`.

    Args:
        arrays: `dim`, and `vectors` `(N, D)`, or `codes` with their `ranges` `(2, D)`, or `bits` `(N, ceil(D / 8))`, or
            the last three.
        kind: Their similarity; see `vectors.similarity`.
    """

    def __init__(self, arrays: Arrays, kind: str) -> None:
        self.arrays = _chosen(arrays, "dim", "vectors", "codes", "ranges", "bits")
        self._kind, self.dim = kind, int(arrays["dim"])

    @classmethod
    def of(cls, vectors: np.ndarray, kind: str, precision: Precision, rescore: bool) -> Self:
        """Stores embeddings `(N, D)`; with `rescore`, binary ones with their int8 codes."""
        arrays: Arrays = {"dim": np.array(vectors.shape[1])}
        if precision == "float32":
            arrays["vectors"] = vectors
        if precision == "binary":
            arrays["bits"] = quantized(vectors, "binary")
        if precision == "int8" or (precision == "binary" and rescore):
            arrays["ranges"] = value_ranges(vectors)
            arrays["codes"] = quantized(vectors, "int8", arrays["ranges"])
        return cls(arrays, kind)

    def check(self, count: int) -> None:
        """See `IndexedVectors.check`."""
        shapes = {
            "vectors": (count, self.dim),
            "codes": (count, self.dim),
            "ranges": (2, self.dim),
            "bits": (count, -(-self.dim // 8)),
        }
        for name, shape in shapes.items():
            if name in self.arrays and self.arrays[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}")
        if not {"vectors", "codes", "bits"} & set(self.arrays) or ("codes" in self.arrays) != ("ranges" in self.arrays):
            raise ValueError("the vectors are missing")

    def scores(self, query: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Returns the similarities of the texts, or of some of them, to an embedding `(D,)`."""
        chosen = np.arange(self._count) if rows is None else rows
        parts = [chosen[start : start + _BLOCK] for start in range(0, len(chosen), _BLOCK)]
        return np.concatenate([similarity(query[None], self._decoded(part), self._kind)[0] for part in parts])

    def nearest_signs(self, query: np.ndarray, count: int) -> np.ndarray:
        """Returns the rows whose signs differ least from those of a query `(D,)`, in ascending order."""
        signs, distances = quantized(query[None], "binary"), np.empty(self._count, "int32")
        for start in range(0, self._count, _BLOCK):
            part = slice(start, start + _BLOCK)
            different = np.bitwise_xor(self.arrays["bits"][part], signs).view("uint8")
            distances[part] = np.bitwise_count(different).sum(axis=1, dtype="int32")
        return np.sort(np.argsort(distances, kind="stable")[:count])

    @property
    def _count(self) -> int:
        return len(next(self.arrays[name] for name in ("vectors", "codes", "bits") if name in self.arrays))

    def _decoded(self, rows: np.ndarray) -> np.ndarray:
        """Returns vectors in float32."""
        if "vectors" in self.arrays:
            return self.arrays["vectors"][rows]
        if "codes" in self.arrays:
            return dequantized(self.arrays["codes"][rows], self.arrays["ranges"])
        bits = np.unpackbits((self.arrays["bits"][rows].astype("int16") + 128).astype("uint8"), axis=-1)
        return unit(2.0 * bits[:, : self.dim].astype("float32") - 1.0)


class TokenWeights:
    """Sparse vectors of texts as an inverted file: for each token, the texts that have a weight for it.

    Args:
        arrays: The tokens as `token_bytes` and `token_sizes` `(V,)`; `weight_ends` `(V,)`, where the weights of a token
            end; and for each weight the text, `weight_rows` `(W,)`, and its value, `weights` `(W,)`.
        count: Number of texts.
    """

    _NAMES = ("token_bytes", "token_sizes", "weight_ends", "weight_rows", "weights")

    def __init__(self, arrays: Arrays, count: int) -> None:
        self.arrays, self._count = {name: arrays[name] for name in self._NAMES}, count
        tokens = unpacked(arrays["token_bytes"], arrays["token_sizes"])
        ends = arrays["weight_ends"].tolist()
        self._parts = dict(zip(tokens, map(slice, [0, *ends], ends), strict=True))

    @classmethod
    def of(cls, vectors: Sequence[SparseVector]) -> Self:
        """Stores the vectors of texts."""
        texts: dict[str, list[int]] = {}
        for row, vector in enumerate(vectors):
            for token in vector:
                texts.setdefault(token, []).append(row)
        found = sorted(texts.items())
        names, sizes = packed([token for token, _ in found])
        weights = [vectors[row][token] for token, rows in found for row in rows]
        arrays = {
            "token_bytes": names,
            "token_sizes": sizes,
            "weight_ends": np.cumsum([len(rows) for _, rows in found], dtype="int64"),
            "weight_rows": np.array([row for _, rows in found for row in rows], "int32"),
            "weights": np.array(weights, "float32"),
        }
        return cls(arrays, len(vectors))

    def check(self, count: int) -> None:
        """See `IndexedVectors.check`."""
        ends, rows = self.arrays["weight_ends"], self.arrays["weight_rows"]
        whole = len(rows) == len(self.arrays["weights"]) == (ends[-1] if len(ends) else 0)
        if not whole or (np.diff(ends, prepend=0) < 0).any() or ((rows < 0) | (rows >= count)).any():
            raise ValueError("the weights of tokens do not match the texts")

    def scores(self, query: Mapping[str, float]) -> np.ndarray:
        """Returns the dot products of the texts with a sparse vector."""
        result = np.zeros(self._count)
        for token, weight in query.items():
            if (part := self._parts.get(token)) is not None:  # a text has one weight for a token
                result[self.arrays["weight_rows"][part]] += weight * self.arrays["weights"][part].astype("float64")
        return result.astype("float32")


class TokenVectors:
    """Vectors of the tokens of texts, which are compared by MaxSim.

    Args:
        arrays: `vector_counts` `(N,)`, the number of vectors of each text, and the vectors of all texts as
            `token_vectors` or, in int8, `token_codes` with their `token_ranges` `(2, D)`.
        mean: Whether a score is a mean over the vectors of a query instead of their sum.
    """

    def __init__(self, arrays: Arrays, mean: bool) -> None:
        self.arrays = _chosen(arrays, "vector_counts", "token_vectors", "token_codes", "token_ranges")
        self._mean = mean

    @classmethod
    def of(cls, vectors: Sequence[np.ndarray], mean: bool, precision: Precision) -> Self:
        """Stores the vectors of texts, `(T, D)` each."""
        together, arrays = np.concatenate(vectors), {"vector_counts": np.array([len(each) for each in vectors])}
        if precision == "int8" and len(together):
            arrays["token_ranges"] = value_ranges(together)
            arrays["token_codes"] = quantized(together, "int8", arrays["token_ranges"])
        else:
            arrays["token_vectors"] = together
        return cls(arrays, mean)

    def check(self, count: int) -> None:
        """See `IndexedVectors.check`."""
        counts, stored = self.arrays["vector_counts"], self._stored
        ranges = self.arrays.get("token_ranges", np.zeros((2, stored.shape[-1])))
        whole = counts.shape == (count,) and (counts >= 0).all() and stored.ndim == 2 and counts.sum() == len(stored)
        if (
            not whole
            or ranges.shape != (2, stored.shape[1])
            or ("token_codes" in self.arrays) != ("token_ranges" in self.arrays)
        ):
            raise ValueError("the vectors of tokens do not match the texts")

    def scores(self, query: np.ndarray) -> np.ndarray:
        """Returns the scores of the texts for the vectors of a query `(T, D)`.

        Raises:
            InputError: the vectors have another size.
        """
        stored = self._stored
        if query.ndim != 2 or query.shape[1] != stored.shape[1]:
            raise InputError(
                f"The vectors of a query must be (T, {stored.shape[1]}), as those of the index. "
                f"Received: shape {query.shape}"
            )
        counts = self.arrays["vector_counts"]
        result = np.zeros(len(counts))
        if not len(query):
            return result.astype("float32")
        for texts in _blocks(counts):
            ends = np.cumsum(counts[texts])
            first = int(counts[: texts[0]].sum())
            products = query @ self._decoded(slice(first, first + int(ends[-1]))).T
            largest = np.maximum.reduceat(products, ends - counts[texts], axis=1)
            result[texts] = largest.sum(axis=0, dtype="float64") / (len(query) if self._mean else 1)
        return result.astype("float32")

    @property
    def _stored(self) -> np.ndarray:
        return self.arrays["token_codes" if "token_codes" in self.arrays else "token_vectors"]

    def _decoded(self, part: slice) -> np.ndarray:
        stored = self._stored[part]
        return dequantized(stored, self.arrays["token_ranges"]) if "token_codes" in self.arrays else stored


def _chosen(arrays: Arrays, *names: str) -> Arrays:
    return {name: arrays[name] for name in names if name in arrays}


def _blocks(counts: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the indices of texts with vectors, those of about `_BLOCK` vectors together."""
    with_vectors = np.flatnonzero(counts)
    blocks = np.cumsum(counts[with_vectors]) // _BLOCK
    return iter(np.split(with_vectors, np.flatnonzero(np.diff(blocks)) + 1) if len(with_vectors) else [])


def packed(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns texts as an array of their bytes in UTF-8, and the number of bytes of each."""
    encoded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded), "uint8"), np.array([len(text) for text in encoded], "int64")


def unpacked(content: np.ndarray, sizes: np.ndarray) -> list[str]:
    """Returns the texts from the result of `packed`.

    Raises:
        ValueError: The sizes do not match the bytes.
    """
    ends = np.cumsum(sizes)
    whole = content.tobytes()
    if len(whole) != (ends[-1] if len(ends) else 0) or (sizes < 0).any():
        raise ValueError("the sizes of the texts do not match their bytes")
    return [whole[end - size : end].decode() for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]

"""Sparse vectors of texts, dictionaries with the weights of tokens, and their dot product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np

from kerasformer.errors import InputError
from kerasformer.tokenization import Tokenizer

SparseVector = dict[str, float]
"""Weights of a text by token, the largest first."""


def sparse_vector(weights: np.ndarray, ids: np.ndarray, tokenizer: Tokenizer, limit: int | None = None) -> SparseVector:
    """Returns the positive weights by token, the largest first.

    Args:
        weights: Weights `(N,)`.
        ids: Ids of their tokens `(N,)`; a token that occurs several times has the largest of its weights.
        tokenizer: The tokenizer. An id that it does not know is written as `"<123>"`.
        limit: Number of largest weights to keep; `None` for all.
    """
    largest: dict[int, float] = {}
    for index in np.argsort(-weights, kind="stable")[: int((weights > 0).sum())].tolist():
        if len(largest) == limit:
            break
        largest.setdefault(int(ids[index]), float(weights[index]))
    names = ((tokenizer.id_to_token(token), token, weight) for token, weight in largest.items())
    return {f"<{token}>" if name is None else name: weight for name, token, weight in names}


def is_sparse(value: object) -> bool:
    """Whether a value is a sparse vector, or a list of them."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(first, Mapping)


def checked_vectors(value: object) -> list[SparseVector]:
    """Returns sparse vectors, from one or several.

    Raises:
        InputError: a value is no dictionary of numbers by token.
    """
    vectors = list(value) if isinstance(value, list | tuple) else [value]
    for vector in vectors:
        if not isinstance(vector, Mapping) or not all(
            isinstance(token, str) and isinstance(weight, Real) and np.isfinite(float(weight))
            for token, weight in vector.items()
        ):
            raise InputError(
                "A sparse vector must be a dictionary with the weights of tokens, such as {'rain': 1.5}. "
                f"Received: {vector!r:.200}"
            )
    return vectors  # type: ignore[return-value]


def dot_products(some: Sequence[SparseVector], others: Sequence[SparseVector]) -> np.ndarray:
    """Returns the dot products of sparse vectors, float32 `(N, M)`."""
    result = np.zeros((len(some), len(others)), "float32")
    for row, one in enumerate(some):
        for column, other in enumerate(others):
            small, large = sorted((one, other), key=len)
            result[row, column] = sum(weight * large[token] for token, weight in small.items() if token in large)
    return result

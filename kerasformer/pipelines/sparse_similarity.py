"""Sparse vectors of texts, with a weight for each token of the vocabulary, and their dot product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, check, integer, optional
from kerasformer.basics.tasks import NEEDS, SPARSE_SIMILARITY
from kerasformer.bundle import SPARSE_EMBEDDING, SparseInfo
from kerasformer.errors import InputError
from kerasformer.pipelines.base import LengthOptions
from kerasformer.pipelines.chunks import combined_rows, rows_of
from kerasformer.pipelines.inputs import progress_bar, read_inputs, read_text
from kerasformer.pipelines.opening import Opened
from kerasformer.pipelines.prompted import SPARSE, RetrievalPipeline
from kerasformer.pipelines.sparse_vectors import SparseVector, checked_vectors, dot_products, is_sparse, sparse_vector

_DENSE = ("normalize", "precision", "ranges", "truncate_dim")
"""Options of dense embeddings."""


class SparseSimilarityPipeline(RetrievalPipeline):
    """Computes sparse vectors of texts, dictionaries with the weights of tokens, and their dot products.

    A text also has weights for tokens that it does not contain, such as synonyms.

    Raises:
        InputError: the model computes no sparse vectors.

    Reference: Formal et al. 2021, arXiv:2109.10086, and `SparseEncoder` of sentence-transformers.
    """

    _page = 4  # a weight for each token of the vocabulary takes 4 bytes

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        if self.info.sparse is None:
            raise InputError(f"{self.task} needs {NEEDS[SPARSE_SIMILARITY]}. Received: {self.info.name}")
        self._sparse: SparseInfo = self.info.sparse

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of vectors of a text: `"sparse"`."""
        return (SPARSE,)

    @property
    def embedding(self) -> SparseInfo:
        """Properties of the vectors: pooling, prompts, number of weights."""
        return self._sparse

    def encode(
        self,
        texts: object,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        max_active_dims: int | None = None,
        batch_size: int = 16,
        truncation: bool = False,
        chunk_length: int | None = None,
        stride: int | None = None,
        progress: bool = False,
        **others: Any,
    ) -> Any:
        """Computes the sparse vectors of texts.

        Args:
            texts: A text, or a list or another iterable of texts.
            prompt_name: Name of the prompt of the model to put before each text; its default prompt, if there is one,
                if neither `prompt_name` nor `prompt` is passed.
            prompt: Text to put before each text; `""` for none.
            max_active_dims: Number of largest weights to keep; all by default, unless the model has another default.
            batch_size: Number of texts, or chunks of long texts, in one call of the model.
            truncation: Whether to truncate a text that exceeds the model's maximum length, with a warning. Otherwise it
                is split into chunks, and each token has the largest of its weights in them; a model that adds weights
                raises an error.
            chunk_length: Length of a chunk in tokens, including special tokens; the model's maximum length by default.
            stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk by default.
            progress: Whether to show a progress bar on standard error.
            others: Options of dense embeddings, which raise an error.

        Returns:
            For a text, the positive weights by token, the largest first; for several, a list of such dictionaries.

        Raises:
            InputError: an input is not a text; an unknown prompt or option.
            CapacityError: a text is too long for a model that adds the weights of all tokens.
        """
        if others:
            of_dense = ", an option of dense embeddings" if set(others) <= set(_DENSE) else ""
            raise InputError(
                "Sparse vectors have the options prompt_name, prompt, max_active_dims, batch_size, truncation, "
                f"chunk_length, stride and progress. Received: {', '.join(others)}{of_dense}"
            )
        checked, before = read_inputs(texts, read_text), self._prompt(prompt_name, prompt)
        limit = check("max_active_dims", max_active_dims, optional(integer(1))) or self.embedding.max_active_dims
        in_chunks = self.embedding.pooling == "max"
        if not in_chunks and (chunk_length, stride) != (None, None):
            raise InputError(
                "The model adds the weights of all tokens of a text, which is not split into chunks. Expected: neither "
                f"chunk_length nor stride. Received: chunk_length={chunk_length}, stride={stride}"
            )
        vectors = self._vectors(
            [before + text for text in checked.items],
            LengthOptions(truncation, chunk_length, stride, in_chunks),
            check("batch_size", batch_size, integer(1)),
            limit,
            check("progress", progress, BOOLEAN),
        )
        return vectors[0] if checked.form == "one" else vectors

    def similarity(self, some: object, others: object) -> np.ndarray:
        """Returns the dot products `(N, M)` of texts or of their sparse vectors.

        Args:
            some: A text, a list of texts, a sparse vector or a list of them.
            others: The same.

        Raises:
            InputError: neither texts nor sparse vectors, such as dense embeddings.
        """
        return dot_products(self._as_vectors(some), self._as_vectors(others))

    def _as_vectors(self, value: object) -> list[SparseVector]:
        numbers = isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
        if is_sparse(value) or numbers or (isinstance(value, list | tuple) and value and not isinstance(value[0], str)):
            return checked_vectors(value)
        encoded = self.encode(value)
        return [encoded] if isinstance(encoded, dict) else list(encoded)

    def _vectors(
        self, texts: Sequence[str], options: LengthOptions, batch_size: int, limit: int | None, progress: bool
    ) -> list[SparseVector]:
        """Returns the sparse vectors of texts; those of similar length are processed together."""
        vectors: list[SparseVector] = [{} for _ in texts]
        order = np.argsort([-len(text) for text in texts], kind="stable")
        with progress_bar(self.task, len(texts), progress) as advance:
            for rows in _pages(order, self._page * batch_size):
                encoded = self._encode([texts[row] for row in rows], options)
                weights = self._run(encoded, batch_size, by_length=True)[SPARSE_EMBEDDING]
                ones = np.ones(len(weights))  # no mean
                for row, each in zip(rows, combined_rows(weights, rows_of(encoded), ones, "max"), strict=True):
                    vectors[row] = sparse_vector(each, np.arange(len(each)), self.tokenizer, limit)
                advance(len(rows))
        return vectors


def _pages(rows: np.ndarray, size: int) -> Iterable[list[int]]:
    return (rows[start : start + size].tolist() for start in range(0, len(rows), size))

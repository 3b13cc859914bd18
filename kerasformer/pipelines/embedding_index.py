"""Semantic search: texts and their vectors in a NumPy file."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, check, instance, integer, one_of
from kerasformer.errors import InputError, SourceError
from kerasformer.files.reading import local_path, parse_json
from kerasformer.pipelines.answers import Hit
from kerasformer.pipelines.indexed_vectors import (
    Arrays,
    Embeddings,
    IndexedVectors,
    TokenVectors,
    TokenWeights,
    packed,
    unpacked,
)
from kerasformer.pipelines.inputs import read_inputs, read_text
from kerasformer.pipelines.multi_vector_similarity import MultiVectorSimilarityPipeline
from kerasformer.pipelines.prompted import DENSE, MULTI_VECTOR, SPARSE, RetrievalPipeline
from kerasformer.pipelines.sentence_similarity import SentenceSimilarityPipeline
from kerasformer.pipelines.sparse_vectors import checked_vectors
from kerasformer.pipelines.vectors import PRECISIONS, Precision, unit

_VERSION = 1
_PROBES = ("A man is eating food.", "The train to Vienna leaves at nine.", "Prices rose in the last quarter.")
_SAME_MODEL = 0.92
"""Cosine similarity of the probes' embeddings from which two models count as the same, in different precisions."""
_SUMS = 1024
"""Number of sums by which the sparse vectors of the probes are compared."""
_POSSIBLE: dict[tuple[str, ...], tuple[str, ...]] = {(DENSE,): PRECISIONS, (SPARSE,): PRECISIONS[:1]}
"""Precisions by the kinds of vectors of a model; others have the first two."""
_PIPELINE = instance(
    "a pipeline for sentence-similarity, sparse-similarity or multi-vector-similarity", RetrievalPipeline
)


class EmbeddingIndex:
    """Texts with their vectors, to be searched by meaning.

        index = kf.EmbeddingIndex.build(pipe, texts, precision="int8")
        index.save("corpus.npz")
        index = kf.EmbeddingIndex.load("corpus.npz", pipe)
        index.search("Who wrote this?", top_k=5)

    The vectors are those of the pipeline: an embedding of each text (sentence-similarity), weights of its tokens
    (sparse-similarity, an inverted file), a vector of each token (multi-vector-similarity), or all of them (BGE-M3).

    Queries are compared with all vectors, in float32. With int8 vectors, a score is that of the float32 query with the
    values that the codes stand for. With binary vectors, the signs of query and vectors select candidates, whose scores
    are then computed with the int8 vectors of the index or, without them, with the signs.

    An index can be searched only with the model that it was built with, in any precision and on any engine: it contains
    the embeddings of three sentences, with which those of the pipeline are compared.

    Attributes:
        texts: The texts; a position in this list is the `corpus_id` of results.
        precision: `"float32"`, `"int8"` or `"binary"`, of embeddings and vectors of tokens; weights are float32.
        kinds: Kinds of its vectors: `"dense"`, `"sparse"`, `"multi_vector"`.
    """

    def __init__(self, pipe: RetrievalPipeline, texts: Sequence[str], arrays: Arrays) -> None:
        self.texts, self._pipe, self._probes = list(texts), pipe, arrays["probes"]
        self.precision: Precision = "binary" if "bits" in arrays else "float32"
        if {"codes", "token_codes"} & set(arrays) and self.precision != "binary":
            self.precision = "int8"
        self.kinds = pipe.kinds
        self._vectors: dict[str, IndexedVectors] = {}
        if DENSE in self.kinds:
            self._vectors[DENSE] = Embeddings(arrays, _similarity(pipe))
        if SPARSE in self.kinds:
            self._vectors[SPARSE] = TokenWeights(arrays, len(self))
        if MULTI_VECTOR in self.kinds:
            self._vectors[MULTI_VECTOR] = TokenVectors(arrays, _is_mean(pipe))

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        entries = f", {self._embeddings.dim} entries" if DENSE in self.kinds else ""
        return f"EmbeddingIndex({len(self)} texts, {' and '.join(self.kinds)}{entries}, {self.precision})"

    @classmethod
    def build(
        cls,
        pipe: RetrievalPipeline,
        texts: object,
        *,
        precision: Precision = "float32",
        rescore: bool = True,
        truncate_dim: int | None = None,
        **options: Any,
    ) -> Self:
        """Computes the vectors of texts.

        Args:
            pipe: Pipeline for sentence-similarity, sparse-similarity or multi-vector-similarity.
            texts: A list or another iterable of texts, at least one.
            precision: `"float32"`, 4 bytes for each entry; `"int8"`, one byte; or, for embeddings alone, `"binary"`,
                one bit.
            rescore: Whether a binary index also contains int8 vectors, with which candidates are scored.
            truncate_dim: Number of first entries of each embedding to keep, as for `encode`.
            options: Further arguments of `encode_document`, such as `prompt_name`, `batch_size` and `progress`.

        Raises:
            InputError: no texts, or an argument is invalid.
        """
        pipe = check("pipe", pipe, _PIPELINE)
        kind, again = check("precision", precision, one_of(*PRECISIONS)), check("rescore", rescore, BOOLEAN)
        possible = _POSSIBLE.get(pipe.kinds, PRECISIONS[:2])
        if kind not in possible:
            raise InputError(
                f"Vectors of the kind {' and '.join(pipe.kinds)} are stored as {' or '.join(possible)}. "
                f"Received: precision={kind!r}"
            )
        items = list(read_inputs([texts] if isinstance(texts, str) else texts, read_text).items)
        if not items:
            raise InputError("An index needs at least one text. Received: none")
        if truncate_dim is not None:
            options["truncate_dim"] = truncate_dim
        vectors = _by_kind(pipe, pipe.encode_document(items, **options))
        arrays: Arrays = {"probes": _probes(pipe)}
        if DENSE in vectors:
            arrays |= Embeddings.of(np.asarray(vectors[DENSE]), _similarity(pipe), kind, again).arrays
        if SPARSE in vectors:
            arrays |= TokenWeights.of(vectors[SPARSE]).arrays
        if MULTI_VECTOR in vectors:
            arrays |= TokenVectors.of(vectors[MULTI_VECTOR], _is_mean(pipe), kind).arrays
        return cls(pipe, items, arrays)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the index to an `.npz` file, which is replaced only when the new one is complete.

        Returns:
            The path.

        Raises:
            InputError: the name does not end with `.npz`.
        """
        target = local_path(path)
        if target.suffix != ".npz":
            raise InputError(f"The name of an index must end with .npz. Received: {target.name!r}")
        content, sizes = packed(self.texts)
        description = {
            "format_version": _VERSION,
            "model": self._pipe.info.name,
            "count": len(self),
            "kinds": list(self.kinds),
        }
        arrays: Arrays = {"probes": self._probes, "description": np.array(json.dumps(description))}
        arrays |= {"text_bytes": content, "text_sizes": sizes}
        for vectors in self._vectors.values():
            arrays |= vectors.arrays
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str], pipe: RetrievalPipeline) -> Self:
        """Reads an index.

        Args:
            path: File that `save` wrote.
            pipe: Pipeline of the model that the index was built with.

        Raises:
            SourceError: the file is missing, damaged, or of a newer version.
            InputError: the index was built with another model.
        """
        pipe, source = check("pipe", pipe, _PIPELINE), local_path(path)
        try:
            # NumPy leaves a damaged file open that it opened itself.
            with source.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            description = parse_json(str(arrays.pop("description").item()), "description")
            texts = unpacked(arrays.pop("text_bytes"), arrays.pop("text_sizes"))
            version, name = description["format_version"], str(description["model"])
            kinds = tuple(description.get("kinds", (DENSE,)))
            if version == _VERSION and kinds == pipe.kinds:
                index = cls(pipe, texts, arrays)
                for vectors in index._vectors.values():
                    vectors.check(len(texts))
        except (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise SourceError(
                f"{source} is not a readable index. Expected: a file of EmbeddingIndex.save. Received: {error!r}"
            ) from error
        if version != _VERSION:
            raise SourceError(
                f"{source} was written by another version of kerasformer. Expected: format version {_VERSION}. "
                f"Received: {version}. Build the index again"
            )
        if kinds != pipe.kinds:
            raise InputError(
                f"This index was built with {name} and has vectors of the kind {' and '.join(kinds)}. Expected: a "
                f"pipeline of that model and task. Received: {pipe.info.name} for {pipe.task}, which computes "
                f"{' and '.join(pipe.kinds)}"
            )
        _check_model(pipe, arrays["probes"], name)
        return index

    def search(
        self,
        queries: Any,
        top_k: int = 10,
        *,
        oversampling: int = 4,
        weights: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Any:
        """Finds the texts that are most similar to queries.

        Args:
            queries: A text, a list of texts, or vectors of `encode_query`: float32 embeddings `(N, D)` or `(D,)` of the
                size of the index, or dictionaries of the other kinds.
            top_k: Number of texts to return for each query.
            oversampling: Number of candidates that the signs of binary vectors select, as a multiple of `top_k`.
            weights: Weights of the scores by kind of vectors, for an index with several; as `similarity` of its
                pipeline.
            options: Further arguments of `encode_query`, such as `prompt_name` and `batch_size`.

        Returns:
            For a query, a list of `{"corpus_id", "score", "text"}`, the most similar text first; for several queries, a
            list of such lists. A score is the similarity of the model.

        Raises:
            InputError: an argument is invalid, or vectors are of another kind or size.
        """
        count = min(check("top_k", top_k, integer(1)), len(self))
        factor = check("oversampling", oversampling, integer(1))
        chosen, (vectors, single) = self._pipe.score_weights(weights), self._queries(queries, options)
        several = range(len(vectors[self.kinds[0]]))
        hits = [self._hits({kind: vectors[kind][row] for kind in chosen}, chosen, count, factor) for row in several]
        return hits[0] if single else hits

    def _queries(self, queries: Any, options: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Returns the vectors of queries by kind, and whether there is a single query."""
        first = queries[0] if isinstance(queries, list | tuple) and queries else queries
        are_vectors = isinstance(first, Mapping) or (isinstance(first, np.ndarray) and first.dtype.kind == "f")
        if not are_vectors:
            if DENSE in self.kinds and len(self.kinds) == 1:
                options = {"truncate_dim": self._embeddings.dim, **options}
            queries = self._pipe.encode_query(queries, **options)
        single = isinstance(queries, Mapping) or (isinstance(queries, np.ndarray) and queries.ndim == 1)
        if self.kinds == (DENSE,):
            vectors = np.asarray(queries)
            dim = self._embeddings.dim
            if vectors.ndim not in (1, 2) or vectors.shape[-1] != dim or vectors.dtype.kind != "f":
                raise InputError(
                    f"Queries must be texts, or float32 embeddings with {dim} entries. "
                    f"Received: shape {vectors.shape}, dtype {vectors.dtype}"
                )
            return {DENSE: np.atleast_2d(vectors)}, single
        several = [queries] if single else list(queries)
        if self.kinds == (SPARSE,):
            checked_vectors(several)
        elif any(not isinstance(each, Mapping) or not set(self.kinds) <= set(each) for each in several):
            raise InputError(
                "Queries must be texts, or vectors of encode_query, dictionaries with "
                f"{' and '.join(self.kinds)}. Received: {queries!r:.100}"
            )
        return _by_kind(self._pipe, several), single

    def _hits(self, query: dict[str, Any], weights: dict[str, float], count: int, oversampling: int) -> list[Hit]:
        if self.precision == "binary":
            rows = self._embeddings.nearest_signs(query[DENSE], min(len(self), count * oversampling))
            scores = self._embeddings.scores(query[DENSE], rows)
        else:
            rows = np.arange(len(self))
            scores = np.zeros(len(self))
            for kind, weight in weights.items():
                scores += weight / sum(weights.values()) * self._vectors[kind].scores(query[kind])
        best = np.lexsort((rows, -scores))[:count]
        return [{"corpus_id": int(rows[i]), "score": float(scores[i]), "text": self.texts[rows[i]]} for i in best]

    @property
    def _embeddings(self) -> Embeddings:
        return cast(Embeddings, self._vectors[DENSE])


def _by_kind(pipe: RetrievalPipeline, encoded: Any) -> dict[str, Any]:
    """Returns the vectors of several texts by kind, from the result of `encode`."""
    if len(pipe.kinds) == 1 and MULTI_VECTOR not in pipe.kinds:
        return {pipe.kinds[0]: encoded}
    return {kind: [each[kind] for each in encoded] for kind in pipe.kinds}


def _similarity(pipe: RetrievalPipeline) -> str:
    """Returns the similarity of embeddings; those of BGE-M3 are compared by their dot product."""
    return pipe.embedding.similarity if isinstance(pipe, SentenceSimilarityPipeline) else "dot"


def _is_mean(pipe: RetrievalPipeline) -> bool:
    return isinstance(pipe, MultiVectorSimilarityPipeline) and pipe.embedding.similarity == "meanmaxsim"


def _probes(pipe: RetrievalPipeline) -> np.ndarray:
    """Returns a vector of each test sentence, by which models are compared, float32 `(3, E)`.

    They are embeddings or, without these, means of the vectors of tokens, or sums of the weights of tokens by id modulo
    `_SUMS`.
    """
    vectors = _by_kind(pipe, pipe.encode(list(_PROBES), prompt=""))
    if DENSE in vectors:
        return np.asarray(vectors[DENSE])
    if MULTI_VECTOR in vectors:
        return np.stack([each.mean(axis=0) for each in vectors[MULTI_VECTOR]])
    sums = np.zeros((len(_PROBES), _SUMS), "float32")
    for row, weights in zip(sums, vectors[SPARSE], strict=True):
        for token, weight in weights.items():
            row[(pipe.tokenizer.token_to_id(token) or 0) % _SUMS] += weight
    return sums


def _check_model(pipe: RetrievalPipeline, probes: np.ndarray, name: str) -> None:
    """Raises `InputError` unless the pipeline computes the recorded vectors."""
    received = _probes(pipe)
    same_size = probes.ndim == 2 and probes.shape == received.shape
    lowest = float((unit(probes) * unit(received)).sum(axis=1).min()) if same_size else None
    if lowest is None or not lowest >= _SAME_MODEL:
        sizes = f"vectors of {received.shape[-1]} instead of {probes.shape[-1]} entries"
        difference = sizes if lowest is None else f"a similarity of {lowest:.3f}"
        raise InputError(
            f"This index was built with another model, {name}. Expected: a pipeline of that model, whose vectors of "
            f"the index's test sentences have a cosine similarity of at least {_SAME_MODEL:g}. Received: "
            f"{pipe.info.name}, with {difference}. Build the index again"
        )

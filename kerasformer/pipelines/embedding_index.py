"""Semantic search: texts and their embeddings in a NumPy file."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, check, instance, integer, one_of
from kerasformer.errors import InputError, SourceError
from kerasformer.files.reading import local_path, parse_json
from kerasformer.pipelines.answers import Hit
from kerasformer.pipelines.inputs import read_inputs, read_text
from kerasformer.pipelines.sentence_similarity import SentenceSimilarityPipeline
from kerasformer.pipelines.vectors import (
    PRECISIONS,
    Precision,
    dequantized,
    quantized,
    similarity,
    unit,
    value_ranges,
)

_VERSION = 1
_BLOCK = 16_384
"""Number of vectors that are converted to float32 and compared at once."""
_PROBES = ("A man is eating food.", "The train to Vienna leaves at nine.", "Prices rose in the last quarter.")
_SAME_MODEL = 0.92
"""Cosine similarity of the probes' embeddings from which two models count as the same, in different precisions."""
_PIPELINE = instance("a pipeline for sentence-similarity", SentenceSimilarityPipeline)


class EmbeddingIndex:
    """Texts with their embeddings, to be searched by meaning.

        index = kf.EmbeddingIndex.build(pipe, texts, precision="int8")
        index.save("corpus.npz")
        index = kf.EmbeddingIndex.load("corpus.npz", pipe)
        index.search("Who wrote this?", top_k=5)

    Queries are compared with all vectors, in float32. With int8 vectors, a score is that of the float32 query with the
    values that the codes stand for. With binary vectors, the signs of query and vectors select candidates, whose scores
    are then computed with the int8 vectors of the index or, without them, with the signs.

    An index can be searched only with the model that it was built with, in any precision and on any engine: it contains
    the embeddings of three sentences, with which those of the pipeline are compared.

    Attributes:
        texts: The texts; a position in this list is the `corpus_id` of results.
        precision: `"float32"`, `"int8"` or `"binary"`.
    """

    def __init__(self, pipe: SentenceSimilarityPipeline, texts: Sequence[str], arrays: dict[str, np.ndarray]) -> None:
        self.texts, self._pipe, self._arrays = list(texts), pipe, arrays
        self.precision: Precision = "binary" if "bits" in arrays else "int8" if "codes" in arrays else "float32"
        self._dim = int(arrays["dim"])

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"EmbeddingIndex({len(self)} texts, {self._dim} entries, {self.precision})"

    @classmethod
    def build(
        cls,
        pipe: SentenceSimilarityPipeline,
        texts: object,
        *,
        precision: Precision = "float32",
        rescore: bool = True,
        truncate_dim: int | None = None,
        **options: Any,
    ) -> Self:
        """Computes the embeddings of texts.

        Args:
            pipe: Pipeline for sentence-similarity.
            texts: A list or another iterable of texts, at least one.
            precision: `"float32"`, 4 bytes for each entry; `"int8"`, one byte; or `"binary"`, one bit.
            rescore: Whether a binary index also contains int8 vectors, with which candidates are scored.
            truncate_dim: Number of first entries of each embedding to keep, as for `encode`.
            options: Further arguments of `encode_document`, such as `prompt_name`, `batch_size` and `progress`.

        Raises:
            InputError: no texts, or an argument is invalid.
        """
        pipe = check("pipe", pipe, _PIPELINE)
        kind, again = check("precision", precision, one_of(*PRECISIONS)), check("rescore", rescore, BOOLEAN)
        items = list(read_inputs([texts] if isinstance(texts, str) else texts, read_text).items)
        if not items:
            raise InputError("An index needs at least one text. Received: none")
        vectors = pipe.encode_document(items, truncate_dim=truncate_dim, **options)
        arrays: dict[str, np.ndarray] = {"dim": np.array(vectors.shape[1]), "probes": pipe.encode(_PROBES, prompt="")}
        if kind == "float32":
            arrays["vectors"] = vectors
        if kind == "binary":
            arrays["bits"] = quantized(vectors, "binary")
        if kind == "int8" or (kind == "binary" and again):
            arrays["ranges"] = value_ranges(vectors)
            arrays["codes"] = quantized(vectors, "int8", arrays["ranges"])
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
        encoded = [text.encode() for text in self.texts]
        description = {"format_version": _VERSION, "model": self._pipe.info.name, "count": len(self)}
        arrays = {
            **self._arrays,
            "description": np.array(json.dumps(description)),
            "text_bytes": np.frombuffer(b"".join(encoded), "uint8"),
            "text_sizes": np.array([len(text) for text in encoded], "int64"),
        }
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str], pipe: SentenceSimilarityPipeline) -> Self:
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
            texts = _texts(arrays.pop("text_bytes"), arrays.pop("text_sizes"))
            version, name = description["format_version"], str(description["model"])
            probes = arrays["probes"]
            _check_arrays(arrays, len(texts))
        except (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise SourceError(
                f"{source} is not a readable index. Expected: a file of EmbeddingIndex.save. Received: {error!r}"
            ) from error
        if version != _VERSION:
            raise SourceError(
                f"{source} was written by another version of kerasformer. Expected: format version {_VERSION}. "
                f"Received: {version}. Build the index again"
            )
        _check_model(pipe, probes, name)
        return cls(pipe, texts, arrays)

    def search(self, queries: Any, top_k: int = 10, *, oversampling: int = 4, **options: Any) -> Any:
        """Finds the texts that are most similar to queries.

        Args:
            queries: A text, a list of texts, or float32 embeddings `(N, D)` or `(D,)` of the size of the index.
            top_k: Number of texts to return for each query.
            oversampling: Number of candidates that the signs of binary vectors select, as a multiple of `top_k`.
            options: Further arguments of `encode_query`, such as `prompt_name` and `batch_size`.

        Returns:
            For a query, a list of `{"corpus_id", "score", "text"}`, the most similar text first; for several queries, a
            list of such lists. A score is the similarity of the model (`pipe.embedding.similarity`).

        Raises:
            InputError: an argument is invalid, or embeddings have another size.
        """
        count = min(check("top_k", top_k, integer(1)), len(self))
        factor = check("oversampling", oversampling, integer(1))
        is_numeric = isinstance(queries, np.ndarray) and queries.dtype.kind == "f"
        vectors = queries if is_numeric else self._pipe.encode_query(queries, truncate_dim=self._dim, **options)
        if vectors.ndim not in (1, 2) or vectors.shape[-1] != self._dim or vectors.dtype.kind != "f":
            raise InputError(
                f"Queries must be texts, or float32 embeddings with {self._dim} entries. "
                f"Received: shape {vectors.shape}, dtype {vectors.dtype}"
            )
        hits = [self._hits(query, count, factor) for query in np.atleast_2d(vectors)]
        return hits[0] if vectors.ndim == 1 else hits

    def _hits(self, query: np.ndarray, count: int, oversampling: int) -> list[Hit]:
        if self.precision == "binary":
            rows = self._nearest_signs(query, min(len(self), count * oversampling))
            scores = self._scores(query, self._decoded(rows))
        else:
            rows, scores = np.arange(len(self)), np.empty(len(self), "float32")
            for part in _blocks(len(self)):
                scores[part] = self._scores(query, self._decoded(part))
        best = np.lexsort((rows, -scores))[:count]
        return [{"corpus_id": int(rows[i]), "score": float(scores[i]), "text": self.texts[rows[i]]} for i in best]

    def _scores(self, query: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return similarity(query[None], vectors, self._pipe.embedding.similarity)[0]

    def _decoded(self, rows: np.ndarray | slice) -> np.ndarray:
        """Returns vectors of the index in float32."""
        if "vectors" in self._arrays:
            return self._arrays["vectors"][rows]
        if "codes" in self._arrays:
            return dequantized(self._arrays["codes"][rows], self._arrays["ranges"])
        bits = np.unpackbits((self._arrays["bits"][rows].astype("int16") + 128).astype("uint8"), axis=-1)
        return unit(2.0 * bits[:, : self._dim].astype("float32") - 1.0)

    def _nearest_signs(self, query: np.ndarray, count: int) -> np.ndarray:
        """Returns the rows whose signs differ least from those of the query, in ascending order."""
        signs, distances = quantized(query[None], "binary"), np.empty(len(self), "int32")
        for part in _blocks(len(self)):
            different = np.bitwise_xor(self._arrays["bits"][part], signs).view("uint8")
            distances[part] = np.bitwise_count(different).sum(axis=1, dtype="int32")
        return np.sort(np.argsort(distances, kind="stable")[:count])


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))


def _texts(content: np.ndarray, sizes: np.ndarray) -> list[str]:
    """Returns the texts of a file from their bytes and their numbers of bytes."""
    ends = np.cumsum(sizes)
    whole = content.tobytes()
    if len(whole) != (ends[-1] if len(ends) else 0) or (sizes < 0).any():
        raise ValueError("the sizes of the texts do not match their bytes")
    return [whole[end - size : end].decode() for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


def _check_arrays(arrays: dict[str, np.ndarray], count: int) -> None:
    """Raises `ValueError` for arrays that are missing or have wrong shapes."""
    dim = int(arrays["dim"])
    shapes = {"vectors": (count, dim), "codes": (count, dim), "ranges": (2, dim), "bits": (count, -(-dim // 8))}
    for name, shape in shapes.items():
        if name in arrays and arrays[name].shape != shape:
            raise ValueError(f"{name} must have shape {shape}")
    if not {"vectors", "codes", "bits"} & set(arrays) or ("codes" in arrays) != ("ranges" in arrays):
        raise ValueError("the vectors are missing")


def _check_model(pipe: SentenceSimilarityPipeline, probes: np.ndarray, name: str) -> None:
    """Raises `InputError` unless the pipeline computes the recorded embeddings."""
    received = pipe.encode(_PROBES, prompt="")
    same_size = probes.ndim == 2 and probes.shape == received.shape
    lowest = float((unit(probes) * unit(received)).sum(axis=1).min()) if same_size else None
    if lowest is None or not lowest >= _SAME_MODEL:
        difference = f"embeddings of {probes.shape[-1]} entries" if lowest is None else f"a similarity of {lowest:.3f}"
        raise InputError(
            f"This index was built with another model, {name}. Expected: a pipeline of that model, whose embeddings of "
            f"the index's test sentences have a cosine similarity of at least {_SAME_MODEL:g}. Received: "
            f"{pipe.info.name} with {pipe.embedding.dimension} entries, and {difference}. Build the index again"
        )

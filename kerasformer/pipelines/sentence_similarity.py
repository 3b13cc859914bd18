"""Embeddings of texts and their similarity."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, Arguments, check, integer, one_of, optional
from kerasformer.bundle import PROMPT_MASK, SENTENCE_EMBEDDING, EmbeddingInfo
from kerasformer.errors import InputError
from kerasformer.pipelines.base import LengthOptions
from kerasformer.pipelines.chunks import combined_rows, rows_of
from kerasformer.pipelines.inputs import progress_bar, read_inputs, read_text
from kerasformer.pipelines.prompted import RetrievalPipeline
from kerasformer.pipelines.vectors import PRECISIONS, Precision, quantized, similarity, unit


class SentenceSimilarityPipeline(RetrievalPipeline):
    """Computes embeddings of texts, one vector each, and their similarities.

    Pooling, projections and normalization are part of the model, and of every exported file.
    """

    _batch_size, _page = 32, 32

    @property
    def embedding(self) -> EmbeddingInfo:
        """Properties of the embeddings: dimension, similarity, prompts."""
        if self.info.embedding is None:
            raise InputError(f"A model for embeddings of texts was expected. Received: {self.info.name}")
        return self.info.embedding

    def encode(
        self,
        texts: object,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        normalize: bool | None = None,
        batch_size: int = 32,
        precision: Precision = "float32",
        ranges: np.ndarray | None = None,
        truncation: bool = False,
        chunk_length: int | None = None,
        stride: int | None = None,
        progress: bool = False,
    ) -> np.ndarray:
        """Computes the embeddings of texts.

        Texts of similar length are processed together, so that batches need little padding; results are in the order of
        the texts.

        Args:
            texts: A text, or a list or another iterable of texts.
            prompt_name: Name of the prompt of the model to put before each text; its default prompt, if there is one,
                if neither `prompt_name` nor `prompt` is passed. Some models leave its tokens out of the pooling, with
                the special tokens before them.
            prompt: Text to put before each text; `""` for none.
            truncate_dim: Number of first entries to keep, for models trained for it (Matryoshka representation
                learning, arXiv:2205.13147); all by default, unless the model has another default.
            normalize: Whether to scale each embedding to length 1, after truncation; by default if the model does.
            batch_size: Number of texts, or chunks of long texts, in one call of the model.
            precision: `"float32"`; `"int8"`, with `ranges` mapped to 256 values for each entry; or `"binary"`, the
                signs of eight entries in a byte. See `vectors.quantized`.
            ranges: Smallest and largest value of each entry, `(2, D)`, for `"int8"`; those of these texts by default.
            truncation: Whether to truncate a text that exceeds the model's maximum length, with a warning. Otherwise it
                is split into chunks, and its embedding is the mean of theirs, weighted by their numbers of tokens.
            chunk_length: Length of a chunk in tokens, including special tokens; the model's maximum length by default.
            stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk by default.
            progress: Whether to show a progress bar on standard error.

        Returns:
            `(D,)` for a text and `(N, D)` for several: float32 or int8; `(N, ceil(D / 8))` int8 for `"binary"`.

        Raises:
            InputError: an input is not a text; an unknown prompt, precision or dimension; or int8 for a single text
                without ranges.
        """
        checked, size = read_inputs(texts, read_text), self.embedding.dimension
        before = self._prompt(prompt_name, prompt)
        dim = check("truncate_dim", truncate_dim, optional(integer(1, size))) or self.embedding.truncate_dim or size
        chosen = check("normalize", normalize, optional(BOOLEAN))
        kind = check("precision", precision, one_of(*PRECISIONS))
        if ranges is not None and kind != "int8":
            raise InputError(f"ranges are only for int8. Received: ranges with precision={kind!r}")
        vectors = self._vectors(
            before,
            checked.items,
            LengthOptions(truncation, chunk_length, stride),
            check("batch_size", batch_size, integer(1)),
            check("progress", progress, BOOLEAN),
        )[:, :dim]
        if self.embedding.normalized if chosen is None else chosen:
            vectors = unit(vectors)
        result = quantized(np.ascontiguousarray(vectors), kind, ranges)
        return result[0] if checked.form == "one" else result

    def similarity(self, some: object, others: object) -> np.ndarray:
        """Returns the similarities `(N, M)` of texts or embeddings, by the similarity of the model.

        Args:
            some: A text, a list of texts, or embeddings `(N, D)` or `(D,)`.
            others: The same.

        Raises:
            InputError: embeddings of different sizes, or neither texts nor embeddings.
        """
        first, second = self._as_vectors(some), self._as_vectors(others)
        if first.shape[1] != second.shape[1]:
            raise InputError(
                "Embeddings must have the same size to be compared. "
                f"Received: {first.shape[1]} and {second.shape[1]} entries"
            )
        return similarity(first, second, self.embedding.similarity)

    def _check_lazy(self, options: Arguments) -> None:
        if options.get("precision") == "int8" and options.get("ranges") is None:
            raise InputError(
                "int8 embeddings of an iterator need ranges=…, since the ranges of all embeddings "
                "are unknown before the last text. Received: no ranges. Pass them, or a list of texts"
            )

    def _as_vectors(self, value: object) -> np.ndarray:
        """Returns embeddings `(N, D)` of texts, or the given ones."""
        array = value if isinstance(value, np.ndarray) else None
        if isinstance(value, list | tuple) and value and not isinstance(value[0], str):
            array = np.asarray(value)
        if array is None or array.dtype.kind not in "fiu":
            return np.atleast_2d(self.encode(value))
        if array.ndim not in (1, 2):
            raise InputError(f"Embeddings must be (N, D) or (D,). Received: shape {array.shape}")
        return np.atleast_2d(array)

    def _unpooled(self, prompt: str) -> int:
        """Returns the number of first tokens of a text after a prompt that are not pooled; 0 for most models."""
        if not prompt or PROMPT_MASK not in self.info.input_names:
            return 0
        ids = self.tokenizer.encode(prompt)
        ends = bool(ids) and ids[-1] in self.tokenizer.all_special_ids  # such a token follows the text instead
        return len(ids) - ends

    def _vectors(
        self, prompt: str, items: Iterable[str], options: LengthOptions, batch_size: int, progress: bool
    ) -> np.ndarray:
        """Returns the embeddings of texts after a prompt, float32 `(N, D)`, in whole."""
        texts, unpooled = [prompt + text for text in items], self._unpooled(prompt)
        vectors = np.zeros((len(texts), self.embedding.dimension), "float32")
        order = np.argsort([-len(text) for text in texts], kind="stable")
        with progress_bar(self.task, len(texts), progress) as advance:
            for start in range(0, len(texts), self._page * batch_size):
                rows = order[start : start + self._page * batch_size]
                encoded = self._encode([texts[row] for row in rows], options)
                pooled = encoded.positions >= unpooled  # also in chunks; padding has the position -1
                masks = {PROMPT_MASK: (encoded.attention_mask * ~pooled).astype("int32")} if unpooled else {}
                if unpooled and not pooled.any(axis=1).all():
                    raise InputError(
                        "The model does not pool the tokens of a prompt. Expected: further tokens in each text, and in "
                        f"each chunk of a long one. Received: a text or chunk of {prompt!r:.200} alone"
                    )
                outputs = self._run(encoded, batch_size, by_length=True, further=masks)
                # A chunk that consists of the prompt alone has almost no weight.
                weights = np.maximum(((encoded.sequence_ids == 0) & pooled).sum(axis=1), 1e-6)
                vectors[rows] = combined_rows(outputs[SENTENCE_EMBEDDING], rows_of(encoded), weights, "mean")
                advance(len(rows))
        return vectors

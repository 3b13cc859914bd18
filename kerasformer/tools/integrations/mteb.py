"""Models of the Massive Text Embedding Benchmark: embeddings, and rankings of documents, on a bundle or a checkpoint.

The models compute in NumPy, and truncate long texts, as those of sentence-transformers do; `mteb.evaluate` itself
imports PyTorch for its batches and measures.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import numpy as np

from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.pipelines import pipeline, similarity

require("mteb", "mteb")

from mteb.models import ModelMeta  # noqa: E402
from mteb.models.abs_encoder import get_prompt_name  # noqa: E402

Batches = Iterable[dict[str, list[str]]]
"""Batches of inputs of the benchmark; `"text"` has the texts."""


class _Model:
    """What both kinds of models have in common.

    Args:
        source: Bundle, checkpoint, preset, hub id, or a pipeline.
        revision: Name of a version of the model, for the results.
        device: Ignored; the benchmark passes it to every model. The engine decides.
        options: Options of the runtime of a bundle, such as `num_threads`.
    """

    task, kind = "", ""

    def __init__(self, source: Any, revision: str | None = None, *, device: str | None = None, **options: Any) -> None:
        self.pipe = source if hasattr(source, "engine") else pipeline(source, self.task, **options)
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": f"kerasformer/{self.pipe.info.name}".replace(" ", "-"),
                "revision": revision or "none",
                "model_type": [self.kind],
                "max_tokens": self.pipe.info.max_length,
                "embed_dim": self.pipe.info.embedding.dimension if self.pipe.info.embedding else None,
            }
        )


class KerasformerEncoder(_Model):
    """Embeddings of texts. Prompts are those of the model, by task, type of task, or `query` and `document`.

    Raises:
        InputError: the model computes no embeddings.
        MissingExtraError: mteb is not installed.
    """

    task, kind = "sentence-similarity", "dense"

    def encode(
        self, inputs: Batches, *, task_metadata: Any, prompt_type: Any = None, batch_size: int = 32, **_: Any
    ) -> np.ndarray:
        """Returns the embeddings of texts, `(N, D)` float32."""
        texts = [text for batch in inputs for text in batch["text"]]
        name = get_prompt_name(self.pipe.embedding.prompts, task_metadata, prompt_type)
        options = {"batch_size": batch_size, "truncation": True}
        if name is None and prompt_type is not None:
            encode = self.pipe.encode_query if prompt_type.value == "query" else self.pipe.encode_document
            return np.asarray(encode(texts, **options))
        return np.asarray(self.pipe.encode(texts, prompt_name=name, **options))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Returns the similarities of all pairs, `(N, M)`, by the similarity of the model."""
        first, second = (np.atleast_2d(np.asarray(each)) for each in (embeddings1, embeddings2))
        return similarity(first, second, self.pipe.embedding.similarity)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Returns the similarities of each embedding with the one at the same place, `(N,)`."""
        pairs = zip(*(np.atleast_2d(np.asarray(each)) for each in (embeddings1, embeddings2)), strict=True)
        return np.array([self.similarity(*pair)[0, 0] for pair in pairs])


class KerasformerCrossEncoder(_Model):
    """Relevance of documents, by a classifier of pairs of texts.

    Raises:
        InputError: the model does not rank.
        MissingExtraError: mteb is not installed.
    """

    task, kind = "text-ranking", "cross-encoder"

    def predict(self, inputs1: Batches, inputs2: Batches, *, batch_size: int = 32, **_: Any) -> np.ndarray:
        """Returns the relevance of each second text to the first one at the same place, `(N,)`."""
        queries, documents = ([text for batch in each for text in batch["text"]] for each in (inputs1, inputs2))
        if len(queries) != len(documents):
            raise InputError(f"Each query needs a document. Expected: {len(queries)}. Received: {len(documents)}")
        scores, start = np.zeros(len(queries)), 0
        for query, group in groupby(queries):
            part = documents[start : start + len(list(group))]
            for row in self.pipe.rank(query, part, batch_size=batch_size, truncation=True):
                scores[start + row["corpus_id"]] = row["score"]
            start += len(part)
        return scores

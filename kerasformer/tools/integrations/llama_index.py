"""Embeddings of LlamaIndex on a bundle or a checkpoint, without a server."""

from __future__ import annotations

from typing import Any

from kerasformer.extras import require
from kerasformer.pipelines import pipeline

require("llama_index.core", "llama-index")

from llama_index.core.base.embeddings.base import BaseEmbedding  # noqa: E402
from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402


class KerasformerEmbedding(BaseEmbedding):
    """Embeddings of texts, with the prompts of the model for queries and documents.

    Args:
        source: Bundle, checkpoint, preset, hub id, or a pipeline for sentence-similarity.
        arguments: Fields of the class of LlamaIndex, such as `embed_batch_size`; others are options of the runtime of a
            bundle, such as `num_threads`.
    Raises:
        InputError: the model computes no embeddings.
        MissingExtraError: llama-index-core is not installed.
    """

    _pipe: Any = PrivateAttr()

    def __init__(self, source: Any, **arguments: Any) -> None:
        fields = {name: arguments.pop(name) for name in [*arguments] if name in type(self).model_fields}
        pipe = source if hasattr(source, "engine") else pipeline(source, "sentence-similarity", **arguments)
        super().__init__(**{"model_name": pipe.info.name, **fields})
        self._pipe = pipe

    @classmethod
    def class_name(cls) -> str:
        """Returns the name of the class."""
        return "KerasformerEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        vector: list[float] = self._pipe.encode_query(query).tolist()
        return vector

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._pipe.encode_document(texts, batch_size=self.embed_batch_size).tolist()
        return vectors

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

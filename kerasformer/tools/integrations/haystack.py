"""Components of Haystack on a bundle or a checkpoint: embeddings of queries and of documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kerasformer.extras import require
from kerasformer.pipelines import pipeline

require("haystack", "haystack")

from haystack import Document, component, default_from_dict, default_to_dict  # noqa: E402


class _Embedder:
    """What both components have in common.

    Args:
        source: Bundle, checkpoint, preset or hub id; opened by the first run or `warm_up`.
        batch_size: Number of texts in one call of the model.
        options: Options of the runtime of a bundle, such as `num_threads`.
    """

    def __init__(self, source: str, batch_size: int = 32, options: dict[str, Any] | None = None) -> None:
        self.source, self.batch_size, self.options = str(source), batch_size, options or {}
        self._pipe: Any = None

    def warm_up(self) -> None:
        """Opens the model.

        Raises:
            InputError: the model computes no embeddings.
        """
        if self._pipe is None:
            self._pipe = pipeline(self.source, "sentence-similarity", **self.options)

    def to_dict(self) -> dict[str, Any]:
        """Returns the component as plain values, for a file of a pipeline."""
        values: dict[str, Any] = default_to_dict(
            self, source=self.source, batch_size=self.batch_size, options=self.options
        )
        return values

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """Returns the component of `to_dict`."""
        return default_from_dict(cls, data)


@component
class KerasformerTextEmbedder(_Embedder):
    """Embeds a query, with the prompt of the model for queries."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """Returns the embedding of a text."""
        self.warm_up()
        return {"embedding": self._pipe.encode_query(text).tolist()}


@component
class KerasformerDocumentEmbedder(_Embedder):
    """Embeds documents, with the prompt of the model for documents."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Returns copies of documents with their embeddings."""
        self.warm_up()
        texts = [document.content or "" for document in documents]
        vectors = self._pipe.encode_document(texts, batch_size=self.batch_size).tolist() if texts else []
        pairs = zip(documents, vectors, strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in pairs]}

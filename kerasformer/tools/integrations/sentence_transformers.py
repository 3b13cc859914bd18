"""A bundle or a checkpoint in the place of a `SentenceTransformer`, for evaluators and utilities of that library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from kerasformer.extras import require
from kerasformer.pipelines import pipeline

torch = require("torch", "sentence-transformers")
_similarities = require("sentence_transformers.util.similarity", "sentence-transformers").SimilarityFunction

_SAME_OPTIONS = ("prompt_name", "prompt", "batch_size", "truncate_dim")
"""Options of `SentenceTransformer.encode` that a pipeline has under the same name."""


class KerasformerSentenceTransformer:
    """Embeddings of texts with the methods of `sentence_transformers.SentenceTransformer` that compute.

    The model itself needs no PyTorch; tensors are made where the library asks for them.

    Args:
        source: Bundle, checkpoint, preset, hub id, or a pipeline for sentence-similarity.
        options: Options of the runtime of a bundle, such as `num_threads`.
    Raises:
        InputError: the model computes no embeddings.
        MissingExtraError: sentence-transformers is not installed.
    """

    def __init__(self, source: Any, **options: Any) -> None:
        self.pipe = source if hasattr(source, "engine") else pipeline(source, "sentence-similarity", **options)
        self.prompts = dict(self.pipe.embedding.prompts)
        self.similarity_fn_name = self.pipe.embedding.similarity
        self.similarity = _similarities.to_similarity_fn(self.similarity_fn_name)
        self.similarity_pairwise = _similarities.to_similarity_pairwise_fn(self.similarity_fn_name)
        # Evaluators store their figures for the card that training writes.
        self.model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_: None)

    def get_embedding_dimension(self) -> int:
        """Returns the number of entries of an embedding."""
        return int(self.pipe.embedding.truncate_dim or self.pipe.embedding.dimension)

    def encode(self, sentences: Any, **options: Any) -> Any:
        """Returns embeddings, `(D,)` for a text and `(N, D)` for several, as `SentenceTransformer.encode`."""
        return self._encoded(self.pipe.encode, sentences, **options)

    def encode_query(self, sentences: Any, **options: Any) -> Any:
        """Returns embeddings of queries, with the prompt of the model for them."""
        return self._encoded(self.pipe.encode_query, sentences, **options)

    def encode_document(self, sentences: Any, **options: Any) -> Any:
        """Returns embeddings of documents, with the prompt of the model for them."""
        return self._encoded(self.pipe.encode_document, sentences, **options)

    @staticmethod
    def _encoded(encode: Any, sentences: Any, **options: Any) -> Any:
        vectors = encode(
            sentences,
            **{name: options[name] for name in _SAME_OPTIONS if name in options},
            progress=bool(options.get("show_progress_bar")),
            precision=options.get("precision") or "float32",
            normalize=True if options.get("normalize_embeddings") else None,
            truncation=True,
        )
        return torch.from_numpy(np.ascontiguousarray(vectors)) if options.get("convert_to_tensor") else vectors

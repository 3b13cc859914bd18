"""A bundle or a checkpoint as a `SentenceTransformer`, also for other libraries that take one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.pipelines import pipeline

torch = require("torch", "sentence-transformers")
_library = require("sentence_transformers", "sentence-transformers")
_modules = require("sentence_transformers.base.modules", "sentence-transformers")


class KerasformerModule(_modules.InputModule):  # type: ignore[misc, name-defined]
    """Computes the embeddings of texts, as the only module of a `SentenceTransformer`.

    `modules.json` of a bundle with embeddings names it, for `SentenceTransformer(folder, trust_remote_code=True)`: that
    library imports classes of other packages only with this argument. No code of the folder is run.

    Args:
        source: Bundle, checkpoint, preset, hub id, or a pipeline for sentence-similarity.
        options: Options of the runtime of a bundle, such as `num_threads`.

    Raises:
        InputError: the model computes no embeddings.
    """

    def __init__(self, source: Any, **options: Any) -> None:
        super().__init__()
        self.pipe = source if hasattr(source, "engine") else pipeline(source, "sentence-similarity", **options)
        self.tokenizer = self.pipe.tokenizer
        self.max_seq_length = self.pipe.info.max_length

    @classmethod
    def load(cls, model_name_or_path: str, **options: Any) -> Self:
        """Opens a bundle, in the folder or on a hub."""
        return cls(model_name_or_path, **(options.get("model_kwargs") or {}))

    def save(self, output_path: str, *args: Any, **options: Any) -> None:
        """Raises an error: a bundle is copied as a folder."""
        raise InputError(f"A bundle cannot be saved by sentence-transformers. Copy its folder. Received: {output_path}")

    def get_embedding_dimension(self) -> int:
        """Returns the number of entries of an embedding."""
        return int(self.pipe.embedding.truncate_dim or self.pipe.embedding.dimension)

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **options: Any) -> dict[str, Any]:
        """Returns the texts, whose tokens the pipeline makes."""
        return {"texts": list(inputs), "prompt": prompt or ""}

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Adds `sentence_embedding`, `(N, D)`."""
        texts, prompt = features["texts"], features["prompt"]
        vectors = self.pipe.encode(texts, prompt=prompt, batch_size=len(texts), truncation=True)
        return {**features, "sentence_embedding": torch.from_numpy(np.ascontiguousarray(vectors))}


class KerasformerSentenceTransformer(_library.SentenceTransformer):  # type: ignore[misc, name-defined]
    """A `SentenceTransformer` whose embeddings a bundle computes, with the prompts and the similarity of its model.

    Args:
        source: As for `KerasformerModule`.
        options: Likewise.

    Raises:
        InputError: the model computes no embeddings.
        MissingExtraError: sentence-transformers is not installed.
    """

    def __init__(self, source: Any, **options: Any) -> None:
        module = KerasformerModule(source, **options)
        embedding = module.pipe.embedding
        super().__init__(
            modules=[module],
            device="cpu",
            prompts=dict(embedding.prompts),
            default_prompt_name=embedding.default_prompt,
            similarity_fn_name=embedding.similarity,
        )

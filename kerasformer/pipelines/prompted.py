"""Base of pipelines that compute vectors of texts for retrieval: prompts of queries and documents, and ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, Arguments, check, integer, mapping, number, one_of, optional
from kerasformer.errors import InputError
from kerasformer.files.reading import JsonObject
from kerasformer.pipelines.base import Pipeline
from kerasformer.pipelines.inputs import map_inputs, read_inputs, read_text

QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")
"""Names of the prompts of queries and documents, as in sentence-transformers."""

DENSE, SPARSE, MULTI_VECTOR = KINDS = ("dense", "sparse", "multi_vector")
"""Kinds of vectors: of a text, of weights of its tokens, and of each of its tokens."""


class _Prompts(Protocol):
    """What the properties of all kinds of vectors have."""

    @property
    def prompts(self) -> dict[str, str]:
        """Texts put before an input, by name."""

    @property
    def default_prompt(self) -> str | None:
        """Name of the prompt that is used if none is requested."""


class RetrievalPipeline(Pipeline):
    """Base of pipelines that compute vectors of texts and score documents by them.

    Attributes:
        _of_scores: Names of the arguments of `similarity` that `rank` takes, too.
        _batch_size: Default number of texts, or of chunks of long texts, in one call of the model.
        _page: Number of batches that are tokenized together.
    """

    _of_scores: ClassVar[tuple[str, ...]] = ()
    _batch_size: ClassVar[int] = 16
    _page: ClassVar[int] = 1

    def __call__(self, inputs: object, *, batch_size: int | None = None, progress: bool = False, **options: Any) -> Any:
        """Computes the vectors of texts; where they are of another kind for queries, those of documents.

        Args:
            inputs: A text, a list or an array of texts, or another iterable, which is read lazily.
            batch_size: Number of texts, or chunks of long texts, in one call of the model; that of `encode` by default.
            progress: Whether to show a progress bar on standard error.
            options: Further arguments of `encode`.

        Returns:
            As `encode`; for an iterable without a length, an iterator of the vectors of single texts.
        """
        checked, size = read_inputs(inputs, read_text), self._batch_size if batch_size is None else batch_size
        if checked.form != "iterator":
            return self.encode(inputs, batch_size=size, progress=progress, **options)
        self._check_lazy(options)

        def answer(part: Sequence[str]) -> list[Any]:
            return list(self.encode(list(part), batch_size=size, **options))

        together = self._page * int(check("batch_size", size, integer(1)))
        return map_inputs(checked, answer, batch_size=together, progress=progress, label=self.task)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of vectors of a text."""
        return (DENSE,)

    @property
    def embedding(self) -> _Prompts:
        """Properties of the vectors."""
        raise NotImplementedError

    def _check_lazy(self, options: Arguments) -> None:
        """Checks the arguments of `encode` for an iterable that is read lazily."""

    def encode(self, texts: object, *args: Any, **kwargs: Any) -> Any:
        """Computes the vectors of texts."""
        raise NotImplementedError

    def similarity(self, some: object, others: object, *args: Any, **kwargs: Any) -> np.ndarray:
        """Returns the similarities `(N, M)` of texts or vectors."""
        raise NotImplementedError

    def encode_query(self, texts: object, **options: Any) -> Any:
        """Computes vectors of queries: as `encode`, with the prompt `query` of the model if it has one."""
        return self.encode(texts, **self._with_prompt(options, QUERY))

    def encode_document(self, texts: object, **options: Any) -> Any:
        """Computes vectors of documents: as `encode`, with the prompt `document`, `passage` or `corpus`."""
        return self.encode(texts, **self._with_prompt(options, DOCUMENT))

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_k: int | None = None,
        return_documents: bool = False,
        **options: Any,
    ) -> list[JsonObject]:
        """Ranks documents by their similarity to a query; for many documents, use an `EmbeddingIndex`.

        Args:
            query: A text.
            documents: Texts.
            top_k: Number of documents to return; `None` for all.
            return_documents: Whether to include the text of each document.
            options: Further arguments of `encode_query` and `encode_document`, except for prompts, and of `similarity`.

        Returns:
            A list of `{"corpus_id", "score"}` and, on request, `"text"`, the most similar document first.
        """
        texts = list(read_inputs([documents] if isinstance(documents, str) else documents, read_text).items)
        count, with_text = (
            check("top_k", top_k, optional(integer(1))),
            check("return_documents", return_documents, BOOLEAN),
        )
        scored = {name: options.pop(name) for name in self._of_scores if name in options}
        vectors = self.encode_document(texts, **options)
        scores = self.similarity(self.encode_query(read_text(query, "query"), **options), vectors, **scored)[0]
        best = np.argsort(-scores, kind="stable")[:count]
        return [
            {"corpus_id": int(i), "score": float(scores[i])} | ({"text": texts[i]} if with_text else {}) for i in best
        ]

    def score_weights(self, weights: object) -> dict[str, float]:
        """Returns the weights of the scores of the kinds that count, from those of a caller; all the same for `None`.

        Raises:
            InputError: weights of other kinds, negative, or 0 for all.
        """
        chosen = dict.fromkeys(self.kinds, 1.0)
        if weights is not None:
            known = check("weights", weights, mapping(one_of(*KINDS), number(0)))
            chosen = {kind: float(weight) for kind, weight in known.items() if weight > 0}
        if not chosen or set(chosen) - set(self.kinds):
            raise InputError(
                f"weights must have at least one positive weight, of the kinds {', '.join(self.kinds)}. "
                f"Received: {weights!r}"
            )
        return chosen

    def _prompt(self, name: Any, prompt: object) -> str:
        """Returns the text to put before inputs."""
        prompts = self.embedding.prompts
        if name is not None and prompt is not None:
            raise InputError("Only one of prompt_name and prompt can be set. Received: both")
        if prompt is not None:
            return str(check("prompt", prompt, STRING))
        if name is None:
            return prompts[self.embedding.default_prompt] if self.embedding.default_prompt else ""
        if check("prompt_name", name, STRING) not in prompts:
            known = ", ".join(map(repr, prompts)) or "none; pass prompt= with the text"
            raise InputError(f"The model has no prompt of this name. Expected: {known}. Received: {name!r}")
        return prompts[name]

    def _with_prompt(self, options: Arguments, names: Sequence[str]) -> Arguments:
        """Adds the first of several prompts that the model has; no prompt if it has none."""
        if options.get("prompt") is not None or options.get("prompt_name") is not None:
            return options
        prompts = [self.embedding.prompts[name] for name in names if name in self.embedding.prompts]
        return {**options, "prompt_name": None, "prompt": next(iter(prompts), "")}

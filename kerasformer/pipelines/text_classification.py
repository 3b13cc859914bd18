"""Text classification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, check, integer, optional
from kerasformer.bundle import PROBABILITIES
from kerasformer.errors import InputError
from kerasformer.files.reading import JsonObject
from kerasformer.pipelines.answers import Label
from kerasformer.pipelines.base import LengthOptions, sigmoid, softmax
from kerasformer.pipelines.chunks import COMBINE, Combine, combined
from kerasformer.pipelines.inputs import Pair, is_pair, map_inputs, progress_bar, read_inputs, read_pair, read_text
from kerasformer.pipelines.pairs import PairPipeline

_PAGE = 32
"""Number of batches that are tokenized together."""


class TextClassificationPipeline(PairPipeline):
    """Classifies texts, `[{"label": …, "score": …}]`, and ranks documents for a query."""

    def __call__(
        self,
        inputs: object,
        *,
        pair: str | Sequence[str] | None = None,
        top_k: int | None = 1,
        batch_size: int = 8,
        truncation: bool = False,
        chunk_length: int | None = None,
        stride: int | None = None,
        combine: Combine = "mean",
        progress: bool = False,
    ) -> Any:
        """Classifies texts.

        Args:
            inputs: A text; a pair of texts, `("first", "second")` or `{"text": "first", "text_pair": "second"}`, for
                classifiers of pairs; a list or an array of either; or another iterable, which is read lazily.
            pair: Second texts, as an alternative to pairs in `inputs`.
            top_k: Number of classes to return for each text, the best first; `None` for all.
            batch_size: Number of texts, or chunks of long texts, in one call of the model.
            truncation: Whether to truncate a text that exceeds the model's maximum length, with a warning. Otherwise it
                is split into chunks, whose scores are combined. Pairs cannot be split.
            chunk_length: Length of a chunk in tokens, including special tokens; the model's maximum length by default.
            stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk by default.
            combine: Score of a class for a text of several chunks: `"mean"` of its scores for the chunks, weighted by
                their numbers of tokens, or `"max"`, the highest of them; the latter do not add up to 1.
            progress: Whether to show a progress bar on standard error.

        Returns:
            For a text, a list of its `top_k` classes. For a list of texts, a list of classes, or a list of such lists
            unless `top_k` is 1. For another iterable, an iterator.

        Raises:
            CapacityError: a pair is too long.
            InputError: the input is not a text or a pair, or the numbers of first and second texts differ.
        """
        checked = read_inputs(inputs if pair is None else _paired(inputs, pair), read_pair, is_one=is_pair)
        top_k = check("top_k", top_k, optional(integer(1)))
        alone = LengthOptions(truncation, chunk_length, stride)
        together = LengthOptions(truncation, chunk_length, stride, in_chunks=False, strategy="longest_first")
        check("combine", combine, COMBINE)

        def answer(part: Sequence[Pair]) -> list[list[Label]]:
            scores: dict[int, np.ndarray] = {}
            rows = [row for row, (_, second) in enumerate(part) if second is None]
            if rows:
                encoded = self._encode([part[row][0] for row in rows], alone)
                outputs = self._scores(self._run(encoded, batch_size))
                scores.update(zip(rows, combined(outputs, encoded, combine), strict=True))
            paired = {row: second for row, (_, second) in enumerate(part) if second is not None}
            if paired:
                pairs = self._encode_pairs([part[row][0] for row in paired], [*paired.values()], together)
                outputs = self._scores(self._run(pairs.encoded, batch_size))
                scores.update(zip(paired, pairs.combined(outputs, combine), strict=True))
            return [self._ranked(scores[row], top_k) for row in range(len(part))]

        return map_inputs(
            checked,
            answer,
            batch_size=batch_size,
            progress=progress,
            label=self.task,
            listed=lambda ranked: ranked[0] if top_k == 1 else ranked,
        )

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_k: int | None = None,
        label: str | None = None,
        prompt: str | None = None,
        return_documents: bool = False,
        batch_size: int = 32,
        truncation: bool = False,
        chunk_length: int | None = None,
        stride: int | None = None,
        combine: Combine = "max",
        progress: bool = False,
    ) -> list[JsonObject]:
        """Ranks documents by their relevance to a query, with a classifier of pairs (a cross-encoder).

        Args:
            query: A text.
            documents: Texts.
            top_k: Number of documents to return; `None` for all.
            label: Class whose score ranks the documents, for a model with several classes.
            prompt: Instruction for a reranker whose chat template has the roles `query` and `document`, such as
                Qwen3-Reranker; that of the template by default.
            return_documents: Whether to include the text of each document.
            batch_size: Number of pairs of the query and a document, or a chunk of one, in one call of the model.
            truncation: Whether to truncate a pair that exceeds the model's maximum length, the longer text first, with
                a warning. Otherwise the document is split into chunks, whose scores are combined.
            chunk_length: Length of a chunk in tokens, including the query and special tokens; the model's maximum
                length by default.
            stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk's part of the document by default.
            combine: Score of a document of several chunks: that of the best chunk (`"max"`; MaxP in Dai and Callan
                2019, arXiv:1905.09217), or `"mean"`, weighted by their numbers of document tokens.
            progress: Whether to show a progress bar on standard error.

        Returns:
            A list of `{"corpus_id", "score"}` and, on request, `"text"`, the most relevant document first. Scores are
            those of sentence-transformers: the function of the checkpoint is applied to the logits; by default the
            sigmoid for a model with one class, and none for a model with several.

        Raises:
            CapacityError: the query leaves no space for a document.
            InputError: an argument is invalid, the model has several classes and no label is passed, or its function
                for scores is not implemented.
        """
        question, column = read_text(query, "query"), self._column(label)
        texts = list(read_inputs([documents] if isinstance(documents, str) else documents, read_text).items)
        count = check("top_k", top_k, optional(integer(1)))
        with_text = check("return_documents", return_documents, BOOLEAN)
        size, options = (
            check("batch_size", batch_size, integer(1)),
            LengthOptions(truncation, chunk_length, stride, strategy="longest_first" if truncation else "only_second"),
        )
        check("combine", combine, COMBINE)
        activate, scores = self._activation(), np.zeros(len(texts), "float32")
        order = np.argsort([-len(text) for text in texts], kind="stable")
        with progress_bar(self.task, len(texts), check("progress", progress, BOOLEAN)) as advance:
            for start in range(0, len(texts), _PAGE * size):
                rows = order[start : start + _PAGE * size]
                pairs = self._encode_pairs([question] * len(rows), [texts[row] for row in rows], options, prompt)
                outputs = self._run(pairs.encoded, size, by_length=True)
                if "logits" not in outputs:
                    raise InputError(
                        f"Ranking needs the logits of a model. Received: a bundle that returns {', '.join(outputs)}"
                    )
                scores[rows] = pairs.combined(activate(outputs["logits"])[:, column], combine)
                advance(len(rows))
        best = np.argsort(-scores, kind="stable")[:count]
        return [
            {"corpus_id": int(i), "score": float(scores[i])} | ({"text": texts[i]} if with_text else {}) for i in best
        ]

    def _column(self, label: object) -> int:
        """Returns the index of the class that ranks documents."""
        labels = self.info.labels
        if label is None and len(labels) == 1:
            return 0
        if check("label", label, optional(STRING)) not in labels:
            raise InputError(
                "A model with several classes ranks by one of them. Expected: label=…, one of "
                f"{', '.join(labels)}. Received: label={label!r}"
            )
        return labels.index(label)

    def _activation(self) -> Callable[[np.ndarray], np.ndarray]:
        """Returns the function of logits `(N, C)` that computes scores."""
        name = self.info.score_activation
        if name is None:
            return sigmoid if len(self.info.labels) == 1 else _identity
        if name not in _ACTIVATIONS:
            raise InputError(
                "The checkpoint has an unsupported function for scores. "
                f"Expected: {' or '.join(_ACTIVATIONS)}. Received: {name!r}"
            )
        return _ACTIVATIONS[name]

    def _ranked(self, scores: np.ndarray, top_k: int | None) -> list[Label]:
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [{"label": self.info.labels[i], "score": float(scores[i])} for i in order]

    def _scores(self, outputs: dict[str, np.ndarray]) -> np.ndarray:
        """Returns scores `(B, C)`: softmax or sigmoid probabilities, or the outputs of a regression."""
        if PROBABILITIES in outputs:
            return outputs[PROBABILITIES]
        logits = outputs["logits"]
        if self.info.problem_type == "regression":
            return logits
        if self.info.problem_type == "multi_label_classification" or logits.shape[-1] == 1:
            return sigmoid(logits)
        return softmax(logits)


def _identity(logits: np.ndarray) -> np.ndarray:
    return logits


_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "torch.nn.modules.linear.Identity": _identity,
    "torch.nn.modules.activation.Sigmoid": sigmoid,
    "torch.nn.modules.activation.Tanh": np.tanh,
}
"""Functions for scores of cross-encoders, by their names in checkpoints."""


def _paired(inputs: object, pair: object) -> object:
    """Combines first and second texts to pairs.

    Raises:
        InputError: the numbers of first and second texts differ.
    """
    if isinstance(inputs, str) and isinstance(pair, str):
        return inputs, pair
    firsts, seconds = read_inputs(inputs, read_text), read_inputs(pair, read_text, "second text")
    if firsts.total != seconds.total or firsts.form != seconds.form or firsts.total is None:
        counts = f"{firsts.total} texts and {seconds.total} second texts"
        raise InputError(f"Each text needs a second text. Received: {counts}")
    return list(zip(firsts.items, seconds.items, strict=True))

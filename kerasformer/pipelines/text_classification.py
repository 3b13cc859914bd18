"""Classes of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.arguments import check, integer, optional
from kerasformer.bundle import PROBABILITIES
from kerasformer.errors import InputError
from kerasformer.pipelines._base import Pipeline, batches, listed, sigmoid, softmax


class TextClassification(Pipeline):
    """Scores of the classes of a text: `[{"label": …, "score": …}]`."""

    def __call__(
        self,
        inputs: str | Sequence[str],
        *,
        pair: str | Sequence[str] | None = None,
        top_k: int | None = 1,
        batch_size: int = 8,
        truncation: bool = False,
    ) -> list[Any]:
        """Classifies.

        Args:
            inputs: A text or a list.
            pair: Second texts, for models that compare two.
            top_k: So many classes of each text, the best first; `None` for all.
            batch_size: Texts that go through the model at once.
            truncation: Cuts texts that are too long, with a warning, where otherwise there is an error.

        Returns:
            For a text, a list of its `top_k` classes. For a list, one class a text, or a list each if `top_k` is not 1.

        Raises:
            CapacityError: a text is too long.
            InputError: no text, or not as many second texts as first ones.
        """
        texts, single = listed(inputs)
        pairs = None if pair is None else listed(pair, "second text")[0]
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"Each text needs a second one. Received: {len(texts)} texts and {len(pairs)} second ones")
        top_k = check("top_k", top_k, optional(integer(1)))
        results: list[list[dict[str, Any]]] = []
        for places in batches(range(len(texts)), batch_size):
            chosen = None if pairs is None else [pairs[i] for i in places]
            encoded = self._encode([texts[i] for i in places], truncation, chosen)
            results += [self._ranked(row, top_k) for row in self._scores(self._run(encoded))]
        if single:
            return results[0]
        return [ranked[0] for ranked in results] if top_k == 1 else results

    def _ranked(self, scores: np.ndarray, top_k: int | None) -> list[dict[str, Any]]:
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [{"label": self.info.labels[i], "score": float(scores[i])} for i in order]

    def _scores(self, outputs: dict[str, np.ndarray]) -> np.ndarray:
        """`(B, C)`, by the kind of problem: classes that exclude each other, or not, or a number."""
        if PROBABILITIES in outputs:
            return outputs[PROBABILITIES]
        logits = outputs["logits"]
        if self.info.problem_type == "regression":
            return logits
        if self.info.problem_type == "multi_label_classification" or logits.shape[-1] == 1:
            return sigmoid(logits)
        return softmax(logits)

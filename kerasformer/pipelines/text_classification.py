"""Classes of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.arguments import check, integer, optional
from kerasformer.bundle import PROBABILITIES
from kerasformer.errors import InputError
from kerasformer.pipelines.base import Pipeline, Reading, sigmoid, softmax
from kerasformer.pipelines.chunks import averaged
from kerasformer.pipelines.inputs import Pair, answered, is_pair, read_inputs, read_pair, read_text


class TextClassificationPipeline(Pipeline):
    """Scores of the classes of a text: `[{"label": …, "score": …}]`."""

    def __call__(
        self,
        inputs: Any,
        *,
        pair: str | Sequence[str] | None = None,
        top_k: int | None = 1,
        batch_size: int = 8,
        truncation: bool = False,
        window: int | None = None,
        stride: int | None = None,
        progress: bool = False,
    ) -> Any:
        """Classifies.

        Args:
            inputs: A text; a pair of texts for models that compare two, `("first", "second")` or `{"text": "first",
                "text_pair": "second"}`; a list or an array of either; or an iterable, read as its results are.
            pair: Second texts, instead of pairs.
            top_k: So many classes of each text, the best first; `None` for all.
            batch_size: Texts, or windows of a long text, that go through the model at once.
            truncation: Reads the beginning alone of a text that is longer than the model, with a warning. Otherwise
                it is read in windows, and its scores are their mean, each window counting as its tokens; a pair that
                is too long is an error.
            window: Tokens of a window, special tokens included; the model's length by default.
            stride: Tokens that neighbouring windows share; a quarter of a window by default.
            progress: Shows a bar on standard error.

        Returns:
            For a text, a list of its `top_k` classes. For a list, one class a text, or a list each if `top_k` is not
            1. For an iterable, an iterator.

        Raises:
            CapacityError: a pair is too long.
            InputError: no text, or not as many second texts as first ones.
        """
        given = read_inputs(inputs if pair is None else _paired(inputs, pair), read_pair, is_one=is_pair)
        top_k = check("top_k", top_k, optional(integer(1)))
        reading = Reading(truncation, window, stride)

        def answer(part: Sequence[Pair]) -> list[list[dict[str, Any]]]:
            texts, pairs = zip(*part, strict=True)
            encoded = self._encode(texts, reading, pairs if any(second is not None for second in pairs) else None)
            scores = averaged(self._scores(self._run(encoded, batch_size)), encoded)
            return [self._ranked(row, top_k) for row in scores]

        return answered(
            given,
            answer,
            batch_size=batch_size,
            progress=progress,
            label=self.task,
            listed=lambda ranked: ranked[0] if top_k == 1 else ranked,
        )

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


def _paired(inputs: Any, pair: Any) -> Any:
    """First and second texts as pairs.

    Raises:
        InputError: not as many second texts as first ones.
    """
    if isinstance(inputs, str) and isinstance(pair, str):
        return inputs, pair
    firsts, seconds = read_inputs(inputs, read_text), read_inputs(pair, read_text, "second text")
    if firsts.total != seconds.total or firsts.form != seconds.form or firsts.total is None:
        counts = f"{firsts.total} texts and {seconds.total} second ones"
        raise InputError(f"Each text needs a second one. Received: {counts}")
    return list(zip(firsts.items, seconds.items, strict=True))

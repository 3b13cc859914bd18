"""Text classification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.arguments import check, integer, optional
from kerasformer.bundle import PROBABILITIES
from kerasformer.errors import InputError
from kerasformer.pipelines.base import LengthOptions, Pipeline, sigmoid, softmax
from kerasformer.pipelines.chunks import averaged
from kerasformer.pipelines.inputs import Pair, is_pair, map_inputs, read_inputs, read_pair, read_text


class TextClassificationPipeline(Pipeline):
    """Classifies texts: `[{"label": …, "score": …}]`."""

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
        """Classifies texts.

        Args:
            inputs: A text; a pair of texts, `("first", "second")` or `{"text": "first", "text_pair": "second"}`, for
                classifiers of pairs; a list or an array of either; or another iterable, which is read lazily.
            pair: Second texts, as an alternative to pairs in `inputs`.
            top_k: Number of classes to return for each text, the best first; `None` for all.
            batch_size: Number of texts, or chunks of long texts, in one call of the model.
            truncation: Whether to truncate a text that exceeds the model's maximum length, with a warning. Otherwise it
                is split into chunks, and scores are averaged over them, weighted by their numbers of tokens. Pairs
                cannot be split.
            window: Length of a chunk in tokens, including special tokens; the model's maximum length by default.
            stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk by default.
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
        options = LengthOptions(truncation, window, stride)

        def answer(part: Sequence[Pair]) -> list[list[dict[str, Any]]]:
            texts, pairs = zip(*part, strict=True)
            encoded = self._encode(texts, options, pairs if any(second is not None for second in pairs) else None)
            scores = averaged(self._scores(self._run(encoded, batch_size)), encoded)
            return [self._ranked(row, top_k) for row in scores]

        return map_inputs(
            checked,
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
        """Returns scores `(B, C)`: softmax or sigmoid probabilities, or the outputs of a regression."""
        if PROBABILITIES in outputs:
            return outputs[PROBABILITIES]
        logits = outputs["logits"]
        if self.info.problem_type == "regression":
            return logits
        if self.info.problem_type == "multi_label_classification" or logits.shape[-1] == 1:
            return sigmoid(logits)
        return softmax(logits)


def _paired(inputs: Any, pair: Any) -> Any:
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

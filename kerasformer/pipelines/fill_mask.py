"""Masked token prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.arguments import check, integer
from kerasformer.errors import InputError, TokenizerError
from kerasformer.pipelines.answers import Filling
from kerasformer.pipelines.base import LengthOptions, Pipeline, softmax
from kerasformer.pipelines.inputs import map_inputs, read_inputs, read_text


class FillMaskPipeline(Pipeline):
    """Predicts the most probable tokens for each mask token of a text."""

    def __call__(
        self,
        inputs: object,
        *,
        top_k: int = 5,
        batch_size: int = 8,
        truncation: bool = False,
        progress: bool = False,
    ) -> Any:
        """Fills mask tokens.

        Args:
            inputs: A text with mask tokens (`pipe.tokenizer.mask_token`), a list or an array of texts, or another
                iterable, which is read lazily.
            top_k: Number of tokens to return for each mask token.
            batch_size: Number of texts in one call of the model.
            truncation: Whether to truncate texts that exceed the model's maximum length, with a warning, instead of
                raising an error.
            progress: Whether to show a progress bar on standard error.

        Returns:
            For a text with one mask token, a list of `{"score", "token", "token_str", "sequence"}`. With several mask
            tokens, a list of such lists, whose sequences keep the other mask tokens and all special tokens. For a list
            of texts, a list of results; for another iterable, an iterator.

        Raises:
            CapacityError: a text is too long.
            InputError: a text has no mask token.
            TokenizerError: the tokenizer has no mask token.
        """
        checked, options = read_inputs(inputs, read_text), LengthOptions(truncation, in_chunks=False)
        top_k = check("top_k", top_k, integer(1))
        if self.tokenizer.mask_token_id is None:
            raise TokenizerError("fill-mask needs a tokenizer with a mask token. Received: one without")

        def answer(part: Sequence[str]) -> list[list[Filling] | list[list[Filling]]]:
            encoded = self._encode(part, options)
            logits = self._run(encoded, batch_size)["logits"]
            rows = zip(part, encoded.input_ids, encoded.attention_mask > 0, logits, strict=True)
            return [self._filled(text, ids[real], scores[real], top_k) for text, ids, real, scores in rows]

        return map_inputs(checked, answer, batch_size=batch_size, progress=progress, label=self.task)

    def _filled(
        self, text: str, ids: np.ndarray, logits: np.ndarray, top_k: int
    ) -> list[Filling] | list[list[Filling]]:
        gaps = np.flatnonzero(ids == self.tokenizer.mask_token_id)
        if not len(gaps):
            raise InputError(f"The text has no {self.tokenizer.mask_token} to fill. Received: {text!r}")
        answers = []
        for gap in gaps.tolist():
            scores = softmax(logits[gap])
            best = np.argsort(-scores, kind="stable")[:top_k].tolist()
            answers.append([self._choice(ids, gap, token, scores, len(gaps) == 1) for token in best])
        return answers[0] if len(answers) == 1 else answers

    def _choice(self, ids: np.ndarray, gap: int, token: int, scores: np.ndarray, only: bool) -> Filling:
        filled = ids.copy()
        filled[gap] = token
        return {
            "score": float(scores[token]),
            "token": token,
            "token_str": self.tokenizer.decode([token]),
            "sequence": self.tokenizer.decode(filled, skip_special_tokens=only),
        }

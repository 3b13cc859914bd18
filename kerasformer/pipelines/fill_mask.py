"""Words for a gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.arguments import check, integer
from kerasformer.errors import InputError, TokenizerError
from kerasformer.pipelines.base import Pipeline, Reading, softmax
from kerasformer.pipelines.inputs import answered, read_inputs, read_text


class FillMaskPipeline(Pipeline):
    """The most probable tokens for each mask token of a text."""

    def __call__(
        self,
        inputs: Any,
        *,
        top_k: int = 5,
        batch_size: int = 8,
        truncation: bool = False,
        progress: bool = False,
    ) -> Any:
        """Fills gaps.

        Args:
            inputs: A text with mask tokens (`pipe.tokenizer.mask_token`), a list or an array of them, or an iterable,
                read as its results are.
            top_k: So many tokens for each gap.
            batch_size: Texts that go through the model at once.
            truncation: Cuts texts that are too long, with a warning, where otherwise there is an error.
            progress: Shows a bar on standard error.

        Returns:
            For a text with one gap a list of `{"score", "token", "token_str", "sequence"}`; with several gaps a list
            of such lists, whose sequences keep the other gaps and so all special tokens. For a list of texts, one
            result each; for an iterable, an iterator.

        Raises:
            CapacityError: a text is too long.
            InputError: a text without mask token.
            TokenizerError: the tokenizer has no mask token.
        """
        given, reading = read_inputs(inputs, read_text), Reading(truncation, in_windows=False)
        top_k = check("top_k", top_k, integer(1))
        if self.tokenizer.mask_token_id is None:
            raise TokenizerError("fill-mask needs a tokenizer with a mask token. Received one without")

        def answer(part: Sequence[str]) -> list[list[Any]]:
            encoded = self._encode(part, reading)
            logits = self._run(encoded, batch_size)["logits"]
            rows = zip(part, encoded.input_ids, encoded.attention_mask > 0, logits, strict=True)
            return [self._filled(text, ids[real], scores[real], top_k) for text, ids, real, scores in rows]

        return answered(given, answer, batch_size=batch_size, progress=progress, label=self.task)

    def _filled(self, text: str, ids: np.ndarray, logits: np.ndarray, top_k: int) -> list[Any]:
        gaps = np.flatnonzero(ids == self.tokenizer.mask_token_id)
        if not len(gaps):
            raise InputError(f"The text has no {self.tokenizer.mask_token} to fill. Received: {text!r}")
        answers = []
        for gap in gaps.tolist():
            scores = softmax(logits[gap])
            best = np.argsort(-scores, kind="stable")[:top_k].tolist()
            answers.append([self._choice(ids, gap, token, scores, len(gaps) == 1) for token in best])
        return answers[0] if len(answers) == 1 else answers

    def _choice(self, ids: np.ndarray, gap: int, token: int, scores: np.ndarray, only: bool) -> dict[str, Any]:
        filled = ids.copy()
        filled[gap] = token
        return {
            "score": float(scores[token]),
            "token": token,
            "token_str": self.tokenizer.decode([token]),
            "sequence": self.tokenizer.decode(filled, skip_special_tokens=only),
        }

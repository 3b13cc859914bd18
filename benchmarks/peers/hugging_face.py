"""`generate` of Hugging Face's models, which transformers on PyTorch and optimum on ONNX Runtime share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.shapes import VOCABULARY
from kerasformer.bench.question import Question, Tokens


class Told:
    """A streamer that only says when: `generate` gives it the prompt, then a token of each row at a time."""

    def __init__(self, told: Callable[[], Any]) -> None:
        self._told = told
        self._begun = False

    def put(self, value: Any) -> None:
        """A token, or the prompt before the first of them."""
        if self._begun:
            self._told()
        self._begun = True

    def end(self) -> None:
        """Nothing more comes."""


def answer(model: Any, question: Question, told: Callable[[], Any]) -> Tokens:
    """Greedy where it generates, and exactly as long as wanted."""
    import torch

    ids = torch.from_numpy(question.ids(VOCABULARY)).long()
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        if not question.write:
            model(input_ids=ids, attention_mask=mask)
            return Tokens(ids.numel(), 0)
        written = model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=question.write,
            min_new_tokens=question.write,
            pad_token_id=0,
            streamer=Told(told),
        )
    before = 1 if model.config.is_encoder_decoder else question.read
    return Tokens(ids.numel(), written.shape[0] * (written.shape[1] - before))

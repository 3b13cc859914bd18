"""An engine whose translation of a text is the text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kerasformer.bundle import ModelInfo
from kerasformer.pipelines import PIPELINES
from kerasformer.pipelines.opening import Opened
from kerasformer.tokenization import Tokenizer
from tests import tiny_text
from tests.core.generation.engines import Recomputing, Rows


class Copying(Recomputing):
    """Engine that writes the text that it reads.

    Attributes:
        lengths: Numbers of tokens of the rows of each batch.
    """

    is_encoder_decoder = True

    def __init__(self, vocab_size: int, end: int) -> None:
        super().__init__(vocab_size, capacity=512)
        self.end = end
        self.lengths: list[list[int]] = []

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> Rows:
        self.lengths.append(mask.sum(axis=1).tolist())
        nothing = np.zeros((len(inputs), 0), np.int32)
        return Rows(nothing, nothing, np.where(mask == 1, inputs, self.end))

    def logits(self, rows: Rows) -> np.ndarray:
        position = min(rows.ids.shape[1], rows.extra.shape[1]) - 1
        scores = 8 * np.eye(self.vocab_size, dtype=np.float32)[rows.extra[:, position]]
        return scores[:, None]


def copying_pipeline(task: str, *, tokenizer: Tokenizer | None = None, **info: Any) -> Any:
    """Returns a pipeline whose results are its inputs, of up to 40 tokens; the tokens are bytes and a few pairs."""
    tokenizer = tokenizer or tiny_text.byte_pairs_in_texts()
    end = tokenizer.eos_token_id
    assert end is not None
    settings = {"decoder_start_token_id": end, "eos_token_id": end, "max_new_tokens": 60}
    known = ModelInfo(
        task,
        max_length=40,
        vocab_size=tokenizer.vocab_size,
        is_encoder_decoder=True,
        input_names=("input_ids", "attention_mask"),
        generation=settings,
    )
    engine = Copying(tokenizer.vocab_size, end)
    return PIPELINES[task](Opened("keras", engine, tokenizer, replace(known, **info), task))

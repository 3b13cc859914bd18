"""An engine that says a given text, whatever it is asked."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from kerasformer.tokenization import Tokenizer
from tests.decoding.engines import Toy


def named(value: object) -> str:
    """A name for a case that is the same in every process, though functions stand in it."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


class Scripted(Toy):
    """Continues `prompt` with `text`, and then ends.

    Args:
        tokenizer: Whose token 0 ends a text.
        prompt: What it is given.
        text: What it says.
        before_token: Called before each token, with its number from 0.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: str, text: str, before_token: Callable[[int], object] = lambda number: None
    ) -> None:
        begin = tokenizer.encode(prompt, add_special_tokens=False)
        script = [*tokenizer.encode(prompt + text, add_special_tokens=False)[len(begin) :], 0]

        def of(row: np.ndarray) -> np.ndarray:
            place = len(row) - len(begin)
            before_token(place)
            return 9 * np.eye(self.vocab_size, dtype=np.float32)[script[min(place, len(script) - 1)]]

        super().__init__(tokenizer.vocab_size, capacity=512, of=of)
        self.ids = np.array([begin], np.int32)
        self.mask = np.ones_like(self.ids)
        self.script = script

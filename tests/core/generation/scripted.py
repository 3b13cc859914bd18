"""An engine that generates a given text."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from kerasformer.tokenization import Tokenizer
from tests.core.generation.engines import Toy


def named(value: object) -> str:
    """Returns a test id that is the same in every process, even for values that contain functions."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


class Scripted(Toy):
    """Engine that continues `prompt` with `text` and then ends.

    Args:
        tokenizer: Tokenizer whose end token is 0.
        prompt: Prompt of the model.
        text: Text to generate.
        before_token: Called with the index of each token before it is generated.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: str, text: str, before_token: Callable[[int], object] = lambda number: None
    ) -> None:
        prefix = tokenizer.encode(prompt, add_special_tokens=False)
        script = [*tokenizer.encode(prompt + text, add_special_tokens=False)[len(prefix) :], 0]

        def of(row: np.ndarray) -> np.ndarray:
            index = len(row) - len(prefix)
            before_token(index)
            return 9 * np.eye(self.vocab_size, dtype=np.float32)[script[min(index, len(script) - 1)]]

        super().__init__(tokenizer.vocab_size, capacity=512, of=of)
        self.ids = np.array([prefix], np.int32)
        self.mask = np.ones_like(self.ids)
        self.script = script

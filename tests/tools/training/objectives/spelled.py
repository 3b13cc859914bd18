"""Texts of words as ids, so that tests can be written like the examples of the papers."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from kerasformer.tools.training import Vocabulary

SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "<X>", "<Y>", "<Z>")


class Spelled:
    """A vocabulary of the words of some texts."""

    def __init__(self, *texts: str, **settings: Any) -> None:
        self.words = [*SPECIAL, *dict.fromkeys(word for text in texts for word in text.split() if word not in SPECIAL)]
        defaults = {"mask_id": 3, "sentinel_ids": (4, 5, 6), "special_ids": tuple(range(7)), "start_id": 0}
        self.vocabulary = Vocabulary(len(self.words), **{**defaults, **settings})

    def ids(self, text: str) -> list[int]:
        return [self.words.index(word) for word in text.split()]

    def text(self, ids: Iterable[int]) -> str:
        return " ".join(self.words[index] for index in ids if index > 0)


def fixed(**answers: Any) -> Any:
    """A random number generator whose methods return these values, one after the other."""
    left = {name: iter(values) for name, values in answers.items()}
    return SimpleNamespace(**{name: lambda *given, name=name, **more: next(left[name]) for name in answers})


def texts_of(lengths: Iterable[int], size: int = 97, low: int = 5) -> list[np.ndarray]:
    """Random texts without special tokens."""
    rng = np.random.default_rng(1)
    return [rng.integers(low, size, length).astype("int32") for length in lengths]

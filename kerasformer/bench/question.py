"""What a model is asked, and what can be asked: the interface between the measuring loop and any library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np


@dataclass(frozen=True)
class Question:
    """One batch of inputs.

    Attributes:
        read: Tokens of each input; of no meaning where there are texts.
        write: Tokens to generate for each input, exactly; 0 for a model that answers at once.
        batch: Inputs.
        texts: Texts in the place of random tokens, `batch` of them.
    """

    read: int
    write: int = 0
    batch: int = 1
    texts: tuple[str, ...] = ()

    def ids(self, vocab_size: int) -> np.ndarray:
        """The same random int32 ids `(B, T)` at every call; above those that vocabularies keep for special tokens."""
        first = min(300, vocab_size // 2)
        return np.random.default_rng(0).integers(first, vocab_size, (self.batch, self.read), "int32")


class Tokens(NamedTuple):
    """Tokens of an answer, over all rows of the batch, padding apart."""

    read: int
    written: int


@dataclass(frozen=True)
class Facts:
    """What the measuring loop wants to know of a model that is open.

    Attributes:
        engine: Such as `"litert"`.
        task: Hugging Face's name.
        generates: Whether it writes tokens.
        longest: Tokens that it holds: prompt and answer together, or what an encoder reads; `None` without a limit.
        longest_answer: Tokens that the decoder of an encoder-decoder writes; `None` for others.
        size_mb: Its model files in 10^6 bytes.
    """

    engine: str
    task: str
    generates: bool
    longest: int | None = None
    longest_answer: int | None = None
    size_mb: float = 0.0


class Subject(Protocol):
    """Something that is measured. The methods are called in this order, the last one many times."""

    def import_runtime(self) -> None:
        """Imports all that the answers need. Memory is counted from here."""
        ...

    def load(self, threads: int | None) -> Facts:
        """Opens the model with so many CPU threads; the library's own choice if `None`."""
        ...

    def answer(self, question: Question, told: Callable[[], Any]) -> Tokens:
        """Answers; greedy where it generates. Calls `told` as each token of the batch is there, if it can know."""
        ...

"""Interface between the measuring loop and a library: inputs, token counts, and the protocol of a subject."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np


@dataclass(frozen=True)
class Question:
    """A batch of inputs to run.

    Attributes:
        read: Number of tokens of each input; ignored if there are texts.
        write: Exact number of tokens to generate for each input; 0 for a model that does not generate.
        batch: Number of inputs.
        texts: Texts to use instead of random tokens, `batch` of them.
        beams: Number of beams of beam search; 1 is greedy search.
    """

    read: int
    write: int = 0
    batch: int = 1
    texts: tuple[str, ...] = ()
    beams: int = 1

    @property
    def title(self) -> str:
        """Description for tables."""
        if self.texts:
            return f"{self.batch} texts of mixed length"
        text = f"{self.read} tokens in, {self.write} out" if self.write else f"{self.read:,} tokens"
        text += f", {self.beams} beams" if self.beams > 1 else ""
        return text if self.batch == 1 else f"{text}, batch {self.batch}"

    def ids(self, vocab_size: int) -> np.ndarray:
        """Returns fixed random ids, int32 `(B, T)`, above the ids usually reserved for special tokens."""
        first = min(300, vocab_size // 2)
        return np.random.default_rng(0).integers(first, vocab_size, (self.batch, self.read), "int32")


@dataclass(frozen=True)
class Workload:
    """Batches that are measured together: a single one, or all texts of a file.

    Attributes:
        title: Title for tables.
        questions: Batches, run one after another.
    """

    title: str
    questions: tuple[Question, ...]


class Tokens(NamedTuple):
    """Number of input and generated tokens of an answer, over all rows of the batch, without padding."""

    read: int
    written: int


@dataclass(frozen=True)
class Facts:
    """Properties of a loaded model.

    Attributes:
        engine: Name of the engine, such as `"litert"`.
        task: Hugging Face task name.
        generates: Whether the model generates tokens.
        longest: Maximum number of tokens: of prompt and answer together in a decoder, of the input otherwise; `None`
            without a limit.
        longest_answer: Maximum number of tokens that the decoder of an encoder-decoder generates; `None` otherwise.
        size_mb: Size of the model files in 10^6 bytes.
    """

    engine: str
    task: str
    generates: bool
    longest: int | None = None
    longest_answer: int | None = None
    size_mb: float = 0.0


class Subject(Protocol):
    """Model to measure. The methods are called in this order, the last one repeatedly."""

    def import_runtime(self) -> None:
        """Imports all modules that the model needs. Memory of the model is counted from here."""
        ...

    def load(self, threads: int | None) -> Facts:
        """Loads the model with this number of CPU threads; the library's default if `None`."""
        ...

    def answer(self, question: Question, on_token: Callable[[], object]) -> Tokens:
        """Runs the model, with greedy or beam search if it generates.

        Args:
            question: Inputs.
            on_token: Called when each token of the batch is available, if the library reports it; not in beam search.
        """
        ...

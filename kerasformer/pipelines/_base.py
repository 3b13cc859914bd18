"""What all pipelines share: lists and batches, checked lengths, the arrays that a model takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from kerasformer.arguments import BOOLEAN, check, integer
from kerasformer.decoding import Forward, Step
from kerasformer.errors import CapacityError, InputError, argument
from kerasformer.pipelines._open import Opened
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.fitting import check_known

_Item = TypeVar("_Item")


class Pipeline:
    """Text in, result out, over any engine.

    Attributes:
        task: Hugging Face's name of the task.
        engine: `"keras"`, `"litert"`, `"onnx"` or `"tensorflow"`.
        tokenizer: Of the source.
        info: What is known of the model.
    """

    def __init__(self, opened: Opened) -> None:
        self.task = opened.task
        self.engine = opened.engine
        self.tokenizer = opened.tokenizer
        self.info = opened.info
        self.model = opened.model

    def __repr__(self) -> str:
        return f"{type(self).__name__}(task={self.task!r}, engine={self.engine!r}, model={self.info.name!r})"

    def _forward(self) -> Forward:
        if not isinstance(self.model, Forward):
            raise InputError(f"{self.task} needs a model that answers at once. Received one that generates.")
        return self.model

    def _step(self) -> Step:
        if not isinstance(self.model, Step):
            raise InputError(f"{self.task} needs a model that generates. Received one that answers at once.")
        return self.model

    def _run(self, encoded: Encoding) -> dict[str, np.ndarray]:
        """The model's answers to tokenized texts."""
        arrays = {**encoded.inputs, "token_type_ids": encoded.token_type_ids}
        return self._forward().run({name: arrays[name] for name in self.info.input_names})

    def _encode(self, texts: Sequence[str], truncation: bool, pairs: Sequence[str] | None = None) -> Encoding:
        """Tokens of some texts, cut to the model's length if that is wanted.

        Raises:
            CapacityError: a text is longer than the model, and is not to be cut.
        """
        limit, truncation = self.info.max_length, check("truncation", truncation, BOOLEAN)
        # On the right whatever the tokenizer says, so that a text's first token and positions are its own.
        encoded = self.tokenizer(
            texts,
            pairs,
            truncation=truncation and limit is not None,
            max_length=limit if truncation else None,
            padding_side="right",
        )
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        width = int(encoded.attention_mask.sum(axis=1).max(initial=0))
        if limit is not None and width > limit:
            raise CapacityError(
                f"A text is longer than the model. Expected at most {limit} tokens. Received: {width}. "
                f"Shorten it, or pass {argument('truncation', True)} to have it cut."
            )
        return encoded


def listed(inputs: Any, what: str = "text") -> tuple[list[str], bool]:
    """The inputs as a list, and whether there was only one.

    Raises:
        InputError: neither a text nor a list of texts, or an empty list.
    """
    if isinstance(inputs, str):
        return [inputs], True
    texts = list(inputs) if isinstance(inputs, Sequence) else None
    if not texts or not all(isinstance(text, str) for text in texts):
        received = "an empty list" if texts == [] else repr(inputs)[:80]
        raise InputError(f"A {what} or a list of them was expected. Received: {received}")
    return texts, False


def batches(items: Sequence[_Item], batch_size: int) -> Iterator[Sequence[_Item]]:
    """The items, so many at a time.

    Raises:
        InputError: a size below 1.
    """
    size = check("batch_size", batch_size, integer(1))
    return (items[start : start + size] for start in range(0, len(items), size))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Probability of each class by itself."""
    scores: np.ndarray = 0.5 + 0.5 * np.tanh(0.5 * logits)  # unlike exp, this cannot overflow
    return scores

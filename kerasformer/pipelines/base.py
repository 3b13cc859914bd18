"""What all pipelines share: checked lengths, the arrays that a model takes, probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.arguments import BOOLEAN, check, integer, optional
from kerasformer.decoding import Forward, Step
from kerasformer.errors import CapacityError, InputError, argument
from kerasformer.pipelines.opening import Opened
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.fitting import check_known


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

    def _run(self, encoded: Encoding, batch_size: int) -> dict[str, np.ndarray]:
        """The model's answers to tokenized texts, some rows at a time."""
        made = {**encoded.inputs, "token_type_ids": encoded.token_type_ids}
        arrays = {name: made[name] for name in self.info.input_names if name in made}
        forward, count = self._forward(), len(encoded.input_ids)
        parts = [
            forward.run({name: array[start : start + batch_size] for name, array in arrays.items()})
            for start in range(0, count, batch_size)
        ]
        answers = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if any(np.isnan(values).any() for values in answers.values()):
            raise InputError(
                "The model's output for a text is not a number (NaN). A model with global tokens gives this output for "
                "a text with more of them than its maximum, such as a long question. Expected: a shorter question, or "
                "a model that was exported with a larger max_global_tokens in its config"
            )
        return answers

    def _encode(self, texts: Sequence[str], reading: Reading, pairs: Sequence[str | None] | None = None) -> Encoding:
        """Tokens of some texts; of one that is longer than the model its windows, or its beginning.

        Raises:
            CapacityError: a text is too long, and is neither to be cut nor read in windows.
        """
        limit = self._limit(reading)
        cut = reading.truncation or (reading.in_windows and pairs is None)
        # On the right whatever the tokenizer says, so that a text's first token and positions are its own.
        encoded = self.tokenizer(
            texts,
            pairs,
            truncation=(True if reading.truncation else "only_first") if cut and limit is not None else False,
            max_length=limit if cut else None,
            stride=self._stride(reading, limit) if cut and not reading.truncation else 0,
            return_overflowing_tokens=cut and not reading.truncation and limit is not None,
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

    def _limit(self, reading: Reading) -> int | None:
        """Tokens that the model reads at once."""
        longest = self.info.max_length
        if reading.window is None:
            return longest
        least = self.tokenizer.num_special_tokens() + 1
        return int(check("window", reading.window, integer(least, longest)))

    def _stride(self, reading: Reading, limit: int | None) -> int:
        if limit is None:
            return 0
        room = limit - self.tokenizer.num_special_tokens()
        return room // 4 if reading.stride is None else int(check("stride", reading.stride, integer(0, room - 1)))


@dataclass(frozen=True)
class Reading:
    """How a text is read that is longer than the model.

    Attributes:
        truncation: Its beginning alone.
        window: Tokens that are read at once, special tokens included; the model's length if `None`.
        stride: Tokens that neighbouring windows share; a quarter of a window if `None`.
        in_windows: The task knows what to make of the answers to several windows.
    """

    truncation: bool = False
    window: int | None = None
    stride: int | None = None
    in_windows: bool = True

    def __post_init__(self) -> None:
        check("truncation", self.truncation, BOOLEAN)
        check("window", self.window, optional(integer(1)))
        check("stride", self.stride, optional(integer(0)))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Probability of each class by itself."""
    scores: np.ndarray = 0.5 + 0.5 * np.tanh(0.5 * logits)  # unlike exp, this cannot overflow
    return scores

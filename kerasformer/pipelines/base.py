"""Base class of all pipelines: tokenization with length checks, batched model calls, probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kerasformer.arguments import BOOLEAN, check, integer, optional
from kerasformer.decoding import Forward, Step
from kerasformer.errors import CapacityError, InputError, argument
from kerasformer.pipelines.opening import Opened
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.fitting import check_known


class Pipeline:
    """Base class of pipelines.

    Attributes:
        task: Hugging Face task name.
        engine: `"keras"`, `"litert"`, `"onnx"` or `"tensorflow"`.
        tokenizer: Tokenizer of the source.
        info: Properties of the model.
        model: Engine that runs the model.
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
            raise InputError(f"{self.task} needs a model that does not generate. Received: one that generates.")
        return self.model

    def _step(self) -> Step:
        if not isinstance(self.model, Step):
            raise InputError(f"{self.task} needs a model that generates. Received: one that does not.")
        return self.model

    def _run(self, encoded: Encoding, batch_size: int, by_length: bool = False) -> dict[str, np.ndarray]:
        """Runs the model on tokenized texts, in batches of `batch_size` rows.

        Args:
            encoded: The tokenized texts.
            batch_size: Number of rows in a batch.
            by_length: Whether to put rows of similar length into the same batch, which then has little padding; only
                for outputs without an entry for each token.
        """
        available = {**encoded.inputs, "token_type_ids": encoded.token_type_ids}
        # Arrays that the tokenizer does not return are 0 with every engine, as in bundles.
        others = np.zeros_like(encoded.input_ids)
        arrays = {name: available.get(name, others) for name in self.info.input_names}
        forward, lengths = self._forward(), encoded.attention_mask.sum(axis=1)
        order = np.argsort(-lengths, kind="stable") if by_length else np.arange(len(lengths))
        parts = []
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            width = max(1, int(lengths[rows].max())) if by_length else None
            parts.append(forward.run({name: array[rows, :width] for name, array in arrays.items()}))
        inverse = np.argsort(order)
        answers = {name: np.concatenate([part[name] for part in parts])[inverse] for name in parts[0]}
        if any(np.isnan(values).any() for values in answers.values()):
            raise InputError(
                "The model's output for a text is not a number (NaN). A model with global tokens gives this output for "
                "a text with more of them than its maximum, such as a long question. Expected: a shorter question, or "
                "a model that was exported with a larger max_global_tokens in its config"
            )
        return answers

    def _encode(
        self, texts: Sequence[str], options: LengthOptions, pairs: Sequence[str | None] | None = None
    ) -> Encoding:
        """Tokenizes texts; one that exceeds the model's maximum length is truncated or split into chunks.

        Raises:
            CapacityError: a text is too long, and can be neither truncated nor split.
        """
        limit = self._limit(options)
        shorten = options.truncation or (options.in_chunks and pairs is None)
        # Padded on the right, whatever the tokenizer's setting, so that padding does not change positions.
        encoded = self.tokenizer(
            texts,
            pairs,
            truncation=(options.strategy if options.truncation else "only_first")
            if shorten and limit is not None
            else False,
            max_length=limit if shorten else None,
            stride=self._stride(options, limit) if shorten and not options.truncation else 0,
            return_overflowing_tokens=shorten and not options.truncation and limit is not None,
            padding_side="right",
        )
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        width = int(encoded.attention_mask.sum(axis=1).max(initial=0))
        if limit is not None and width > limit:
            raise CapacityError(
                f"A text exceeds the model's maximum length. Expected at most {limit} tokens. Received: {width}. "
                f"Shorten it, or pass {argument('truncation', True)} to truncate it."
            )
        return encoded

    def _limit(self, options: LengthOptions) -> int | None:
        """Returns the maximum number of tokens in one call of the model."""
        longest = self.info.max_length
        if options.chunk_length is None:
            return longest
        shortest = self.tokenizer.num_special_tokens() + 1
        return int(check("chunk_length", options.chunk_length, integer(shortest, longest)))

    def _stride(self, options: LengthOptions, limit: int | None) -> int:
        if limit is None:
            return 0
        text_length = limit - self.tokenizer.num_special_tokens()
        if options.stride is None:
            return text_length // 4
        return int(check("stride", options.stride, integer(0, text_length - 1)))


@dataclass(frozen=True)
class LengthOptions:
    """Treatment of texts that exceed the model's maximum length.

    Attributes:
        truncation: Whether to truncate texts instead of splitting them into chunks.
        chunk_length: Length of a chunk in tokens, including special tokens; the model's maximum length if `None`.
        stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk if `None`.
        in_chunks: Whether the task can combine the results of several chunks.
        strategy: Which text of a pair truncation shortens: the longer one (`"longest_first"`) or `"only_first"`.
    """

    truncation: bool = False
    chunk_length: int | None = None
    stride: int | None = None
    in_chunks: bool = True
    strategy: Literal["longest_first", "only_first"] = "longest_first"

    def __post_init__(self) -> None:
        check("truncation", self.truncation, BOOLEAN)
        check("chunk_length", self.chunk_length, optional(integer(1)))
        check("stride", self.stride, optional(integer(0)))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities of classes that exclude each other, along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the probability of each class, independent of the others."""
    scores: np.ndarray = 0.5 + 0.5 * np.tanh(0.5 * logits)  # unlike exp, this cannot overflow
    return scores

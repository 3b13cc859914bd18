"""Base class of all pipelines: tokenization with length checks, batched model calls, probabilities."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, check, integer, optional
from kerasformer.bundle.adapters import Adapter, read_adapter
from kerasformer.engines import Forward, Step
from kerasformer.engines.arrays import similar_rows
from kerasformer.engines.protocols import AdaptableEngine
from kerasformer.errors import CapacityError, InputError
from kerasformer.files import sources
from kerasformer.pipelines.opening import Opened
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.fitting import check_known
from kerasformer.tokenization.truncation import Strategy


class Pipeline:
    """Base class of pipelines.

    Attributes:
        task: Hugging Face task name.
        engine: `"keras"`, `"litert"`, `"onnx"`, `"tensorflow"` or `"numpy"`.
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
        self._adapters: dict[str, Adapter] = {}

    def load_adapter(self, source: str | os.PathLike[str], name: str | None = None) -> str:
        """Loads a low-rank adapter of PEFT and runs the model with it.

        A Keras model is compiled anew, and has the adapter from then on. A bundle must have inputs for adapters, see
        `lora_rank` of `kerasformer.export.export`; only the matrices of the adapter are copied. Do not change the
        adapter while another thread runs the pipeline.

        Args:
            source: Folder with `adapter_config.json` and `adapter_model.safetensors`, or a hub id.
            name: Name for `set_adapter`; that of the folder by default. An adapter of the same name is replaced.

        Returns:
            The name.

        Raises:
            SourceError: the folder or a file is missing or damaged.
            UnsupportedConfigError: the adapter has options that are not implemented.
            CheckpointError: the adapter belongs to another model, or is damaged.
            InputError: the engine runs no adapters, such as that of a bundle that was exported without.
        """
        engine = self._adaptable()
        adapter = read_adapter(sources.resolve(source))
        name = Path(source).resolve().name if name is None else check("name", name, STRING)
        engine.set_adapter(adapter)
        self._adapters[name] = adapter
        return name

    def set_adapter(self, name: str | None) -> None:
        """Runs the model with an adapter that was loaded before.

        Args:
            name: Name of the adapter; `None` for the base model.

        Raises:
            InputError: no adapter of this name was loaded.
        """
        if name is not None and name not in self._adapters:
            raise InputError(
                "Unknown adapter. Expected None, or one that load_adapter has loaded: "
                f"{', '.join(self._adapters) or 'there is none'}. Received: {name!r}"
            )
        self._adaptable().set_adapter(None if name is None else self._adapters[name])

    def _adaptable(self) -> AdaptableEngine:
        if not isinstance(self.model, AdaptableEngine):
            raise InputError(
                f"{self.engine} runs no adapters. Expected: a Keras model, or a TFLite or ONNX bundle that was "
                f"exported with lora_rank=…. Received: {self.info.name}. Merge the adapter before the export"
            )
        return self.model

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

    def _run(
        self,
        encoded: Encoding,
        batch_size: int,
        by_length: bool = False,
        further: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs the model on tokenized texts, in batches of `batch_size` rows.

        Args:
            encoded: The tokenized texts.
            batch_size: Number of rows in a batch.
            by_length: Whether to put rows of similar length into the same batch, so that at most a tenth of it is
                padding; batches may then have fewer rows. Only for outputs without an entry for each token.
            further: Inputs `(B, T)` that the tokenizer does not return, by name.
        """
        arrays = {name: array for name, array in encoded.inputs.items() if name in self.info.input_names}
        arrays |= further or {}
        forward, lengths = self._forward(), encoded.attention_mask.sum(axis=1)
        if by_length:
            batches = similar_rows(np.maximum(lengths, 1), batch_size)
        else:
            batches = np.split(np.arange(len(lengths)), range(batch_size, len(lengths), batch_size))
        parts = []
        for rows in batches:
            width = max(1, int(lengths[rows].max())) if by_length else None
            parts.append(forward.run({name: array[rows, :width] for name, array in arrays.items()}))
        inverse = np.argsort(np.concatenate(batches))
        answers = {name: np.concatenate([part[name] for part in parts])[inverse] for name in parts[0]}
        return self._finite(answers)

    def _finite(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs, or raises an `InputError` if one has NaN or infinity."""
        for name, values in outputs.items():
            if not np.isfinite(values).all():
                raise InputError(
                    "The model's output for a text is not finite. Expected: finite numbers. Received: "
                    f"{values[~np.isfinite(values)][0]} in {name}. {self._advice_for_infinite_output()}"
                )
        return outputs

    def _advice_for_infinite_output(self) -> str:
        """Returns what a caller can do about an output with NaN or infinity."""
        return (
            "Its weights are so large that sums of them exceed the range of its numbers. Check the checkpoint, or, for "
            "a Keras model, load it with dtype='float32'."
        )

    def _encode(
        self, texts: Sequence[str], options: LengthOptions, pairs: Sequence[str | None] | None = None
    ) -> Encoding:
        """Tokenizes texts; one that exceeds the model's maximum length is truncated or split into chunks.

        Raises:
            CapacityError: a text is too long, and can be neither truncated nor split; or the other text of a pair
                leaves no space for a chunk.
        """
        whole = self._whole_length(texts, pairs, options)
        limit = self._limit(options, whole)
        in_chunks = limit is not None and whole is not None
        # Padded on the right, whatever the tokenizer's setting, so that padding does not change positions.
        encoded = self.tokenizer(
            texts,
            pairs,
            truncation=options.strategy if in_chunks or (options.truncation and limit is not None) else False,
            max_length=limit if in_chunks or options.truncation else None,
            stride=_stride(options, limit - whole) if limit is not None and whole is not None else 0,
            return_overflowing_tokens=in_chunks,
            padding_side="right",
            pad_to=1,  # texts without tokens are a column of padding
        )
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        width = int(encoded.attention_mask.sum(axis=1).max(initial=0))
        if limit is not None and width > limit:
            raise CapacityError(
                f"A text exceeds the model's maximum length. Expected at most {limit} tokens. Received: {width}. "
                f"{self._advice_for_long_texts()}"
            )
        return encoded

    def _advice_for_long_texts(self) -> str:
        """Returns what a caller can do about a text that exceeds the model's maximum length."""
        return "Shorten it, or pass truncation=True to truncate it."

    def _whole_length(
        self, texts: Sequence[str], pairs: Sequence[str | None] | None, options: LengthOptions
    ) -> int | None:
        """Returns the number of tokens that each chunk contains besides its part of a text, or `None` for no chunks."""
        if options.truncation or not options.in_chunks:
            return None
        if pairs is None:
            return self.tokenizer.num_special_tokens()
        if options.strategy == "longest_first":
            return None
        others = {text for text in (pairs if options.strategy == "only_first" else texts) if text is not None}
        lengths = [len(self.tokenizer.encode(text, add_special_tokens=False)) for text in others]
        return self.tokenizer.num_special_tokens(pair=True) + max(lengths, default=0)

    def _limit(self, options: LengthOptions, whole: int | None) -> int | None:
        """Returns the maximum number of tokens in one call of the model."""
        longest = self.info.max_length
        if options.chunk_length is None:
            if longest is not None and whole is not None and whole >= longest:
                raise CapacityError(
                    "Special tokens and the other text of a pair leave no space for a text. Expected: fewer than "
                    f"{longest} tokens. Received: {whole}. Shorten the other text."
                )
            return longest
        shortest = (self.tokenizer.num_special_tokens() if whole is None else whole) + 1
        return int(check("chunk_length", options.chunk_length, integer(shortest, longest)))


@dataclass(frozen=True)
class LengthOptions:
    """Treatment of texts that exceed the model's maximum length.

    Attributes:
        truncation: Whether to truncate texts instead of splitting them into chunks.
        chunk_length: Length of a chunk in tokens, including special tokens; the model's maximum length if `None`.
        stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk if `None`.
        in_chunks: Whether the task can combine the results of several chunks.
        strategy: Which text of a pair is truncated, or split into chunks: the first, the second, or the longer one,
            which is not split.
    """

    truncation: bool = False
    chunk_length: int | None = None
    stride: int | None = None
    in_chunks: bool = True
    strategy: Strategy = "only_first"

    def __post_init__(self) -> None:
        check("truncation", self.truncation, BOOLEAN)
        check("chunk_length", self.chunk_length, optional(integer(1)))
        check("stride", self.stride, optional(integer(0)))


def _stride(options: LengthOptions, text_length: int) -> int:
    """Returns the overlap of neighbouring chunks of `text_length` tokens of text."""
    if options.stride is None:
        return text_length // 4
    return int(check("stride", options.stride, integer(0, text_length - 1)))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities of classes that exclude each other, along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the probability of each class, independent of the others."""
    scores: np.ndarray = 0.5 + 0.5 * np.tanh(0.5 * logits)  # unlike exp, this cannot overflow
    return scores

"""Text generation: continuation of prompts, and text-to-text tasks such as summarization and translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasformer.arguments import BOOLEAN, STRING, check, integer, optional
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import InputError, argument
from kerasformer.generation import GeneratedText, Request, Stream, request
from kerasformer.generation.streams import Callback
from kerasformer.pipelines.base import LengthOptions, Pipeline
from kerasformer.pipelines.inputs import Inputs, map_inputs, read_inputs, read_text
from kerasformer.pipelines.opening import Opened, open_step
from kerasformer.tasks import of_prefix
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.fitting import check_known


class _GenerationPipeline(Pipeline):
    """Base class of both pipelines: settings, batches, streams."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.generation_config = GenerationConfig.from_dict(opened.info.generation)

    def _request(self, settings: dict[str, Any]) -> Request:
        base = self.generation_config
        if not base.eos_token_id and self.info.eos_token_id:
            base = base.replace(eos_token_id=self.info.eos_token_id)
        return request(settings, base, self.tokenizer, open_step)

    def _generated(self, generation: Request, encoded: Encoding) -> GeneratedText:
        return generation.write(self._step(), encoded.input_ids, encoded.attention_mask)

    def _generate(
        self,
        generation: Request,
        inputs: Inputs[str],
        result: Callable[[str, list[str]], Any],
        *,
        batch_size: int,
        options: LengthOptions,
        progress: bool,
        listed: Callable[[Any], Any] = lambda row: row,
    ) -> Any:
        """Generates texts and returns results in the form of the inputs.

        Args:
            generation: Checked settings.
            inputs: Prompts, or inputs of the encoder.
            result: Creates the result for an input from it and its generated texts.
            batch_size: Number of inputs in one batch; 1 is used if a `GenerationOutput` is requested.
            options: Treatment of long texts.
            progress: Whether to show a progress bar.
            listed: Conversion of a result in a list or iterator.
        """
        returns_texts = generation.result == "texts"
        size = check("batch_size", batch_size, integer(1)) if returns_texts else 1
        # Lists in the settings, such as negative prompts, are split into the same batches as the inputs.
        sizes = [min(size, inputs.total - start) for start in range(0, inputs.total, size)] if inputs.total else []
        batches = iter(generation.split(sizes)) if inputs.form != "iterator" else None

        def answer(texts: Sequence[str]) -> list[Any]:
            batch = next(batches) if batches is not None else generation.split([len(texts)])[0]
            generated = self._generated(batch, self._encode(texts, options))
            if not returns_texts:
                return [generated.result(generation.result)]
            return [result(text, row) for text, row in zip(texts, generated.texts, strict=True)]

        return map_inputs(
            inputs,
            answer,
            batch_size=size,
            progress=progress,
            label=self.task,
            listed=listed if returns_texts else lambda row: row,
        )

    def _streamed(self, text: str, callback: Callback | None, settings: dict[str, Any]) -> Stream:
        """Returns the new text piece by piece; arguments are checked immediately, not at the first piece."""
        generation, encoded = self._request(settings), self._encode([text], LengthOptions(in_chunks=False))
        return generation.stream(self._step(), encoded.input_ids, encoded.attention_mask, callback)


class TextGenerationPipeline(_GenerationPipeline):
    """Continues a prompt: `[{"generated_text": …}]`."""

    def __call__(
        self,
        inputs: Any,
        *,
        return_full_text: bool = True,
        batch_size: int = 8,
        progress: bool = False,
        **settings: Any,
    ) -> Any:
        """Generates continuations.

        Args:
            inputs: A prompt, a list or an array of prompts, or another iterable, which is read lazily.
            return_full_text: Whether results start with the prompt.
            batch_size: Number of prompts in one batch.
            progress: Whether to show a progress bar on standard error.
            settings: Fields of `GenerationConfig`, such as `max_new_tokens=40`, `num_beams=4`, `top_p=0.9`, `seed=1`,
                and further settings of `kerasformer.generation.request`, such as `stop`, `negative_prompt`,
                `assistant`.

        Returns:
            For a prompt, a list of `num_return_sequences` results; for a list of prompts, a list of such lists; for
            another iterable, an iterator of them. With `return_dict_in_generate` or `output_scores`, a
            `GenerationOutput` for each prompt instead.

        Raises:
            CapacityError: a prompt exceeds the capacity of the cache.
            GenerationError: settings are invalid or contradict each other.
        """
        checked = read_inputs(inputs, lambda value: read_text(value, "prompt"), "prompt")
        full = check("return_full_text", return_full_text, BOOLEAN)

        def result(text: str, row: list[str]) -> list[dict[str, str]]:
            return [{"generated_text": text * full + new} for new in row]

        options = LengthOptions(in_chunks=False)
        return self._generate(
            self._request(settings), checked, result, batch_size=batch_size, options=options, progress=progress
        )

    def _encode(
        self, texts: Sequence[str], options: LengthOptions, pairs: Sequence[str | None] | None = None
    ) -> Encoding:
        """Tokenizes prompts without a limit; the engine raises an error for one that exceeds its cache."""
        encoded = self.tokenizer(texts, padding_side="right")
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        empty = [text for text, mask in zip(texts, encoded.attention_mask, strict=True) if not mask.any()]
        if empty:
            raise InputError(f"A prompt must have at least one token. Received: {empty[0]!r}")
        return encoded

    def stream(self, inputs: str, *, callback: Callback | None = None, **settings: Any) -> Stream:
        """Yields pieces of the continuation while it is generated.

        Args:
            inputs: A single prompt.
            callback: Called with each piece.
            settings: Settings as in a call; beam search is not supported.
        """
        return self._streamed(check("inputs", inputs, STRING), callback, settings)


class Text2TextGenerationPipeline(_GenerationPipeline):
    """Generates a text from another: `[{"generated_text": …}]`, or with a key for the task, such as `summary_text`."""

    _KEYS = {"summarization": "summary_text", "translation": "translation_text"}

    def __call__(
        self,
        inputs: Any,
        *,
        prefix: str | None = None,
        batch_size: int = 8,
        truncation: bool = False,
        progress: bool = False,
        **settings: Any,
    ) -> Any:
        """Generates texts.

        Args:
            inputs: A text, a list or an array of texts, or another iterable, which is read lazily.
            prefix: Text put before each input; defaults to the checkpoint's prefix for the task.
            batch_size: Number of texts in one batch.
            truncation: Whether to truncate texts that exceed the encoder's maximum length, with a warning, instead of
                raising an error.
            progress: Whether to show a progress bar on standard error.
            settings: Settings as for `TextGenerationPipeline`.

        Returns:
            For a text, a list of `num_return_sequences` results. For a list of texts, a list of results, or a list of
            lists unless `num_return_sequences` is 1; for another iterable, an iterator of them. With
            `return_dict_in_generate` or `output_scores`, a `GenerationOutput` for each text instead.

        Raises:
            CapacityError: a text exceeds the encoder's maximum length.
            InputError: a text is empty, or `prefix` is needed because the model has several for the task.
        """
        task_prefix = self._prefix(prefix)

        def read(value: Any) -> str:
            text = read_text(value)
            if not text:
                raise InputError("A text that is not empty was expected. Received: an empty text.")
            return task_prefix + text

        checked, options = read_inputs(inputs, read), LengthOptions(truncation, in_chunks=False)
        key = self._KEYS.get(of_prefix(self.task), "generated_text")
        return self._generate(
            self._request(settings),
            checked,
            lambda text, row: [{key: new} for new in row],
            batch_size=batch_size,
            options=options,
            progress=progress,
            listed=lambda row: row[0] if len(row) == 1 else row,
        )

    def stream(
        self, inputs: str, *, prefix: str | None = None, callback: Callback | None = None, **settings: Any
    ) -> Stream:
        """Yields pieces of the text while it is generated.

        Args:
            inputs: A single text.
            prefix: Text put before the input, as in a call.
            callback: Called with each piece.
            settings: Settings as in a call; beam search is not supported.
        """
        task_prefix = self._prefix(prefix)
        return self._streamed(task_prefix + check("inputs", inputs, STRING), callback, settings)

    def _prefix(self, prefix: str | None) -> str:
        """Returns the prefix, or by default that of the checkpoint for the task."""
        if check("prefix", prefix, optional(STRING)) is not None:
            return str(prefix)
        prefixes = self.info.prefixes(self.task)
        if len(prefixes) > 1:
            raise InputError(
                f"This model has several prefixes for {self.task}. Expected {argument('prefix', ...)} to be one of "
                f"{', '.join(map(repr, prefixes.values()))}. Received: none"
            )
        if not prefixes and of_prefix(self.task) != self.task and self.info.task_prefixes:
            raise InputError(
                f"This model has no prefix for {self.task}. Expected one of {', '.join(self.info.task_prefixes)}, or "
                "prefix="
            )
        return next(iter(prefixes.values()), "")

"""Texts that are continued, and texts that are rewritten into others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasformer.arguments import BOOLEAN, STRING, check, integer, optional
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import InputError, argument
from kerasformer.generation import GeneratedText, Request, Stream, request
from kerasformer.generation.streams import Callback
from kerasformer.pipelines.base import Pipeline, Reading
from kerasformer.pipelines.inputs import Inputs, answered, read_inputs, read_text
from kerasformer.pipelines.opening import Opened, open_step
from kerasformer.tasks import of_prefix
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.fitting import check_known


class _Writes(Pipeline):
    """What both kinds of generation share: settings, batches, streams."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.generation_config = GenerationConfig.from_dict(opened.info.generation)

    def _request(self, settings: dict[str, Any]) -> Request:
        base = self.generation_config
        if not base.eos_token_id and self.info.eos_token_id:
            base = base.replace(eos_token_id=self.info.eos_token_id)
        return request(settings, base, self.tokenizer, open_step)

    def _written(self, asked: Request, encoded: Encoding) -> GeneratedText:
        return asked.write(self._step(), encoded.input_ids, encoded.attention_mask)

    def _write(
        self,
        asked: Request,
        given: Inputs[str],
        result: Callable[[str, list[str]], Any],
        *,
        batch_size: int,
        reading: Reading,
        progress: bool,
        listed: Callable[[Any], Any] = lambda row: row,
    ) -> Any:
        """Results in the form of the inputs.

        Args:
            asked: What to write.
            given: From which texts.
            result: From a text and those that were written from it to what the pipeline gives for it.
            batch_size: Texts that go through the model at once; one, where the whole of its run is asked for.
            reading: Of long texts.
            progress: Shows a bar.
            listed: The form of a result among others.
        """
        in_texts = asked.result == "texts"
        size = check("batch_size", batch_size, integer(1)) if in_texts else 1
        # A list of prompts may have a list of negative prompts: each part of the one goes with its part of the other.
        sizes = [min(size, given.total - start) for start in range(0, given.total, size)] if given.total else []
        parts = iter(asked.split(sizes)) if given.form != "iterator" else None

        def answer(texts: Sequence[str]) -> list[Any]:
            each = next(parts) if parts is not None else asked.split([len(texts)])[0]
            written = self._written(each, self._encode(texts, reading))
            if not in_texts:
                return [written.result(asked.result)]
            return [result(text, row) for text, row in zip(texts, written.texts, strict=True)]

        return answered(
            given,
            answer,
            batch_size=size,
            progress=progress,
            label=self.task,
            listed=listed if in_texts else lambda row: row,
        )

    def _streamed(self, text: str, callback: Callback | None, settings: dict[str, Any]) -> Stream:
        """The new text piece by piece; arguments are checked at the call, not at the first piece."""
        asked, encoded = self._request(settings), self._encode([text], Reading(in_windows=False))
        return asked.stream(self._step(), encoded.input_ids, encoded.attention_mask, callback)


class TextGenerationPipeline(_Writes):
    """Continues a text: `[{"generated_text": …}]`."""

    def __call__(
        self,
        inputs: Any,
        *,
        return_full_text: bool = True,
        batch_size: int = 8,
        progress: bool = False,
        **settings: Any,
    ) -> Any:
        """Generates.

        Args:
            inputs: A prompt, a list or an array of prompts, or an iterable, read as its results are.
            return_full_text: The prompt is part of the text.
            batch_size: Prompts that go through the model at once.
            progress: Shows a bar on standard error.
            settings: Fields of `GenerationConfig`, such as `max_new_tokens=40`, `num_beams=4`, `top_p=0.9`, `seed=1`,
                and what `kerasformer.generation.request` knows beside them: `stop`, `negative_prompt`, `assistant`, …

        Returns:
            For a prompt, a list of `num_return_sequences` results; for a list, a list each; for an
            iterable, an iterator of these. With `return_dict_in_generate` or `output_scores` the `GenerationOutput` of
            each prompt instead.

        Raises:
            CapacityError: a prompt is longer than the cache.
            GenerationError: settings that cannot be.
        """
        given = read_inputs(inputs, lambda value: read_text(value, "prompt"), "prompt")
        full = check("return_full_text", return_full_text, BOOLEAN)

        def result(text: str, row: list[str]) -> list[dict[str, str]]:
            return [{"generated_text": text * full + new} for new in row]

        reading = Reading(in_windows=False)
        return self._write(
            self._request(settings), given, result, batch_size=batch_size, reading=reading, progress=progress
        )

    def _encode(self, texts: Sequence[str], reading: Reading, pairs: Sequence[str | None] | None = None) -> Encoding:
        """Tokens of some prompts, never cut: what is too long for the engine's cache is told when it is to be read."""
        encoded = self.tokenizer(texts, padding_side="right")
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        empty = [text for text, mask in zip(texts, encoded.attention_mask, strict=True) if not mask.any()]
        if empty:
            raise InputError(f"A prompt needs a token to be continued. Received: {empty[0]!r}. Give at least a letter.")
        return encoded

    def stream(self, inputs: str, *, callback: Callback | None = None, **settings: Any) -> Stream:
        """Pieces of the continuation as they come.

        Args:
            inputs: One prompt.
            callback: Is given each piece.
            settings: As in a call; without beams.
        """
        return self._streamed(check("inputs", inputs, STRING), callback, settings)


class Text2TextGenerationPipeline(_Writes):
    """Writes a text from another: `[{"generated_text": …}]`, or the key of the task."""

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
        """Generates.

        Args:
            inputs: A text, a list or an array of texts, or an iterable, read as its results are.
            prefix: Put before each text; for a task, what the checkpoint names for it by default.
            batch_size: Texts that go through the model at once.
            truncation: Cuts texts that are longer than the encoder, with a warning, where otherwise there is an error.
            progress: Shows a bar on standard error.
            settings: As for `TextGenerationPipeline`.

        Returns:
            For a text, a list of `num_return_sequences` results. For a list, one result a text, or a list each if
            `num_return_sequences` is not 1; for an iterable, an iterator of these. With `return_dict_in_generate` or
            `output_scores` the `GenerationOutput` of each text instead.

        Raises:
            CapacityError: a text is longer than the encoder.
            InputError: several prefixes would fit.
        """
        before = self._prefix(prefix)

        def read(value: Any) -> str:
            text = read_text(value)
            if not text:
                raise InputError("There is nothing to write from. Received: an empty text.")
            return before + text

        given, reading = read_inputs(inputs, read), Reading(truncation, in_windows=False)
        key = self._KEYS.get(of_prefix(self.task), "generated_text")
        return self._write(
            self._request(settings),
            given,
            lambda text, row: [{key: new} for new in row],
            batch_size=batch_size,
            reading=reading,
            progress=progress,
            listed=lambda row: row[0] if len(row) == 1 else row,
        )

    def stream(
        self, inputs: str, *, prefix: str | None = None, callback: Callback | None = None, **settings: Any
    ) -> Stream:
        """Pieces of the text as they come; arguments as in a call and for `TextGenerationPipeline.stream`."""
        before = self._prefix(prefix)
        return self._streamed(before + check("inputs", inputs, STRING), callback, settings)

    def _prefix(self, given: str | None) -> str:
        """What was given, or what the checkpoint puts before a text for this task; translations name languages."""
        if check("prefix", given, optional(STRING)) is not None:
            return str(given)
        fitting = self.info.prefixes(self.task)
        if len(fitting) > 1:
            raise InputError(
                f"This model has several prefixes for {self.task}. Expected {argument('prefix', ...)} to be one of "
                f"{', '.join(map(repr, fitting.values()))}. Received none"
            )
        if not fitting and of_prefix(self.task) != self.task and self.info.task_prefixes:
            raise InputError(
                f"This model has no prefix for {self.task}. Expected one of {', '.join(self.info.task_prefixes)}, or "
                "prefix="
            )
        return next(iter(fitting.values()), "")

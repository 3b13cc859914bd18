"""Text-to-text generation, and what summarization and translation have in common."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Any, ClassVar, Self

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, check, integer, one_of, optional
from kerasformer.basics.tasks import without_languages
from kerasformer.errors import InputError
from kerasformer.files.reading import JsonObject
from kerasformer.generation import GeneratedText, GenerationConfig, Request, Stream
from kerasformer.generation.setting_names import GenerationSettings
from kerasformer.generation.streams import Callback
from kerasformer.pipelines.base import LengthOptions
from kerasformer.pipelines.generation_base import WHOLE, GenerationPipeline, Prompt
from kerasformer.pipelines.inputs import Inputs, progress_bar, read_inputs, read_text
from kerasformer.pipelines.opening import Opened
from kerasformer.pipelines.text_parts import Parts, chunks, fitting, sentences
from kerasformer.tokenization import Encoding


@dataclass(frozen=True)
class Written:
    """A generated text.

    Attributes:
        text: The text.
        log_probability: Log-probability of its tokens, without those that the settings force; 0 if unknown.
        num_tokens: Number of these tokens.
    """

    text: str
    log_probability: float = 0.0
    num_tokens: int = 0


@dataclass(frozen=True)
class CallOptions:
    """Options of a call.

    Attributes:
        prefix: Text put before each input or part of it.
        split: `"sentences"`, `"chunks"` or `None`.
        lengths: Treatment of texts that are too long.
        return_scores: Whether results have a score.
        batch_size: Number of texts in one batch.
        progress: Whether to show a progress bar.
    """

    prefix: str
    split: str | None
    lengths: LengthOptions
    return_scores: bool
    batch_size: int
    progress: bool

    def __post_init__(self) -> None:
        check("return_scores", self.return_scores, BOOLEAN)
        check("batch_size", self.batch_size, integer(1))
        check("progress", self.progress, BOOLEAN)


class Text2TextGenerationPipeline(GenerationPipeline):
    """Generates a text from another: `[{"generated_text": …}]`.

    Args:
        opened: Opened source.
        src_lang: Default of the argument of a call.
        tgt_lang: Default of the argument of a call.

    Raises:
        InputError: the model does not know a language.
    """

    key: ClassVar[str] = "generated_text"
    """Key of the text in a result."""
    splits: ClassVar[tuple[str, ...]] = ()
    """Values of the argument `split`."""
    chunks_across_lines: ClassVar[bool] = False
    """Whether a chunk may contain line breaks."""

    def __init__(self, opened: Opened, src_lang: str | None = None, tgt_lang: str | None = None) -> None:
        super().__init__(opened)
        self.generation_config = self._with_task_settings(self.task)
        if src_lang is not None or tgt_lang is not None:
            self._set_languages(src_lang, tgt_lang)

    def __call__(
        self,
        inputs: object,
        *,
        prefix: str | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        batch_size: int = 8,
        truncation: bool = False,
        split: str | None = None,
        chunk_length: int | None = None,
        return_scores: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        progress: bool = False,
        **settings: Any,
    ) -> Any:
        """Generates texts.

        A list of texts is read in batches of similar length; the results have the order of the texts.

        Args:
            inputs: A text, a list or an array of texts, or another iterable, which is read lazily.
            prefix: Text put before each input; defaults to the checkpoint's prefix for the task.
            src_lang: Code of the language of the inputs, for a multilingual model; defaults to that of the tokenizer.
            tgt_lang: Code of the language of the results, likewise; by default, the settings of the model name it.
            batch_size: Number of texts in one batch.
            truncation: Whether to truncate texts that exceed the encoder's maximum length, with a warning, instead of
                raising an error.
            split: For translation and summarization: whether to read a text in parts, and which: `"sentences"`, or
                `"chunks"` of as many whole sentences as fit. The results for the parts are joined.
            chunk_length: Maximum number of tokens that are read at once, with special tokens and prefix; by default
                that of the model.
            return_scores: Whether results have a `"score"`: the sum of the log-probabilities of the tokens, divided by
                `num_tokens ** length_penalty`. Tokens that settings force, such as that of the language, do not count.
            clean_up_tokenization_spaces: Whether to remove spaces before punctuation; by default as the tokenizer does.
            progress: Whether to show a progress bar on standard error.
            settings: Settings as for `TextGenerationPipeline`.

        Returns:
            For a text, a list of `num_return_sequences` results. For a list of texts, a list of results, or a list of
            lists unless `num_return_sequences` is 1; for another iterable, an iterator of them. With
            `return_dict_in_generate` or `output_scores`, a `GenerationOutput` for each text instead.

        Raises:
            CapacityError: a text exceeds the encoder's maximum length.
            InputError: a text is empty; a language is unknown, missing, or passed to a model without languages; or
                `prefix` is needed because the model has several for the task.
        """
        pipe, task_prefix = self._for_call(prefix, src_lang, tgt_lang, settings)
        lengths = LengthOptions(truncation, chunk_length, in_chunks=False)
        options = CallOptions(task_prefix, pipe._split(split, lengths), lengths, return_scores, batch_size, progress)
        generation = _cleaning(pipe._request(settings), clean_up_tokenization_spaces)
        if generation.result != "texts" and (options.split or return_scores):
            name = "split" if options.split else "return_scores"
            raise InputError(
                f"{name} is for results that are texts. Received: settings that request "
                f"{generation.result}. Remove one of them"
            )
        if return_scores:
            recorded = dataclasses.replace(generation.controls, record=True)
            generation = dataclasses.replace(generation, controls=recorded)
        checked: Inputs[str] = read_inputs(inputs, _read)

        def listed(row: Any) -> Any:
            return row[0] if isinstance(row, list) and len(row) == 1 and generation.result == "texts" else row

        return checked.in_form(pipe._answers(checked, generation, options), listed)

    def stream(
        self,
        inputs: str,
        *,
        prefix: str | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        callback: Callback | None = None,
        **settings: object,
    ) -> Stream:
        """Yields pieces of the text while it is generated.

        Args:
            inputs: A single text.
            prefix: Text put before the input, as in a call.
            src_lang: As in a call.
            tgt_lang: As in a call.
            callback: Called with each piece.
            settings: Settings as in a call; beam search is not supported.
        """
        pipe, task_prefix = self._for_call(prefix, src_lang, tgt_lang, settings)
        return pipe._streamed(task_prefix + check("inputs", inputs, STRING), callback, settings)

    def prompt(
        self,
        inputs: str,
        *,
        prefix: str | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **settings: object,
    ) -> Prompt:
        """Returns a text that is ready to be answered token by token.

        Args:
            inputs: A single text.
            prefix: Text put before the input, as in a call.
            src_lang: As in a call.
            tgt_lang: As in a call.
            settings: Settings as in a call; beam search is not supported.
        Raises:
            CapacityError: the text exceeds the encoder's maximum length.
            InputError: as in a call.
        """
        pipe, task_prefix = self._for_call(prefix, src_lang, tgt_lang, settings)
        encoded = pipe._encode([task_prefix + _read(check("inputs", inputs, STRING))], WHOLE)
        return Prompt(pipe._request(settings), encoded.input_ids, encoded.attention_mask, pipe._step())

    def _answers(self, inputs: Inputs[str], generation: Request, options: CallOptions) -> Iterator[Any]:
        """Yields the result for each input."""
        if inputs.total is not None:
            yield from self._written(list(inputs.items), generation, options)
            return
        texts, silent = iter(inputs.items), dataclasses.replace(options, progress=False)
        with progress_bar(self.task, None, options.progress) as advance:
            while batch := list(islice(texts, options.batch_size)):
                yield from self._written(batch, generation, silent)
                advance(len(batch))

    def _written(self, texts: Sequence[str], generation: Request, options: CallOptions) -> list[Any]:
        """Returns the results for texts, in their order."""
        parts = [self._parts(text, options) for text in texts]
        inputs = [part for piece in parts for part in piece.texts]
        owners = [index for index, piece in enumerate(parts) for _ in piece.texts]
        lengths = [len(self.tokenizer.encode(text)) for text in inputs] if len(inputs) > 1 else [0] * len(inputs)
        order = np.argsort(-np.array(lengths, int), kind="stable").tolist()
        rows: list[Any] = []
        longest_first = generation.for_prompts([owners[index] for index in order], len(texts))
        ordered = Inputs([inputs[index] for index in order], "list")
        for request, batch in self._batches(longest_first, ordered, options.batch_size, options.progress):
            encoded = self._encode([options.prefix + text for text in batch], options.lengths)
            self._check_read(encoded, request.config)
            written = request.write(self._step(), encoded.input_ids, encoded.attention_mask)
            self._check_written(written, request.config)
            rows += _rows(written, request.config) if request.result == "texts" else [written.result(request.result)]
        unsorted = [row for _, row in sorted(zip(order, rows, strict=True), key=lambda pair: pair[0])]
        if generation.result != "texts":
            return unsorted
        ends = accumulate((len(piece.texts) for piece in parts), initial=0)
        return [
            [
                self._result(each, pieces, options, generation.config)
                for pieces in zip(*unsorted[start:end], strict=True)
            ]
            for each, (start, end) in zip(parts, pairwise(ends), strict=True)
        ]

    def _result(
        self, parts: Parts, written: Sequence[Written], options: CallOptions, settings: GenerationConfig
    ) -> JsonObject:
        """Returns the result for a text from the texts that were generated for its parts."""
        texts = [text.text for text in written]
        result: JsonObject = {self.key: texts[0] if options.split is None else self._joined(parts, texts)}
        if options.return_scores:
            count = max(1, sum(text.num_tokens for text in written))
            result["score"] = sum(text.log_probability for text in written) / count**settings.length_penalty
        return result

    def _joined(self, parts: Parts, texts: Sequence[str]) -> str:
        return parts.joined(texts)

    def _check_read(self, encoded: Encoding, config: GenerationConfig) -> None:
        """Checks a batch of inputs, with their prefixes."""

    def _check_written(self, written: GeneratedText, config: GenerationConfig) -> None:
        """Checks the texts that were generated for a batch of inputs."""

    def _split(self, split: str | None, lengths: LengthOptions) -> str | None:
        """Checks and returns the argument `split`."""
        if split is None:
            return None
        if not self.splits:
            raise InputError(
                f"split is for translation and summarization. Received: split={split!r} for "
                f"{self.task}. Open the source for one of these tasks"
            )
        split = str(check("split", split, optional(one_of(*self.splits))))
        if lengths.truncation:
            raise InputError(
                "A text is either truncated or split. Received: truncation=True and "
                f"split={split!r}. Remove one of them"
            )
        if split == "chunks" and self.info.max_length is None and lengths.chunk_length is None:
            raise InputError(
                f"This model has no maximum length, so that split={split!r} needs "
                "chunk_length=…. Received: none. Try chunk_length=512"
            )
        return split

    def _parts(self, text: str, options: CallOptions) -> Parts:
        """Returns the parts of a text that are read one at a time."""
        if options.split is None:
            return Parts.whole(text)
        parts, limit = sentences(text), self._limit(options.lengths, None)
        if limit is None:
            return parts

        def fits(part: str) -> bool:
            return len(self.tokenizer.encode(options.prefix + part)) <= limit

        def count(part: str) -> int:
            return len(self.tokenizer.encode(part, add_special_tokens=False))

        parts = fitting(parts, fits)
        if options.split == "sentences":
            return parts
        room = limit - self.tokenizer.num_special_tokens() - count(options.prefix)
        # A chunk may have a few more tokens than its sentences have alone.
        candidates = (chunks(parts, count, size, self.chunks_across_lines) for size in range(room, 0, -1))
        return next((candidate for candidate in candidates if all(map(fits, candidate.texts))), parts)

    def _advice_for_long_texts(self) -> str:
        advice = super()._advice_for_long_texts()
        if not self.splits:
            return advice
        return f"{advice} split={self.splits[0]!r} reads it in parts and joins the results."

    def _for_call(
        self, prefix: str | None, src_lang: str | None, tgt_lang: str | None, settings: GenerationSettings
    ) -> tuple[Self, str]:
        """Returns the pipeline for these languages, and the prefix of each text."""
        return self._for_languages(src_lang, tgt_lang, settings), self._prefix(prefix)

    def _set_languages(self, src_lang: str | None, tgt_lang: str | None) -> None:
        """Sets the default languages.

        Raises:
            InputError: the model does not know a language, or has no languages.
        """
        self.tokenizer = self.tokenizer.for_languages(src_lang, tgt_lang)

    def _for_languages(self, src_lang: str | None, tgt_lang: str | None, settings: GenerationSettings) -> Self:
        """Returns the pipeline for these languages, which shares tokenizer and model; `settings` are those of a call.

        Raises:
            InputError: a language is unknown, missing, or passed to a model without languages.
        """
        pipe = copy.copy(self)
        pipe.tokenizer = self.tokenizer.for_languages(src_lang, tgt_lang)
        changes = pipe.tokenizer.target_settings({**self.generation_config.to_dict(), **settings})
        pipe.generation_config = self.generation_config.replace(**changes)
        return pipe

    def _with_task_settings(self, task: str) -> GenerationConfig:
        """Returns the settings of the model with those of a task, which is a key of `task_specific_params`."""
        changes = self.info.task_settings.get(task)
        if not changes:
            return self.generation_config
        return GenerationConfig.from_dict({**self.generation_config.to_dict(), **changes})

    def _prefix(self, prefix: str | None) -> str:
        """Returns the prefix, or by default that of the checkpoint for the task."""
        if check("prefix", prefix, optional(STRING)) is not None:
            return str(prefix)
        prefixes, default = self.info.prefixes(self.task), self.info.default_prefix(self.task)
        if default is None:
            raise InputError(
                f"This model has several prefixes for {self.task}. Expected prefix=… to be one of "
                f"{', '.join(map(repr, prefixes.values()))}. Received: none"
            )
        known = self.info.task_prefixes
        if known and not prefixes and "" not in known and without_languages(self.task) != self.task:
            raise InputError(
                f"This model has no prefix for {self.task}. Expected one of {', '.join(known)}, or prefix="
            )
        return default


def _read(value: object) -> str:
    text = read_text(value)
    if not text:
        raise InputError("A text that is not empty was expected. Received: an empty text.")
    return text


def _cleaning(generation: Request, clean_up: bool | None) -> Request:
    """Returns the request with another setting of the clean-up of spaces, if one is passed."""
    clean_up = check("clean_up_tokenization_spaces", clean_up, optional(BOOLEAN))
    if clean_up is None or generation.tokenizer is None:
        return generation
    return dataclasses.replace(generation, tokenizer=generation.tokenizer.with_clean_up(clean_up))


def _rows(generated: GeneratedText, settings: GenerationConfig) -> list[list[Written]]:
    """Returns the texts of each prompt, with the log-probabilities of their tokens if these were recorded."""
    logs = iter(generated.output.log_probabilities or ())
    forced = int(settings.forced_bos_token_id is not None)
    rows = []
    for texts in generated.texts:
        chosen = [next(logs, np.zeros(0, np.float32))[forced:] for _ in texts]
        rows.append([Written(text, float(log.sum()), len(log)) for text, log in zip(texts, chosen, strict=True)])
    return rows

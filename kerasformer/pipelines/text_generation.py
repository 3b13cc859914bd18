"""Text generation: continuation of prompts, and text-to-text tasks such as summarization and translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kerasformer.arguments import BOOLEAN, STRING, check, integer, optional
from kerasformer.chat_templates import Message
from kerasformer.decoding import GenerationConfig, PrefixCache
from kerasformer.errors import InputError, argument
from kerasformer.generation import GeneratedText, Request, Stream, request
from kerasformer.generation.streams import Callback
from kerasformer.pipelines.base import LengthOptions, Pipeline
from kerasformer.pipelines.conversations import (
    ChatOptions,
    Conversation,
    answered,
    chat_config,
    is_conversation,
    prompt_limit,
    read_conversation,
    read_prompt,
    with_kind,
)
from kerasformer.pipelines.inputs import Inputs, map_inputs, read_inputs, read_text
from kerasformer.pipelines.opening import Opened, open_step
from kerasformer.tasks import of_prefix
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.fitting import check_known

_WHOLE = LengthOptions(in_chunks=False)
"""Prompts are neither truncated nor split."""


class _GenerationPipeline(Pipeline):
    """Base class of both pipelines: settings, batches, streams."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.generation_config = GenerationConfig.from_dict(opened.info.generation)

    def _request(self, settings: dict[str, Any]) -> Request:
        return request(settings, self._base_config(), self.tokenizer, open_step)

    def _base_config(self) -> GenerationConfig:
        base = self.generation_config
        if not base.eos_token_id and self.info.eos_token_id:
            base = base.replace(eos_token_id=self.info.eos_token_id)
        return base

    def _generated(self, generation: Request, encoded: Encoding, cache: PrefixCache | None = None) -> GeneratedText:
        return generation.write(self._step(), encoded.input_ids, encoded.attention_mask, cache)

    def _generate(
        self,
        generation: Request,
        inputs: Inputs[Any],
        result: Callable[[Any, list[str]], Any],
        *,
        batch_size: int,
        write: Callable[[Request, Sequence[Any]], GeneratedText],
        progress: bool,
        listed: Callable[[Any], Any] = lambda row: row,
    ) -> Any:
        """Generates texts and returns results in the form of the inputs.

        Args:
            generation: Checked settings.
            inputs: Prompts, or inputs of the encoder.
            result: Creates the result for an input from it and its generated texts.
            batch_size: Number of inputs in one batch; 1 is used if a `GenerationOutput` is requested.
            write: Generates the texts for a batch of inputs.
            progress: Whether to show a progress bar.
            listed: Conversion of a result in a list or iterator.
        """
        returns_texts = generation.result == "texts"
        size = check("batch_size", batch_size, integer(1)) if returns_texts else 1
        # Lists in the settings, such as negative prompts, are split into the same batches as the inputs.
        sizes = [min(size, inputs.total - start) for start in range(0, inputs.total, size)] if inputs.total else []
        batches = iter(generation.split(sizes)) if inputs.form != "iterator" else None

        def answer(texts: Sequence[Any]) -> list[Any]:
            batch = next(batches) if batches is not None else generation.split([len(texts)])[0]
            generated = write(batch, texts)
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
        generation, encoded = self._request(settings), self._encode([text], _WHOLE)
        return generation.stream(self._step(), encoded.input_ids, encoded.attention_mask, callback)


class TextGenerationPipeline(_GenerationPipeline):
    """Continues a prompt, or answers the last message of a conversation: `[{"generated_text": …}]`.

    Attributes:
        conversation_cache: Caches of the last conversation, which its next turn continues.
    """

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.conversation_cache = PrefixCache()

    def __call__(
        self,
        inputs: Any,
        *,
        return_full_text: bool = True,
        batch_size: int = 8,
        progress: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool | None = None,
        drop_oldest_turns: bool = False,
        **settings: Any,
    ) -> Any:
        """Generates continuations of prompts, or answers to conversations.

        A conversation is a list of messages such as `{"role": "user", "content": "Hello"}`, which the tokenizer's chat
        template converts to a prompt. An answer also ends with the token that the template puts after it, and has at
        most 256 tokens by default. For a single conversation, only the tokens after those that it has in common with
        the last one are read.

        Args:
            inputs: A prompt or a conversation, a list or an array of them, or another iterable, which is read lazily.
            return_full_text: Whether results start with the prompt, or contain all messages of the conversation.
            batch_size: Number of prompts in one batch.
            progress: Whether to show a progress bar on standard error.
            tools: JSON schemas of functions that the model may call, for a conversation.
            documents: Texts for the answer, for a conversation.
            chat_template: Another template than the tokenizer's, or the name of one of several.
            chat_template_kwargs: Further variables of the template, such as `{"enable_thinking": False}`.
            continue_final_message: Whether the model continues the last message; by default if it is the assistant's.
            drop_oldest_turns: Whether to leave out the oldest turns of a conversation that is too long for the cache,
                with a warning, instead of raising an error.
            settings: Fields of `GenerationConfig`, such as `max_new_tokens=40`, `num_beams=4`, `top_p=0.9`, `seed=1`,
                and further settings of `kerasformer.generation.request`, such as `stop`, `negative_prompt`,
                `assistant`.

        Returns:
            For a prompt, a list of `num_return_sequences` results; for a list of prompts, a list of such lists; for
            another iterable, an iterator of them. With `return_dict_in_generate` or `output_scores`, a
            `GenerationOutput` for each prompt instead. The `generated_text` of a conversation is the list of its
            messages with the answer, or only the answer with `return_full_text=False`.

        Raises:
            CapacityError: a prompt or a conversation exceeds the capacity of the cache.
            ChatTemplateError: there is no chat template, or it refuses the conversation.
            GenerationError: settings are invalid or contradict each other.
        """
        chat = ChatOptions(
            tools, documents, chat_template, chat_template_kwargs, continue_final_message, drop_oldest_turns
        )
        checked: Inputs[Any] = read_inputs(inputs, read_prompt, "prompt", is_conversation)
        full = check("return_full_text", return_full_text, BOOLEAN)

        def result(prompt: str | Conversation, row: list[str]) -> list[dict[str, Any]]:
            if isinstance(prompt, str):
                return [{"generated_text": prompt * full + new} for new in row]
            continues = chat.continues(prompt)
            return [{"generated_text": answered(prompt, new, continues) if full else new} for new in row]

        def generated(checked: Inputs[Any], has_conversations: bool) -> Any:
            def write(generation: Request, prompts: Sequence[Any]) -> GeneratedText:
                if not has_conversations:
                    return self._generated(generation, self._encode(prompts, _WHOLE))
                encoded = self._encode_conversations(prompts, chat, generation)
                return self._generated(generation, encoded, self.conversation_cache)

            generation = self._chat_request(settings, chat) if has_conversations else self._request(settings)
            return self._generate(generation, checked, result, batch_size=batch_size, write=write, progress=progress)

        def lazily() -> Iterator[Any]:
            yield from generated(*with_kind(checked))

        if checked.form != "iterator":
            return generated(*with_kind(checked))
        self._request(settings)  # invalid settings are an error now, and not when the first item is read
        return lazily()

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Converts a conversation to tokens or text; see `Tokenizer.apply_chat_template`."""
        return self.tokenizer.apply_chat_template(conversation, **options)

    def _chat_request(self, settings: dict[str, Any], chat: ChatOptions) -> Request:
        base = chat_config(self._base_config(), self.tokenizer, chat.chat_template)
        return request(settings, base, self.tokenizer, open_step)

    def _encode_conversations(
        self, conversations: Sequence[Conversation], chat: ChatOptions, generation: Request
    ) -> Encoding:
        limit = prompt_limit(self._step().capacity, generation.config)
        encoded = chat.encode(self.tokenizer, conversations, limit)
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        return encoded

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

    def stream(
        self,
        inputs: str | Sequence[Message],
        *,
        callback: Callback | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool | None = None,
        drop_oldest_turns: bool = False,
        **settings: Any,
    ) -> Stream:
        """Yields pieces of the continuation or the answer while it is generated.

        Args:
            inputs: A single prompt or conversation.
            callback: Called with each piece.
            tools: As in a call, for a conversation; likewise the following ones.
            documents: As in a call.
            chat_template: As in a call.
            chat_template_kwargs: As in a call.
            continue_final_message: As in a call.
            drop_oldest_turns: As in a call.
            settings: Settings as in a call; beam search is not supported.
        """
        conversation = read_conversation(inputs)
        if conversation is None:
            return self._streamed(check("inputs", inputs, STRING), callback, settings)
        chat = ChatOptions(
            tools, documents, chat_template, chat_template_kwargs, continue_final_message, drop_oldest_turns
        )
        generation = self._chat_request(settings, chat)
        encoded = self._encode_conversations([conversation], chat, generation)
        step, cache = self._step(), self.conversation_cache
        return generation.stream(step, encoded.input_ids, encoded.attention_mask, callback, cache)


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

        def write(generation: Request, texts: Sequence[str]) -> GeneratedText:
            return self._generated(generation, self._encode(texts, options))

        key = self._KEYS.get(of_prefix(self.task), "generated_text")
        return self._generate(
            self._request(settings),
            checked,
            lambda text, row: [{key: new} for new in row],
            batch_size=batch_size,
            write=write,
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

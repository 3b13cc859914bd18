"""Text generation: continuation of prompts, and answers to conversations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, check, instance, integer, optional, sequence
from kerasformer.engines import ResumableStep, SavedState
from kerasformer.errors import InputError
from kerasformer.generation import PrefixCache, Request, Stream, TextCache, request
from kerasformer.generation.streams import Callback
from kerasformer.pipelines.base import LengthOptions
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
from kerasformer.pipelines.generation_base import WHOLE, GenerationPipeline, Prompt
from kerasformer.pipelines.inputs import Inputs, read_inputs
from kerasformer.pipelines.opening import Opened, open_step
from kerasformer.pipelines.session import Session
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.chat_templates import Message
from kerasformer.tokenization.chat_templates.rendering import Document, Tool
from kerasformer.tokenization.fitting import check_known

_CHAT_OPTIONS = {field.name for field in fields(ChatOptions)}
_SESSION = optional(instance("a session of this pipeline, or None", Session))


class TextGenerationPipeline(GenerationPipeline):
    """Continues a prompt, or answers a question or the last message of a conversation: `[{"generated_text": …}]`.

    With a chat template, a text is the only message of a conversation, as in llama.cpp, unless `raw=True` is passed.

    Args:
        opened: Opened source.
        prefix_cache: Memory in bytes for the caches of earlier prompts and conversations; by default, only those of
            conversations are kept. A text whose first tokens are in the caches is rounded differently.

    Attributes:
        conversation_cache: Caches of the last conversations, which their next turns continue.
        prompt_cache: Caches of the last prompts, if `prefix_cache` is set: those of the conversations.
    """

    def __init__(self, opened: Opened, prefix_cache: int | None = None) -> None:
        super().__init__(opened)
        self.conversation_cache = PrefixCache() if prefix_cache is None else PrefixCache(prefix_cache)
        self.prompt_cache = None if prefix_cache is None else self.conversation_cache

    def __call__(
        self,
        inputs: object,
        *,
        return_full_text: bool = True,
        batch_size: int = 8,
        progress: bool = False,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Document] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
        continue_final_message: bool | None = None,
        drop_oldest_turns: bool = False,
        session: Session | None = None,
        raw: bool = False,
        **settings: object,
    ) -> Any:
        """Generates continuations of prompts, or answers to conversations.

        A conversation is a list of messages such as `{"role": "user", "content": "Hello"}`, which the tokenizer's chat
        template converts to a prompt. An answer also ends with the token that the template puts after it, and has at
        most 256 tokens by default. For a single conversation, only the tokens after those that it has in common with
        one of the last ones are read.

        Args:
            inputs: A prompt or a conversation, a list or an array of them, or another iterable, which is read lazily.
            return_full_text: Whether results start with the prompt, or contain all messages of the conversation. The
                answer to a text that the chat template converted is returned alone.
            batch_size: Number of prompts in one batch.
            progress: Whether to show a progress bar on standard error.
            tools: JSON schemas of functions that the model may call, for a conversation.
            documents: Texts for the answer, for a conversation.
            chat_template: Another template than the tokenizer's, or the name of one of several.
            chat_template_kwargs: Further variables of the template, such as `{"enable_thinking": False}`.
            continue_final_message: Whether the model continues the last message; by default if it is the assistant's.
            drop_oldest_turns: Whether to leave out the oldest turns of a conversation that is too long for the cache,
                with a warning, instead of raising an error.
            session: Session whose caches are used and replaced, for a single prompt or conversation; see `session`.
            raw: Whether to continue texts as they are: without the chat template, and without the prefix of the
                checkpoint.
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
        checked: Inputs[str | Conversation] = read_inputs(inputs, read_prompt, "prompt", is_conversation)
        full = check("return_full_text", return_full_text, BOOLEAN)
        session = self._checked_session(session)
        if session is not None and checked.form != "one":
            raise InputError(
                "A session continues one text. Expected: a single prompt or conversation. Received: several"
            )
        raw = check("raw", raw, BOOLEAN)
        if checked.form == "iterator":
            self._request(settings)  # invalid settings are an error now, and not when the first item is read
        return checked.in_form(self._answers(checked, settings, chat, full, session, raw, batch_size, progress))

    def _answers(
        self,
        inputs: Inputs[Any],
        settings: dict[str, Any],
        chat: ChatOptions,
        full: bool,
        session: Session | None,
        raw: bool,
        batch_size: int,
        progress: bool,
    ) -> Iterator[Any]:
        """Yields the result for each input; arguments as in a call."""
        inputs, has_conversations = with_kind(inputs)
        if not has_conversations and self.chats(raw, chat.chat_template):
            messages = (_message(prompt) if isinstance(prompt, str) else prompt for prompt in inputs.items)
            inputs = Inputs(messages if inputs.form == "iterator" else list(messages), inputs.form)
            has_conversations, full = True, False
        base = self._base_config()
        if has_conversations:
            base = chat_config(base, self.tokenizer, chat.chat_template)
        generation = request(settings, base, self.tokenizer, open_step)
        cache: TextCache | None = session or (self.conversation_cache if has_conversations else self.prompt_cache)
        for part, prompts in self._batches(generation, inputs, batch_size, progress):
            if has_conversations:
                encoded = self._encode_conversations(prompts, chat, part)
            else:
                encoded = self._encode([self._before(raw) + prompt for prompt in prompts], WHOLE)
            generated = part.write(self._step(), encoded.input_ids, encoded.attention_mask, cache)
            if part.result != "texts":
                yield generated.result(part.result)
                continue
            for prompt, texts in zip(prompts, generated.texts, strict=True):
                yield [{"generated_text": _whole(prompt, text, chat) if full else text} for text in texts]

    def chats(self, raw: bool = False, chat_template: str | None = None) -> bool:
        """Whether the chat template converts a text; arguments as in a call."""
        return not raw and bool(chat_template or self.tokenizer.chat_template)

    def _before(self, raw: bool) -> str:
        """Returns the text before each prompt."""
        return "" if raw else self.info.prefix

    def _messages(self, inputs: object, raw: bool, chat_template: str | None) -> Conversation | None:
        """Returns a conversation, or that of a text which the chat template converts; `None` for another input."""
        if isinstance(inputs, str) and self.chats(raw, chat_template):
            return _message(inputs)
        return read_conversation(inputs)

    def prompt(self, inputs: str | Sequence[Message] | Sequence[int], *, raw: bool = False, **options: Any) -> Prompt:
        """Returns a prompt that is ready to be continued token by token.

        Args:
            inputs: A single prompt, its token ids, or a conversation.
            raw: As in a call.
            options: Settings, and options of conversations, as in a call.
        Raises:
            CapacityError: a conversation exceeds the capacity of the cache.
            ChatTemplateError: there is no chat template, or it refuses the conversation.
            GenerationError: settings are invalid or contradict each other.
        """
        conversation = self._messages(inputs, check("raw", raw, BOOLEAN), options.get("chat_template"))
        if conversation is not None:
            chat_options = {"variables": options.pop("chat_template_kwargs", None)}
            chat_options |= {name: options.pop(name) for name in _CHAT_OPTIONS & options.keys()}
            chat = ChatOptions(**chat_options)
            generation = self._chat_request(options, chat)
            encoded = self._encode_conversations([conversation], chat, generation)
            ids, mask = encoded.input_ids, encoded.attention_mask
        elif isinstance(inputs, str):
            generation, encoded = self._request(options), self._encode([self._before(raw) + inputs], WHOLE)
            ids, mask = encoded.input_ids, encoded.attention_mask
        else:
            generation, token = self._request(options), integer(0, self._step().vocab_size - 1)
            ids = np.array([check("inputs", inputs, sequence(token, least=1))], np.int32)
            mask = np.ones_like(ids)
        return Prompt(generation, ids, mask, self._step(), self.conversation_cache)

    def session(
        self,
        inputs: str | Sequence[Message] | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Document] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
        raw: bool = False,
    ) -> Session:
        """Reads a text into a session, so that calls with `session=` need not read it again.

            session = pipe.session([{"role": "system", "content": instructions}])
            pipe([{"role": "system", "content": instructions}, question], session=session.clone())

        A call passes the whole text, which normally begins as that of the session, and leaves its own text in the
        session.

        Args:
            inputs: A prompt or a conversation; an empty session if `None`.
            tools: As in a call, for a conversation; likewise the following ones.
            documents: As in a call.
            chat_template: As in a call.
            chat_template_kwargs: As in a call.
            raw: As in a call.

        Raises:
            CapacityError: the text exceeds the capacity of the cache.
        """
        session = Session(self._step())
        if inputs is None:
            return session
        conversation = self._messages(inputs, check("raw", raw, BOOLEAN), chat_template)
        if conversation is None:
            encoded = self._encode([self._before(raw) + check("inputs", inputs, STRING)], WHOLE)
        else:
            chat = ChatOptions(tools, documents, chat_template, chat_template_kwargs)
            encoded = self._encode_conversations([conversation], chat, self._chat_request({}, chat))
        with session.reused_by(self._step()) as step:
            step.start(encoded.input_ids, encoded.attention_mask)
        return session

    def load_session(self, path: str | os.PathLike[str]) -> Session:
        """Reads a session that `Session.save` wrote, in this process or another one.

        Raises:
            InputError: the session belongs to another model, or its weights have changed.
            SourceError: the file is missing, or is not a complete session.
        """
        step, saved = self._step(), SavedState.read(path)
        if isinstance(step, ResumableStep):
            saved.check_model(step.identity())
        return Session(step, saved)

    def apply_chat_template(self, conversation: Sequence[Message] | Sequence[Sequence[Message]], **options: Any) -> Any:
        """Converts a conversation to tokens or text; see `Tokenizer.apply_chat_template`."""
        return self.tokenizer.apply_chat_template(conversation, **options)

    def _checked_session(self, session: Any) -> Session | None:
        """Checks the argument `session` of a call."""
        checked: Session | None = check("session", session, _SESSION)
        if checked is not None:
            checked.check_engine(self._step())
        return checked

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
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Document] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
        continue_final_message: bool | None = None,
        drop_oldest_turns: bool = False,
        session: Session | None = None,
        raw: bool = False,
        **settings: object,
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
            session: As in a call.
            raw: As in a call.
            settings: Settings as in a call; beam search is not supported.
        """
        conversation = self._messages(inputs, check("raw", raw, BOOLEAN), chat_template)
        session = self._checked_session(session)
        if conversation is None:
            text = self._before(raw) + check("inputs", inputs, STRING)
            return self._streamed(text, callback, settings, session or self.prompt_cache)
        chat = ChatOptions(
            tools, documents, chat_template, chat_template_kwargs, continue_final_message, drop_oldest_turns
        )
        generation = self._chat_request(settings, chat)
        encoded = self._encode_conversations([conversation], chat, generation)
        cache: TextCache = session or self.conversation_cache
        return generation.stream(self._step(), encoded.input_ids, encoded.attention_mask, callback, cache)


def _message(text: str) -> Conversation:
    """Returns the conversation of which a text is the only message."""
    return [{"role": "user", "content": text}]


def _whole(prompt: str | Conversation, new: str, chat: ChatOptions) -> str | Conversation:
    """Returns a prompt or a conversation with its new text."""
    return prompt + new if isinstance(prompt, str) else answered(prompt, new, chat.continues(prompt))

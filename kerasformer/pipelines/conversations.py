"""Conversations as inputs of text generation: recognition, tokens, the end token of an answer, and their length."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from kerasformer.basics.arguments import BOOLEAN, STRING, check, instance, optional
from kerasformer.errors import CapacityError, InputError
from kerasformer.files.reading import JsonObject
from kerasformer.generation import GenerationConfig
from kerasformer.pipelines.inputs import Inputs, read_text
from kerasformer.tokenization import Encoding, Tokenizer, TruncationWarning
from kerasformer.tokenization.chat_templates import Message
from kerasformer.tokenization.chat_templates.rendering import Document, Tool

Conversation = list[JsonObject]
"""Messages with `role` and `content`."""

NEW_TOKENS = 256
"""Maximum number of tokens of an answer if neither the call nor the model's settings limit it, as in `transformers`."""

_ARGUMENTS = inspect.signature(Tokenizer.apply_chat_template).parameters.keys() - {"variables"}


@dataclass(frozen=True)
class ChatOptions:
    """How conversations are converted to prompts.

    Attributes:
        tools: JSON schemas of functions that the model may call.
        documents: Texts for the answer.
        chat_template: Another template than the tokenizer's, or the name of one of several.
        variables: Further variables of the template.
        continue_final_message: Whether the model continues the last message; by default if it is the assistant's.
        drop_oldest_turns: Whether to leave out the oldest turns of a conversation that is too long, with a warning.
    """

    tools: Sequence[Tool] | None = None
    documents: Sequence[Document] | None = None
    chat_template: str | None = None
    variables: Mapping[str, Any] | None = None
    continue_final_message: bool | None = None
    drop_oldest_turns: bool = False

    def __post_init__(self) -> None:
        """Checks the types of the options that no other function checks."""
        check("chat_template", self.chat_template, optional(STRING))
        check("chat_template_kwargs", self.variables, optional(instance("a dict", Mapping)))
        if arguments := _ARGUMENTS & set(self.variables or ()):
            raise InputError(
                "chat_template_kwargs must be variables that the template reads, such as "
                f"enable_thinking. Received: {', '.join(sorted(arguments))}, arguments of apply_chat_template. "
                "Omit them"
            )
        check("continue_final_message", self.continue_final_message, optional(BOOLEAN))
        check("drop_oldest_turns", self.drop_oldest_turns, BOOLEAN)

    def continues(self, conversation: Sequence[Message]) -> bool:
        """Whether the model continues the last message instead of adding one."""
        if self.continue_final_message is not None:
            return self.continue_final_message
        return bool(conversation[-1]["role"] == "assistant")

    def encode(self, tokenizer: Tokenizer, conversations: Sequence[Conversation], max_length: int | None) -> Encoding:
        """Returns the tokens of prompts.

        Args:
            tokenizer: Tokenizer with a chat template.
            conversations: The conversations.
            max_length: Maximum number of tokens of a prompt; `None` without a limit.
        Raises:
            ChatTemplateError: there is no template, or it refuses a conversation.
            CapacityError: a conversation is too long.
        """
        shortened = [self._shortened(tokenizer, conversation, max_length) for conversation in conversations]
        texts = [self._text(tokenizer, conversation) for conversation in shortened]
        return tokenizer(texts, add_special_tokens=False, padding_side="right")

    def _text(self, tokenizer: Tokenizer, conversation: Conversation) -> str:
        continues = self.continues(conversation)
        text: str = tokenizer.apply_chat_template(
            conversation,
            self.tools,
            self.documents,
            chat_template=self.chat_template,
            add_generation_prompt=not continues,
            continue_final_message=continues,
            tokenize=False,
            **(self.variables or {}),
        )
        return text

    def _shortened(self, tokenizer: Tokenizer, conversation: Conversation, max_length: int | None) -> Conversation:
        """Returns a conversation without its oldest turns, so that the prompt has at most `max_length` tokens."""
        kept = conversation
        while max_length is not None:
            length = len(tokenizer.encode(self._text(tokenizer, kept), add_special_tokens=False))
            if length <= max_length:
                break
            shorter = _without_oldest_turn(kept)
            if not self.drop_oldest_turns or shorter is None:
                advice = (
                    "The last turn alone is too long: shorten it"
                    if self.drop_oldest_turns
                    else "Remove messages, pass drop_oldest_turns=True"
                )
                raise CapacityError(
                    "The conversation is too long for the cache. Expected at most "
                    f"{max_length} tokens. Received: {length} tokens in {len(kept)} messages. {advice}, or load or "
                    "export the model with a larger capacity"
                )
            kept = shorter
        if len(kept) < len(conversation):
            warnings.warn(
                f"The conversation is too long for the cache: its {len(conversation) - len(kept)} oldest messages "
                "except the system prompt were left out",
                TruncationWarning,
                stacklevel=2,
            )
        return kept


def read_conversation(value: object) -> Conversation | None:
    """Returns a conversation as a list of messages, or `None` if the value is something else."""
    messages = list(value) if isinstance(value, list | tuple) else []
    if not messages or not all(isinstance(message, Mapping) and "role" in message for message in messages):
        return None
    return [dict(message) for message in messages]


def is_conversation(value: object) -> bool:
    """Returns whether a value is a single conversation."""
    return read_conversation(value) is not None


def answered(conversation: Conversation, answer: str, continues: bool) -> Conversation:
    """Returns a conversation with an answer, or with a continued last message."""
    if not continues:
        return [*conversation, {"role": "assistant", "content": answer}]
    last = conversation[-1]
    content = last.get("content")
    if isinstance(content, str):
        return [*conversation[:-1], {**last, "content": content + answer}]
    return [*conversation[:-1], {**last, "content": [*(content or []), {"type": "text", "text": answer}]}]


def chat_config(base: GenerationConfig, tokenizer: Tokenizer, chat_template: str | None = None) -> GenerationConfig:
    """Returns the generation settings of a model for conversations.

    An answer also ends with the token that the chat template puts after it, and has a larger default length.

    Args:
        base: Settings of the model.
        tokenizer: Tokenizer with a chat template.
        chat_template: Another template than the tokenizer's, or the name of one of several.
    """
    ends = base.eos_token_id
    for token in (tokenizer.turn_end_token_id(chat_template), tokenizer.eos_token_id):
        if token is not None and token not in ends:
            ends = (*ends, token)
    base = base.replace(eos_token_id=ends)
    if base.max_new_tokens is None and base.max_length is None:
        base = base.replace(max_new_tokens=NEW_TOKENS)
    return base


def prompt_limit(capacity: int, config: GenerationConfig) -> int:
    """Returns the maximum length of a prompt that leaves space for an answer, at most half of the cache."""
    return capacity - min(config.max_new_tokens or 1, capacity // 2)


def _without_oldest_turn(conversation: Conversation) -> Conversation | None:
    """Returns a conversation without its first turn: the messages up to the second one of the user.

    Messages of the system at the start are kept. Returns `None` if there is only one turn.
    """
    start = next((i for i, message in enumerate(conversation) if message["role"] not in ("system", "developer")), 0)
    users = [index for index, message in enumerate(conversation) if message["role"] == "user" and index > start]
    return [*conversation[:start], *conversation[users[0] :]] if users else None


def read_prompt(value: object) -> str | Conversation:
    """Returns a prompt or a conversation.

    Raises:
        InputError: the value is neither.
    """
    conversation = read_conversation(value)
    return read_text(value, "prompt") if conversation is None else conversation


def with_kind(inputs: Inputs[str | Conversation]) -> tuple[Inputs[str | Conversation], bool]:
    """Returns the inputs, and whether they are conversations; the first item of an iterator is read for this.

    Raises:
        InputError: there are prompts and conversations, now or when a later item is read.
    """
    items = iter(inputs.items)
    first = list(islice(items, 1))
    has_conversations = bool(first) and not isinstance(first[0], str)

    def checked(item: str | Conversation) -> str | Conversation:
        if isinstance(item, str) == has_conversations:
            raise InputError("Inputs must be prompts or conversations. Received: both. Pass them separately")
        return item

    if inputs.form == "iterator":
        return Inputs(map(checked, chain(first, items)), inputs.form), has_conversations
    return Inputs(list(map(checked, chain(first, items))), inputs.form), has_conversations

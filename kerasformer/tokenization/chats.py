"""Conversations to text and tokens, by the chat template of a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, check, optional, shown
from kerasformer.errors import ChatTemplateError, InputError
from kerasformer.tokenization.chat_templates import DEFAULT, ChatTemplates, Message, Rendered, pair_template, render
from kerasformer.tokenization.chat_templates.rendering import Document, Tool
from kerasformer.tokenization.encoding import Encoding
from kerasformer.tokenization.padding import Padding
from kerasformer.tokenization.truncation import Truncation
from kerasformer.tokenization.vocabulary import Vocabulary

# Arguments of transformers, which would otherwise be variables that no template reads.
_NO_VARIABLES = frozenset({"return_dict", "tokenizer_kwargs"})


class ChatTokenizer(Vocabulary):
    """Base of `Tokenizer` with the methods for conversations.

    Attributes:
        chat_template: Jinja template that converts a conversation to text, several templates by name, or `None`.
    """

    chat_template: ChatTemplates

    def __call__(self, *args: Any, **kwargs: Any) -> Encoding:
        """Tokenizes texts; see `Tokenizer.__call__`."""
        raise NotImplementedError

    def apply_chat_template(
        self,
        conversation: Sequence[Message] | Sequence[Sequence[Message]],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Document] | None = None,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        return_assistant_tokens_mask: bool = False,
        padding: Padding = True,
        truncation: Truncation = False,
        max_length: int | None = None,
        return_tensors: Literal["np", "tf", "jax", "pt"] | None = None,
        **variables: Any,
    ) -> Any:
        """Converts conversations to the text or the tokens that a chat model was trained on.

        The template runs in a sandbox without access to Python, for at most 2 seconds, and writes at most 2,000,000
        characters.

        Args:
            conversation: Messages, such as `{"role": "user", "content": "Hello"}`, or a list of conversations.
            tools: JSON schemas of functions that the model may call, if the template supports them.
            documents: Texts that the answer is based on, such as `{"title": …, "text": …}`, likewise.
            chat_template: A template, or the name of one of the tokenizer's templates. By default the tokenizer's
                only template, or that for tools if tools are passed and there is one, or otherwise the default one.
            add_generation_prompt: Whether to add the beginning of the model's answer.
            continue_final_message: Whether to omit the end of the last message, so that the model continues it.
            tokenize: Whether to return tokens instead of text.
            return_assistant_tokens_mask: Whether to include `"assistant_masks"` in the result, `(B, T)`: 1 for tokens
                that the template marks as the assistant's, by `{% generation %}`.
            padding: As in a call.
            truncation: As in a call.
            max_length: As in a call.
            return_tensors: As in a call.
            variables: Further variables of the template, such as `enable_thinking=False`.

        Returns:
            An `Encoding`; with `tokenize=False` a text, or a list of texts.

        Raises:
            ChatTemplateError: there is no template, it is not valid, it refuses the conversation, reads attributes of
                Python objects, or exceeds a limit.
            InputError: the conversation is empty, or a message has no role.
        """
        if check("continue_final_message", continue_final_message, BOOLEAN) and add_generation_prompt:
            raise InputError(
                "continue_final_message continues the last message, and "
                "add_generation_prompt begins another one. Received: both. Remove one of them"
            )
        if not check("tokenize", tokenize, BOOLEAN):
            for_tokens = {
                "padding": padding is not True,
                "truncation": truncation is not False,
                "max_length": max_length is not None,
                "return_tensors": return_tensors is not None,
                "return_assistant_tokens_mask": return_assistant_tokens_mask is not False,
            }
            if passed := [name for name, is_passed in for_tokens.items() if is_passed]:
                raise InputError(
                    f"tokenize=False returns a text, not tokens. Received: {', '.join(passed)}. Omit these arguments, "
                    "or set tokenize=True"
                )
        for name in _NO_VARIABLES & variables.keys():
            raise InputError(
                f"{name} is no variable of a template. Expected: arguments of apply_chat_template, which returns an "
                "Encoding or, with tokenize=False, a text; or variables that a template reads, such as "
                f"enable_thinking=False. Received: {name}={shown(variables[name])}. Omit it"
            )
        several = isinstance(conversation, list | tuple) and bool(conversation)
        several = several and isinstance(conversation[0], list | tuple)
        template = _template(self.chat_template, chat_template, tools)
        known = {**self._special_tokens, **variables}
        if unnamed := self._unnamed_special_tokens():
            known = {"additional_special_tokens": unnamed, **known}
        rendered = [
            render(
                template,
                messages,  # type: ignore[arg-type]
                tools=tools,
                documents=documents,
                add_generation_prompt=check("add_generation_prompt", add_generation_prompt, BOOLEAN),
                continue_final_message=continue_final_message,
                variables=known,
            )
            for messages in (conversation if several else [conversation])
        ]
        texts = [text.text for text in rendered]
        if not tokenize:
            return texts if several else texts[0]
        masked = check("return_assistant_tokens_mask", return_assistant_tokens_mask, BOOLEAN)
        encoding = self(
            texts,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            add_special_tokens=False,
            return_tensors=return_tensors,
        )
        if masked:
            encoding.add_array("assistant_masks", _generated_mask(encoding, rendered))
        return encoding

    @property
    def pair_template(self) -> str | None:
        """The chat template, if it has the roles `query` and `document` of a reranker; otherwise `None`."""
        return pair_template(self.chat_template)

    def apply_pair_template(self, query: str, document: str, prompt: str | None = None) -> str:
        """Converts a query and a document to the text that a reranker reads, by its `pair_template`.

        Args:
            query: Content of the message `query`.
            document: Content of the message `document`.
            prompt: Content of the message `system`, the instruction; by default that of the template.

        Raises:
            ChatTemplateError: as `apply_chat_template`.
        """
        messages = [{"role": "system", "content": prompt}] if prompt is not None else []
        messages += [{"role": "query", "content": query}, {"role": "document", "content": document}]
        text: str = self.apply_chat_template(messages, chat_template=self.pair_template, tokenize=False)
        return text

    def turn_end_token_id(self, chat_template: str | None = None) -> int | None:
        """Returns the id of the token that the chat template puts after an answer, such as `<|im_end|>`.

        A model that was trained with the template ends its answers with this token, which is not always its end token.

        Args:
            chat_template: As for `apply_chat_template`.

        Returns:
            The id, or `None` if there is no template, or none that puts an added token after an answer.
        """
        answer = "Kerasformer"
        turns = [{"role": "user", "content": answer}, {"role": "assistant", "content": answer}]
        try:
            text = self.apply_chat_template(turns, chat_template=chat_template, tokenize=False)
        except ChatTemplateError:  # no template, or one for other roles
            return None
        after = text[text.rfind(answer) + len(answer) :].lstrip()
        added = self.backend.get_added_tokens_decoder()
        found = [index for index, token in added.items() if after.startswith(token.content) and token.content.strip()]
        return max(found, key=lambda index: len(added[index].content), default=None)


def _template(templates: ChatTemplates, chat_template: str | None, tools: Sequence[Tool] | None) -> str:
    """Returns the requested template, or that of the tokenizer.

    Raises:
        ChatTemplateError: there is none.
    """
    requested = check("chat_template", chat_template, optional(STRING))
    if isinstance(templates, dict):
        name = "tool_use" if tools and "tool_use" in templates else DEFAULT
        if (requested or name) in templates:
            return templates[requested or name]
        if requested is None:
            raise ChatTemplateError(
                f"This tokenizer has several chat templates, and none of them is {DEFAULT!r}. Expected "
                f"chat_template=… to be one of {', '.join(map(repr, templates))}. Received: none"
            )
    if requested is not None:
        return str(requested)
    if templates is None:
        raise ChatTemplateError(
            "This tokenizer has no chat template, as that of a model that was trained to continue text. Pass a "
            "prompt as a text, or a template with chat_template=…"
        )
    return str(templates)


def _generated_mask(encoding: Encoding, rendered: Sequence[Rendered]) -> np.ndarray:
    """Returns `(B, T)`, 1 for tokens that contain text within the tag `{% generation %}`."""
    starts, ends = encoding.offsets[..., 0], encoding.offsets[..., 1]
    mask = np.zeros_like(encoding.input_ids)
    for row, each in enumerate(rendered):
        for start, end in each.generated:
            mask[row] |= (starts[row] < end) & (ends[row] > start) & (ends[row] > starts[row])
    return mask

"""Rendering of a conversation with a chat template, as in `transformers`, within limits of time and size."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kerasformer.basics.arguments import check, optional, sequence, shown
from kerasformer.basics.arguments import instance as an_instance
from kerasformer.errors import ChatTemplateError, InputError
from kerasformer.files.reading import JsonMapping, JsonObject

if TYPE_CHECKING:
    from jinja2 import Template

    from kerasformer.tokenization.chat_templates.sandbox import LimitedEnvironment

Message = JsonMapping
"""A message of a conversation: `{"role": "user", "content": "Hello"}`, with further keys if the template reads them."""

Tool = JsonMapping
"""JSON schema of a function that a model may call."""

Document = JsonMapping
"""Text for an answer, with keys that the chat template reads, such as `title` and `text`."""

_OBJECTS = optional(sequence(an_instance("a dict", Mapping)))
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_REASONING = ("reasoning_content", "thinking", "reasoning")
_CONTINUED = "\U0010fffd "
"""Mark at the end of a message to continue: a code point that is never assigned, and a space, which a template that
trims messages removes."""


@dataclass(frozen=True)
class Rendered:
    """A rendered conversation.

    Attributes:
        text: The text, with special tokens.
        generated: Start and end, in characters, of the parts within the tag `{% generation %}`.
    """

    text: str
    generated: tuple[tuple[int, int], ...] = ()


def render(
    template: str,
    messages: Sequence[Message],
    *,
    tools: Sequence[Tool] | None = None,
    documents: Sequence[Document] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
    variables: Mapping[str, object] | None = None,
) -> Rendered:
    """Converts a conversation to text.

    Args:
        template: The template.
        messages: Messages in order. A key may be `None`, as the `content` beside tool calls in OpenAI's form. It is
            left out where the template then fails, or writes `None`.
        tools: JSON schemas of functions that the model may call.
        documents: Texts for the answer, such as `{"title": …, "text": …}`.
        add_generation_prompt: Whether to add the beginning of an answer.
        continue_final_message: Whether to omit everything after the content of the last message.
        variables: Further variables of the template, such as the special tokens.

    Raises:
        ChatTemplateError: the template is not valid, refuses the conversation, reads attributes of Python, or exceeds a
            limit of time or size.
        InputError: the messages, tools or documents are not mappings of plain values, or a role is neither common nor
            named in the template.
    """
    conversation = [_with_reasoning(message) for message in checked_messages(messages)]
    if continue_final_message:
        conversation[-1] = _marked(conversation[-1])
    context = {
        **plain_values(variables or {}, "variables"),
        "tools": plain_values(check("tools", tools, _OBJECTS), "tools"),
        "documents": plain_values(check("documents", documents, _OBJECTS), "documents"),
        "add_generation_prompt": add_generation_prompt,
    }
    text = _best(template, context, conversation)
    _check_roles(conversation, template)
    if continue_final_message:
        text = _before_mark(text)
    return _without_marks(text)


def checked_messages(messages: object) -> list[JsonObject]:
    """Returns messages as plain dictionaries.

    Raises:
        InputError: not a list of messages, or none.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise InputError(
            'A conversation must be a non-empty list of messages, such as {"role": "user", "content": "Hello"}. '
            f"Received: {shown(messages)}"
        )
    for index, message in enumerate(messages):
        fields = message if isinstance(message, Mapping) else {}
        if not isinstance(fields.get("role"), str) or not all(isinstance(name, str) for name in fields):
            raise InputError(
                f'Message {index} must be a dict with a role, such as {{"role": "user", "content": "Hello"}}. '
                f"Received: {shown(message)}"
            )
    plain: list[JsonObject] = plain_values(list(messages), "messages")
    return plain


def _best(template: str, context: Mapping[str, object], conversation: list[JsonObject]) -> str:
    """Renders a conversation with the keys that are `None`, or else without those that the template cannot read.

    With a template that tests `content is none`, only a conversation that has the key is right; others add the content
    to a text, or write it. So the keys are kept, then that of the content alone, then none, as in `transformers`.

    Raises:
        ChatTemplateError: the template fails with all of them.
    """
    versions = [conversation]
    for kept in (("content",), ()):
        version = [{n: v for n, v in message.items() if v is not None or n in kept} for message in conversation]
        versions += [version] if version != versions[-1] else []
    texts, errors = [], []
    for version in versions:
        try:
            texts.append(_run(template, {**context, "messages": version}))
        except ChatTemplateError as error:
            errors.append(error)
    if not texts:
        raise errors[0]
    # Of equal counts, the first.
    return min(texts, key=lambda text: text.count("None"))


def _check_roles(messages: Sequence[Message], template: str) -> None:
    """Checks roles that the template did not refuse; most templates write any role as it is."""
    for index, role in enumerate(message["role"] for message in messages):
        if role in _ROLES or f"'{role}'" in template or f'"{role}"' in template:
            continue
        near = get_close_matches(role, _ROLES, 1)
        raise InputError(
            f"Message {index} has an unknown role. Expected one of {', '.join(_ROLES)}, or another one that the chat "
            f"template names. Received: {role!r}{f'. Did you mean {near[0]!r}?' if near else ''}"
        )


def plain_values(value: object, name: str, level: int = 0) -> Any:
    """Returns a copy of JSON values, so that a template gets no other objects, whose methods might have effects."""
    if level > 100:
        raise InputError(f"{name} must be nested at most 100 levels deep. Received: more")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {plain_values(key, name): plain_values(item, name, level + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_values(item, name, level + 1) for item in list(value))
    raise InputError(
        f"{name} must consist of texts, numbers, lists and dicts. Received: {type(value).__name__}, {shown(value)}"
    )


def _with_reasoning(message: JsonObject) -> JsonObject:
    """Adds a message's reasoning under the names that templates read."""
    texts = [message[name] for name in _REASONING if message.get(name) is not None]
    return {"thinking": texts[0], **message, "reasoning_content": texts[0]} if texts else message


def _marked(message: JsonObject) -> JsonObject:
    """Marks the end of the content of the message to continue."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + _CONTINUED}
    parts = list(content) if isinstance(content, list) else []
    for index in reversed(range(len(parts))):
        if isinstance(parts[index], dict) and isinstance(parts[index].get("text"), str):
            parts[index] = {**parts[index], "text": parts[index]["text"] + _CONTINUED}
            return {**message, "content": parts}
    raise InputError(f"continue_final_message=True requires a last message with text. Received: {shown(message)}")


def _before_mark(text: str) -> str:
    end = text.rfind(_CONTINUED[0])
    if end < 0:
        raise ChatTemplateError(
            "The chat template does not write the content of the last message, which is to be continued. Remove "
            "continue_final_message, or pass another chat_template"
        )
    # The space before the mark would have been trimmed, too.
    return text[:end] if text.startswith(_CONTINUED, end) else text[:end].rstrip()


def _without_marks(text: str) -> Rendered:
    """Returns the text without the marks of the tag `{% generation %}`, and the spans between them."""
    from kerasformer.tokenization.chat_templates.sandbox import GENERATION_MARK

    parts = text.split(GENERATION_MARK)
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    spans = tuple((ends[index], ends[index + 1]) for index in range(1, len(parts), 2))
    return Rendered("".join(parts), spans)


def _run(source: str, context: Mapping[str, object]) -> str:
    """Renders a template; every error becomes a `ChatTemplateError`."""
    from jinja2 import TemplateError, TemplateSyntaxError

    from kerasformer.tokenization.chat_templates.sandbox import RefusalError, limits, written

    try:
        with limits():
            return written(compiled(source).generate(context))
    except TemplateSyntaxError as error:
        raise ChatTemplateError(
            f"The chat template is not valid Jinja in line {error.lineno}, {_line(source, error.lineno)}: "
            f"{error.message}"
        ) from error
    except RefusalError as error:
        raise ChatTemplateError(f"The chat template refuses this conversation: {error}") from error
    except (
        TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        line = _line_number(error.__traceback__)
        where = "" if line is None else f" in line {line}, {_line(source, line)}"
        raise ChatTemplateError(f"The chat template failed{where}: {error}") from error


def _line_number(traceback: TracebackType | None) -> int | None:
    """Returns the last line of the template in a traceback."""
    number = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            number = traceback.tb_lineno
        traceback = traceback.tb_next
    return number


def _line(source: str, number: int) -> str:
    lines = source.splitlines()
    return shown(lines[number - 1].strip()) if 0 < number <= len(lines) else "''"


@lru_cache(maxsize=16)
def compiled(source: str) -> Template:
    """Compiles a template; the result is cached."""
    return _environment().from_string(source)


@lru_cache(maxsize=1)
def _environment() -> LimitedEnvironment:
    from kerasformer.tokenization.chat_templates.sandbox import LimitedEnvironment

    return LimitedEnvironment()

"""Requests in the form of OpenAI's newer API for answers, `/v1/responses`. The server keeps no answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kerasformer.basics.arguments import BOOLEAN, TEXT, instance, sequence
from kerasformer.tools.server.answers import HeldCalls
from kerasformer.tools.server.chat import read_chat
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.replies import ApiError, event
from kerasformer.tools.server.sampling import Sampling
from kerasformer.tools.server.served_model import ServedModel
from kerasformer.tools.server.text_requests import TextRequest
from kerasformer.tools.server.texts import Piece, Usage
from kerasformer.tools.server.tools import Tools

_OBJECT = instance("an object", dict)
_OBJECTS = sequence(_OBJECT)
_INPUT = instance("a string or a list of items", str, list)
_CHOICE = instance("'none', 'auto', 'required' or a function", str, dict)
_OF_CHAT = ("messages", "response_format", "max_tokens", "max_completion_tokens", "n", "logprobs", "functions")
"""Fields of `/v1/chat/completions` that have another name here, or none."""
_UNSUPPORTED = {
    "background": (False,),
    "include": ([],),
    "max_tool_calls": (),
    "prompt": (),
    "reasoning": ({}, {"effort": "none"}),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Fields that this server does not support, with values that ask for nothing."""


def read_response(body: Mapping[str, object], model: ServedModel, limits: Limits) -> TextRequest:
    """Reads a request; it becomes one for an answer to a conversation.

    Raises:
        ApiError: an earlier answer is needed, or a field is wrong or not supported.
    """
    fields = Fields(body)
    _refuse_memory(fields)
    instructions = fields.read("instructions", TEXT)
    messages = [] if instructions is None else [{"role": "system", "content": instructions}]
    given = fields.required("input", _INPUT)
    if not given:
        raise ApiError(400, "input must be a text or a list of items, and not be empty. Received: nothing",
                       param="input")  # fmt: skip
    messages += [{"role": "user", "content": given}] if isinstance(given, str) else _messages(given)
    text = fields.read("text", _OBJECT, {})
    tools = fields.read("tools", _OBJECTS, ())
    choice = fields.read("tool_choice", _CHOICE, "auto")
    for name in _OF_CHAT:
        if body.get(name) is not None:
            raise ApiError(400, f"Unrecognized request argument supplied: {name}", param=name, code="unknown_parameter")
    chat = {
        "messages": messages,
        "response_format": _format(text.get("format")),
        "verbosity": text.get("verbosity"),
        "tools": [_tool(index, tool) for index, tool in enumerate(tools)] or None,
        "tool_choice": _choice(choice),
    }
    fields.ignore("stream_options")
    settings = fields.take_others(_UNSUPPORTED)

    def form(sampling: Sampling, tools: Tools | None) -> ResponseAnswer:
        return ResponseAnswer(model, body, tools)

    return read_chat({**settings, **chat}, model, limits, form=form, lengths=("max_output_tokens",))


def _refuse_memory(fields: Fields) -> None:
    """Refuses requests that need answers of earlier requests, or that want this one to be kept."""
    whole = "This server keeps no answers. Send the whole conversation in input"
    for name in ("previous_response_id", "conversation"):
        if fields.read(name, instance("a string or an object", str, dict)) is not None:
            raise ApiError(400, f"{whole}, without {name}", param=name, code="unsupported_parameter")
    if fields.read("store", BOOLEAN, False):
        raise ApiError(400, f"{whole}, with store=false. Received: store=true", param="store",
                       code="unsupported_parameter")  # fmt: skip


def _messages(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns the items of a conversation as messages."""
    messages: list[dict[str, Any]] = []
    names: dict[object, object] = {}
    for index, item in enumerate(items):
        where = f"input[{index}]"
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            role = item.get("role")
            role = "system" if role == "developer" else role
            messages.append({"role": role, "content": _content(where, item.get("content"))})
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            id = _call_id(where, item)
            call = {"id": id, "type": "function", "function": function}
            names[id] = item.get("name")
            if messages and messages[-1]["role"] == "assistant":
                messages[-1].setdefault("tool_calls", []).append(call)
            else:
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind == "function_call_output":
            id, output = _call_id(where, item), _content(where, item.get("output"))
            named = {"name": names[id]} if id in names else {}
            messages.append({"role": "tool", "tool_call_id": id, "content": output, **named})
        else:
            raise ApiError(
                400,
                f"{where} must be a message, a function_call or a function_call_output. Received: "
                f"{str(kind)[:40] if isinstance(item, dict) else 'no object'}",
                param=where,
            )
    return messages


def _call_id(where: str, item: Mapping[str, object]) -> str | None:
    id = item.get("call_id")
    if id is not None and not isinstance(id, str):
        raise ApiError(400, f"{where} must have a string as call_id. Received: another value", param=where)
    return id


def _content(where: str, content: object) -> str:
    """Returns the text of a message or of the result of a function."""
    if isinstance(content, str):
        return content
    kinds = ("input_text", "output_text", "text")
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") in kinds]
    if not parts or len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise ApiError(
            400, f"{where} needs a text, or a list of parts of the type input_text. Received: others", param=where
        )
    return "\n".join(map(str, texts))


def _format(form: object) -> object:
    """Returns the form of the answer as `/v1/chat/completions` has it."""
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}


def _tool(index: int, tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise ApiError(
            400,
            f"tools[{index}] must be a function, which the client calls. Received: {str(tool.get('type'))[:40]}",
            param="tools",
        )
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _choice(choice: Any) -> Any:
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


class ResponseAnswer:
    """Answer to a request, whole or as events.

    Args:
        model: The model.
        body: The request, whose settings the answer repeats.
        tools: Functions that the answer may call, if there are any.
    """

    def __init__(self, model: ServedModel, body: Mapping[str, Any], tools: Tools | None) -> None:
        self._tools, self._held, self._count = tools, HeldCalls(tools), 0
        self._text, self._items = "", list[dict[str, Any]]()
        self._message: str | None = None
        self._reason: str | None = None
        self._head = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model.name,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": body.get("temperature"),
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": body.get("top_p"),
            "truncation": "disabled",
        }

    def whole(self, texts: Sequence[Sequence[Piece]], usage: Usage) -> dict[str, object]:
        """Returns the whole answer."""
        (pieces,) = texts
        text, calls = "".join(piece.text for piece in pieces), list[dict[str, Any]]()
        if self._tools is not None:
            text, calls = self._tools.split(text)
        items = ([] if calls and not text else [_message(text, _id("msg"))]) + [_call(call) for call in calls]
        return self._response(items, pieces[-1].finish_reason, usage)

    def opening(self, count: int) -> Iterator[bytes]:
        """Yields the events of an answer that begins."""
        response = {**self._head, "status": "in_progress", "output": [], "error": None, "incomplete_details": None}
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response={**response, "usage": None})

    def events(self, piece: Piece) -> Iterator[bytes]:
        """Yields the events of a piece: a text as it is generated, and calls at the end."""
        is_last = piece.finish_reason is not None
        text, calls = self._held.put(piece.text, is_last)
        if text or (is_last and not calls and not self._text):
            yield from self._delta(text)
        if not is_last:
            return
        self._reason = piece.finish_reason
        if self._text or not calls:
            yield from self._message_ends()
        for call in map(_call, calls):
            yield from self._called(call)

    def closing(self, usage: Usage) -> Iterator[bytes]:
        """Yields the event with the whole answer."""
        response = self._response(self._items, self._reason, usage)
        yield self._event(f"response.{response['status']}", response=response)

    def failing(self, error: ApiError) -> Iterator[bytes]:
        """Yields the event of an answer that an error ends."""
        yield self._event("error", code=error.code, message=error.message, param=error.param)

    def _response(self, items: list[dict[str, Any]], reason: str | None, usage: Usage) -> dict[str, Any]:
        is_whole = reason != "length"
        return {
            **self._head,
            "status": "completed" if is_whole else "incomplete",
            "error": None,
            "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
            "output": items,
            "usage": {
                "input_tokens": usage.prompt,
                "input_tokens_details": {"cached_tokens": usage.reused},
                "output_tokens": usage.new,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt + usage.new,
            },
        }

    def _delta(self, text: str) -> Iterator[bytes]:
        """Yields the events of a part of the text."""
        if self._message is None:
            self._message = _id("msg")
            item = {**_message("", self._message), "status": "in_progress", "content": []}
            yield self._event("response.output_item.added", output_index=0, item=item)
            yield self._event("response.content_part.added", **self._place(), part=_part(""))
        self._text += text
        if text:
            yield self._event("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def _message_ends(self) -> Iterator[bytes]:
        item = _message(self._text, str(self._message))
        self._items.append(item)
        yield self._event("response.output_text.done", **self._place(), text=self._text, logprobs=[])
        yield self._event("response.content_part.done", **self._place(), part=_part(self._text))
        yield self._event("response.output_item.done", output_index=0, item=item)

    def _called(self, call: dict[str, Any]) -> Iterator[bytes]:
        place = {"item_id": call["id"], "output_index": len(self._items)}
        added = {**call, "arguments": "", "status": "in_progress"}
        self._items.append(call)
        yield self._event("response.output_item.added", output_index=place["output_index"], item=added)
        yield self._event("response.function_call_arguments.delta", **place, delta=call["arguments"])
        yield self._event(
            "response.function_call_arguments.done", **place, name=call["name"], arguments=call["arguments"]
        )
        yield self._event("response.output_item.done", output_index=place["output_index"], item=call)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._message, "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **content: Any) -> bytes:
        self._count += 1
        return event({"type": kind, "sequence_number": self._count - 1, **content}, kind)


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message(text: str, id: str) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": "assistant", "status": "completed", "content": [_part(text)]}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Returns a call in this form from that of `/v1/chat/completions`."""
    function = {name: call["function"][name] for name in ("name", "arguments")}
    return {"type": "function_call", "id": _id("fc"), "call_id": call["id"], **function, "status": "completed"}

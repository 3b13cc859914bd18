"""Requests for answers to conversations, `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kerasformer.basics.arguments import BOOLEAN, instance, sequence
from kerasformer.errors import SourceError
from kerasformer.files.reading import parse_json
from kerasformer.tools.server.answers import Answer, ChatAnswer
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.replies import ApiError
from kerasformer.tools.server.sampling import Sampling, read_sampling, top_candidates
from kerasformer.tools.server.served_model import ServedModel
from kerasformer.tools.server.text_requests import TextRequest
from kerasformer.tools.server.tools import Tools, read_tools

_OBJECT = instance("an object", dict)
_UNSUPPORTED = {
    "audio": (),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields that this server does not support, with values that ask for nothing."""


def read_chat(
    body: Mapping[str, object],
    model: ServedModel,
    limits: Limits,
    *,
    form: Callable[[Sampling, Tools | None], Answer] | None = None,
    lengths: tuple[str, ...] = ("max_completion_tokens", "max_tokens"),
) -> TextRequest:
    """Reads a request.

    Args:
        body: The request.
        model: Its model.
        limits: Limits of the server.
        form: Returns the form of the answer; by default that of a conversation.
        lengths: Names of the field for the number of new tokens.
    Raises:
        ApiError: the model is for other requests, or a field is wrong or not supported.
    """
    fields = Fields(body)
    fields.ignore("model")
    if model.pipe.task != "text-generation":
        raise ApiError(
            400, f"{model.name} is for {model.pipe.task} and has no conversations. Use another model", param="model"
        )
    if not model.pipe.tokenizer.chat_template:
        raise ApiError(
            400,
            f"{model.name} has no chat template, as a model that was trained to continue text. Use /v1/completions, or "
            "another model",
            param="model",
        )
    messages = [_message(index, each) for index, each in enumerate(_messages(fields))]
    tools = read_tools(fields, model)
    options: dict[str, object] = {
        "continue_final_message": fields.read("continue_final_message", BOOLEAN, False),
        "chat_template_kwargs": fields.read("chat_template_kwargs", _OBJECT),
        "tools": tools and tools.described,
    }
    vocab_size = model.pipe.model.vocab_size
    sampling = read_sampling(fields, limits, num_prompts=1, vocab_size=vocab_size, default_tokens=None, lengths=lengths)
    if tools is not None and tools.forced:
        sampling.settings["grammar"] = tools.grammar
    count = fields.read("top_logprobs", top_candidates(None))
    wanted = fields.read("logprobs", BOOLEAN, False)
    if count and not wanted:
        raise ApiError(400, "top_logprobs needs logprobs=true. Received: logprobs=false", param="top_logprobs")
    fields.refuse_others(_UNSUPPORTED)
    num_candidates = (count or 0) if wanted else None
    answer: Answer
    if form is None:
        answer = ChatAnswer(model, wanted, sampling.includes_usage, tools)
    else:
        answer = form(sampling, tools)
    return TextRequest(model, [messages], options, sampling, num_candidates, answer)


def _messages(fields: Fields) -> tuple[dict[str, Any], ...]:
    messages: tuple[dict[str, object], ...] = fields.required("messages", sequence(_OBJECT, least=1))
    return messages


def _message(index: int, message: dict[str, Any]) -> dict[str, Any]:
    """Returns a message whose content is a text, as chat templates expect it."""
    name = f"messages[{index}]"
    if not isinstance(message.get("role"), str):
        raise ApiError(400, f"{name} needs a role, such as 'user'", param=f"{name}.role")
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            raise ApiError(
                400, f"{name}.content must consist of parts of the type 'text'. Received: others", param=name
            )
        content = "\n".join(map(str, texts))
    elif not isinstance(content, str) and (content is not None or message.get("tool_calls") is None):
        # Chat templates would write null as a text.
        raise ApiError(400, f"{name}.content must be a string or a list of parts", param=f"{name}.content")
    return {**message, "content": content, **_calls(name, message)}


def _calls(name: str, message: dict[str, Any]) -> dict[str, Any]:
    """Returns the calls of tools in an earlier answer, with the arguments as an object, as chat templates expect it."""
    calls = message.get("tool_calls")
    if calls is None:
        return {}
    try:
        functions = [dict(call["function"]) for call in calls]
        for function in functions:
            if isinstance(function.get("arguments"), str):
                function["arguments"] = parse_json(function["arguments"], f"{name}.tool_calls")
        return {"tool_calls": [{**call, "function": each} for call, each in zip(calls, functions, strict=True)]}
    except (KeyError, SourceError, TypeError, ValueError):
        raise ApiError(
            400,
            f"{name}.tool_calls must be a list of calls with a function, whose arguments are JSON",
            param=f"{name}.tool_calls",
        ) from None

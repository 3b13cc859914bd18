"""Calls of functions in answers: how the model's template writes them, their grammar, and their form in the API."""

from __future__ import annotations

import json
import os.path
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerasformer.basics.arguments import instance, sequence
from kerasformer.errors import KerasformerError
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.replies import ApiError
from kerasformer.tools.server.served_model import ServedModel

_OBJECT = instance("an object", dict)
_NAME, _KEY, _TEXT = "name_of_a_function", "key_of_an_argument", "§"
"""Parts of the conversations that show how a template writes calls."""
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
_SPACES = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}


@dataclass(frozen=True)
class CallForm:
    """How a call is written: texts around the name and the arguments, which are JSON.

    Attributes:
        before: Text before the name.
        between: Text between the name and the arguments.
        after: Text after the arguments.
    """

    before: str
    between: str
    after: str


_JSON = CallForm('{"name": "', '", "arguments": ', "}")
"""Form of calls for models whose template describes functions and writes no calls."""


@dataclass(frozen=True)
class Tools:
    """The functions of a request.

    Attributes:
        described: Functions as the chat template describes them to the model.
        schemas: JSON schema of the arguments of each function that may be called, by its name.
        form: How calls are written.
        forced: Whether the answer must be a call.
    """

    described: tuple[dict[str, object], ...]
    schemas: Mapping[str, Mapping[str, object]]
    form: CallForm
    forced: bool

    @property
    def grammar(self) -> str:
        """Grammar of one call in the syntax of Lark."""
        rules = [f"start: {' | '.join(f'call_{index}' for index in range(len(self.schemas)))}"]
        for index, (name, schema) in enumerate(self.schemas.items()):
            before, after = _literal(self.form.before + name + self.form.between), _literal(self.form.after)
            rules.append(f"call_{index}: {before} arguments_{index} {after}")
            rules.append(f"arguments_{index}: %json {json.dumps({'x-guidance': _SPACES, **schema})}")
        return "\n".join(rules)

    @property
    def marker(self) -> str:
        """Beginning of a call, before which an answer is text."""
        return next(iter(self.form.before.split()), "")

    def split(self, text: str) -> tuple[str, list[dict[str, object]]]:
        """Returns the text of an answer without its calls, and the calls in the form of the API."""
        names = "|".join(map(re.escape, self.schemas))
        start = re.compile(f"{_flexible(self.form.before)}({names}){_flexible(self.form.between)}\\s*")
        rest, calls, position = "", [], 0
        while found := start.search(text, position):
            try:
                arguments, end = json.JSONDecoder().raw_decode(text, found.end())
            except (ValueError, RecursionError):
                break
            rest += text[position : found.start()]
            calls.append(_call(found[1], json.dumps(arguments, ensure_ascii=False)))
            closed = re.compile(f"\\s*{_flexible(self.form.after)}").match(text, end)
            position = end if closed is None else closed.end()
        rest += text[position:]
        return rest.strip() if calls else rest, calls


def read_tools(fields: Fields, model: ServedModel) -> Tools | None:
    """Reads the functions of a request; returns `None` if the model must not know of any.

    Raises:
        ApiError: a wrong field, or a chat template that cannot describe functions, or not how they are called.
    """
    tools: tuple[dict[str, Any], ...] = fields.read("tools", sequence(_OBJECT), ())
    choice = fields.read("tool_choice", instance("'none', 'auto', 'required' or a function", str, dict), "auto")
    schemas = dict(_schema(index, tool) for index, tool in enumerate(tools))
    chosen = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = chosen.get("name") if isinstance(chosen, dict) else None
    if name is None and choice not in ("none", "auto", "required"):
        raise ApiError(
            400,
            "tool_choice must be 'none', 'auto', 'required', or "
            '{"type": "function", "function": {"name": …}}. Received: something else',
            param="tool_choice",
        )
    if choice == "none" or (choice == "auto" and not tools):
        return None
    if name not in (None, *schemas) or not tools:
        raise ApiError(
            400,
            f"tool_choice needs a function of tools. Expected: {', '.join(schemas) or 'tools'}",
            param="tool_choice",
        )
    form = _form(model.pipe.tokenizer, tools[0])
    if form is None:
        raise ApiError(
            400,
            f"The chat template of {model.name} does not describe tools to the model. Use response_format with a JSON "
            "schema, or another model",
            param="tools",
        )
    forced = choice != "auto"
    result = Tools(tools, schemas if name is None else {name: schemas[name]}, form, forced)
    if not forced and (form is _JSON or not result.marker):
        raise ApiError(
            400,
            f"The chat template of {model.name} does not show how calls begin, so that they cannot be told from text. "
            "Expected: tool_choice='required', 'none' or a function. Received: 'auto'",
            param="tool_choice",
        )
    return result


def _schema(index: int, tool: dict[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Returns the name of a function and the JSON schema of its arguments."""
    function = tool.get("function") if tool.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    schema = (function or {}).get("parameters") or _NO_PARAMETERS
    if not isinstance(name, str) or not re.fullmatch("[a-zA-Z0-9_.-]{1,64}", name) or not isinstance(schema, dict):
        raise ApiError(
            400,
            f'tools[{index}] must be {{"type": "function", "function": {{"name": …, "parameters": …}}}}, with a name '
            "of at most 64 letters, digits, dots, dashes and underscores, and a JSON schema. Received: something else",
            param="tools",
        )
    return name, schema


def _form(tokenizer: Tokenizer, tool: dict[str, Any]) -> CallForm | None:
    """Returns how a chat template writes calls; `None` if it does not describe functions to the model."""

    def rendered(*messages: dict[str, Any], tools: Sequence[dict[str, Any]] | None = (tool,)) -> str:
        try:
            return str(
                tokenizer.apply_chat_template([{"role": "user", "content": _TEXT}, *messages], tools, tokenize=False)
            )
        except KerasformerError:  # a template that refuses such a conversation
            return ""

    if rendered() == rendered(tools=None):
        return None
    function = {"name": _NAME, "arguments": {_KEY: _TEXT}}
    call = {"id": "call00000", "type": "function", "function": function}
    text = rendered({"role": "assistant", "content": _TEXT})
    called = rendered({"role": "assistant", "content": "", "tool_calls": [call]})
    start = len(os.path.commonprefix([text, called]))
    end = len(os.path.commonprefix([text[start:][::-1], called[start:][::-1]]))
    written = called[start : len(called) - end]
    for token in tokenizer.all_special_ids:  # they are not part of the text of an answer
        written = written.replace(tokenizer.id_to_token(token) or "\0", "")
    parts = re.fullmatch(rf'(.*?){_NAME}(.*?){{\s*"{_KEY}":\s*"(?:{_TEXT}|\\u00a7)"\s*}}(.*)', written, re.DOTALL)
    return CallForm(parts[1].lstrip(), parts[2], parts[3].rstrip()) if parts else _JSON


def _call(name: str, arguments: str) -> dict[str, object]:
    return {
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _literal(text: str) -> str:
    """Returns a text in the syntax of Lark."""
    return json.dumps(text, ensure_ascii=False) if text else '""'


def _flexible(text: str) -> str:
    """Returns a regular expression of a text whose spaces may be others."""
    return r"\s*".join(re.escape(part) for part in re.split(r"\s+", text))

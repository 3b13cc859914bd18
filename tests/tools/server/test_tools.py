"""How chat templates write calls of functions, which is read from the templates themselves."""

from __future__ import annotations

import json

import pytest

from kerasformer.tokenization import Tokenizer
from kerasformer.tools.server.tools import CallForm, Tools, _form
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.core.tokenization.chat_templates.conversations import TEMPLATES, TOOL

HEAD = """{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}{{ '<|im_start|>' ~ message.role }}
{{ message.content }}"""
TAIL = "<|im_end|>\n{% endfor %}"
CALL = "{% for call in message.tool_calls or [] %}"
FORMS = {
    "chatml": (TEMPLATES["chatml"], None),
    "name first": (TEMPLATES["tools"], CallForm("", "(", ")1 of 1")),
    "tag": (
        HEAD + CALL + '\n<tool_call>\n{"name": "{{ call.function.name }}", '
        '"arguments": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}' + TAIL,
        CallForm('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>"),
    ),
    "bare": (
        HEAD + CALL + '{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}'
        "{% endfor %}" + TAIL,
        CallForm('{"name": "', '", "parameters": ', "}"),
    ),
    "special token": (
        HEAD + CALL + "<|assistant|>[{{ call.function | tojson }}]{% endfor %}" + TAIL,
        CallForm('[{"name": "', '", "arguments": ', "}]"),
    ),
    "no calls": (HEAD + TAIL, CallForm('{"name": "', '", "arguments": ', "}")),
}


@pytest.mark.parametrize("case", FORMS)
def test_the_form_of_calls(case, monkeypatch):
    template, expected = FORMS[case]
    tokenizer = Tokenizer.load(shared_chat("checkpoint"))
    monkeypatch.setattr(tokenizer, "chat_template", template)
    assert _form(tokenizer, TOOL) == expected


@pytest.mark.parametrize(
    ("text", "content", "arguments"),
    [
        ('<call> {"name":"f", "arguments": {"a": [1]}}</call>', "", ['{"a": [1]}']),
        ('One.\n<call>{"name": "f", "arguments": {}}\n</call>', "One.", ["{}"]),
        ('<call>{"name": "g", "arguments": {}}</call>', None, []),
        ('<call>{"name": "f", "arguments": {"a"', None, []),
        ("No call. ", None, []),
    ],
)
def test_calls_in_a_text(text, content, arguments):
    """What is no call of a known function, or has no whole arguments, stays text as it is."""
    tools = Tools((), {"f": {}}, CallForm('<call>\n{"name": "', '", "arguments": ', "}\n</call>"), forced=False)
    rest, calls = tools.split(text)
    assert rest == (text if content is None else content)
    assert [call["function"]["arguments"] for call in calls] == arguments
    assert all(json.loads(call["function"]["arguments"]) is not None for call in calls)

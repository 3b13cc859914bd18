"""OpenAI's API for answers, `/v1/responses`, through its client: the texts are those of `/v1/chat/completions`."""

from __future__ import annotations

import json

import pydantic
import pytest

from kerasformer.tools.server.responses import _messages
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.extras import need
from tests.tools.server.servers import running

openai = need("openai")
from tests.tools.server.test_texts import CALLING, MESSAGES, SCHEMA, TOOLS

FUNCTIONS = [{"type": "function", **tool["function"]} for tool in TOOLS]
ASKED = {"model": "m", "instructions": MESSAGES[0]["content"], "input": MESSAGES[1]["content"], "temperature": 0}


@pytest.fixture(scope="module")
def server():
    with running([f"m={shared_chat('onnx')}"], reuse=False) as server:
        yield server


def test_an_answer_whole_and_in_events(server):
    chat = server.client().chat.completions.create(model="m", messages=MESSAGES, temperature=0, max_tokens=100)
    answer = server.client().responses.create(**ASKED, max_output_tokens=100, store=False, metadata={"a": "b"})
    assert answer.output_text == chat.choices[0].message.content
    assert (answer.status, answer.metadata) == ("completed", {"a": "b"})
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
        chat.usage.prompt_tokens,
        chat.usage.completion_tokens,
    )
    events = [*server.client().responses.create(**ASKED, max_output_tokens=100, stream=True)]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == answer.output_text
    assert events[-1].response.output_text == answer.output_text and events[-1].response.usage == answer.usage
    with server.client().responses.stream(**ASKED, max_output_tokens=100) as stream:
        assert stream.get_final_response().output_text == answer.output_text


def test_an_answer_that_is_cut(server):
    long = {**ASKED, "max_output_tokens": 3, "extra_body": {"logit_bias": {"1": -100, "3": -100}}}
    answer = server.client().responses.create(**long)
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    *_, last = server.client().responses.create(**long, stream=True)
    assert last.type == "response.incomplete" and last.response.output_text == answer.output_text


def test_a_json_schema(server):
    form = {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
    answer = server.client().responses.create(**ASKED, max_output_tokens=60, text={"format": form})
    assert json.loads(answer.output_text).keys() == SCHEMA["properties"].keys() and answer.status == "completed"

    class Late(pydantic.BaseModel):
        late: bool

    parsed = server.client().responses.parse(**ASKED, max_output_tokens=60, text_format=Late)
    assert isinstance(parsed.output_parsed, Late)


def test_calls_of_functions(server, monkeypatch):
    monkeypatch.setattr(server.models["m"].pipe.tokenizer, "chat_template", CALLING)
    asked = {**ASKED, "max_output_tokens": 90, "tools": FUNCTIONS}
    choice = {"type": "function", "name": "answer"}
    (call,) = server.client().responses.create(**asked, tool_choice=choice).output
    assert (call.type, call.name) == ("function_call", "answer") and call.call_id.startswith("call_")
    assert json.loads(call.arguments).keys() == SCHEMA["properties"].keys()
    events = [*server.client().responses.create(**asked, tool_choice=choice, stream=True)]
    kinds = [event.type.removeprefix("response.") for event in events[2:]]
    assert kinds == ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
                     "output_item.done", "completed"]  # fmt: skip
    assert events[-1].response.output[0].arguments == call.arguments
    # What it said, and what the function returned, is the next request.
    given = [{"role": "user", "content": "Who?"}, call.model_dump(), 
             {"type": "function_call_output", "call_id": call.call_id, "output": "Alice"}]  # fmt: skip
    assert server.client().responses.create(**{**asked, "input": given}, tool_choice="none").output_text
    pipe = server.models["m"].pipe
    prompt, written = pipe.prompt, 'Late! <call>\n{"name": "wait", "arguments": {}}\n</call>'
    monkeypatch.setattr(pipe, "prompt", lambda *inputs, **options: prompt(*inputs, **options, choices=[written]))
    events = [*server.client().responses.create(**asked, stream=True)]
    message, call = events[-1].response.output
    assert message.content[0].text == "Late! " and call.name == "wait"
    assert [item.type for item in server.client().responses.create(**asked).output] == ["message", "function_call"]


def test_items():
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text} for text in ("a", "b")]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]},
        {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "x", "output": "c"},
    ]
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert _messages(items) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "Wait.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "name": "f", "content": "c"},
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"previous_response_id": "resp_1"},
            "keeps no answers. Send the whole conversation in input, without p",
        ),
        ({"store": True}, "with store=false"),
        ({"reasoning": {"effort": "high"}}, "does not support 'reasoning'"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0. must be a message"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0. needs a text"),
        ({"input": [{"type": "function_call", "call_id": ["x"], "name": "f", "arguments": "{}"}]}, "string as call_id"),
        ({"tools": [{"type": "web_search"}]}, "tools.0. must be a function"),
        ({"extra_body": {"late": 2}}, "argument supplied: late"),
    ],
)
def test_refusals(server, change, message):
    with pytest.raises(openai.BadRequestError, match=message):
        server.client().responses.create(**{**ASKED, "stream": True, **change})


def test_an_error_in_a_stream(server, monkeypatch):
    engine, steps = server.models["m"].pipe.model.engine, []
    step = engine.step

    def failing(*arguments):
        steps.append(1)
        if len(steps) > 2:
            raise RuntimeError("private")
        return step(*arguments)

    monkeypatch.setattr(engine, "step", failing)
    long = {"max_output_tokens": 8, "extra_body": {"logit_bias": {"1": -100, "3": -100}}}
    *_, last = server.client().responses.create(**ASKED, **long, stream=True)
    assert (last.type, last.code) == ("error", "internal_error") and "private" not in last.message

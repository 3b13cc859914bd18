"""Texts through the client of OpenAI, on two runtimes: they are those of the pipeline."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pydantic
import pytest

import kerasformer as kf
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.extras import need
from tests.tools.server.servers import running

openai = need("openai")

ENGINES = ["tflite", "onnx"]
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is it?"}]
PROMPT = "Who is it? It is late"
SCHEMA = {
    "type": "object",
    "properties": {"late": {"type": "boolean"}, "who": {"enum": ["Alice", "Rabbit"]}},
    "required": ["late", "who"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server():
    with running([f"{name}={shared_chat(name)}" for name in ENGINES]) as server:
        yield server


@pytest.fixture(scope="module")
def independent():
    """Without the caches of earlier texts: in a longer text, ONNX Runtime rounds differently."""
    with running([f"{name}={shared_chat(name)}" for name in ENGINES], reuse=False) as server:
        yield server


@pytest.fixture(scope="module")
def pipes():
    return {name: kf.pipeline(shared_chat(name)) for name in ENGINES}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_answer_whole_and_in_pieces(server, pipes, engine):
    expected = pipes[engine](MESSAGES, return_full_text=False, max_new_tokens=8, do_sample=False)[0]["generated_text"]
    asked = {"model": engine, "messages": MESSAGES, "max_completion_tokens": 8, "temperature": 0}
    answer = server.client().chat.completions.create(**asked)
    assert answer.choices[0].message.content == expected
    assert answer.choices[0].finish_reason in ("stop", "length") and answer.choices[0].logprobs is None
    length = pipes[engine].apply_chat_template(MESSAGES, add_generation_prompt=True).input_ids.shape[1]
    assert answer.usage.prompt_tokens == length and 0 < answer.usage.completion_tokens <= 8
    chunks = [*server.client().chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == expected
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == answer.choices[0].finish_reason
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (length, answer.usage.completion_tokens)
    assert usage.prompt_tokens_details.cached_tokens == length - 1  # the same conversation was just read


@pytest.mark.parametrize("engine", ENGINES)
def test_a_json_schema(server, engine):
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    asked = {"model": engine, "messages": MESSAGES, "max_tokens": 60, "response_format": form}
    first, second = (server.client().chat.completions.create(**asked, seed=seed) for seed in (1, -1))
    for answer in (first, second):
        value = json.loads(answer.choices[0].message.content)
        assert value.keys() == {"late", "who"} and value["who"] in ("Alice", "Rabbit")
        assert answer.choices[0].finish_reason == "stop"
    anything = server.client().chat.completions.create(**{**asked, "response_format": {"type": "json_object"}})
    assert isinstance(json.loads(anything.choices[0].message.content), dict)


def test_a_json_schema_that_the_budget_closes(server):
    """The text is whole, which clients learn from the reason; a budget for no text at all is refused at once."""

    class Answer(pydantic.BaseModel):
        why: str

    asked = {"model": "onnx", "messages": MESSAGES, "response_format": Answer, "seed": 1}
    answer = server.client().chat.completions.parse(**asked, max_tokens=20)
    assert answer.choices[0].message.parsed.why and answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 20
    with pytest.raises(openai.BadRequestError, match=r"at least \d+ new tokens. Received: max_new_tokens=3"):
        server.client().chat.completions.parse(**asked, max_tokens=3)


@pytest.mark.parametrize("engine", ENGINES)
def test_log_probabilities_are_those_of_the_model(server, pipes, engine):
    output = pipes[engine](PROMPT, raw=True, max_new_tokens=5, do_sample=False, output_logits=True)
    logits = output.logits[0].astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    ids = output.sequences[0]
    asked = {"model": engine, "prompt": PROMPT, "max_tokens": 5, "temperature": 0}
    whole = server.client().completions.create(**asked, logprobs=3).choices[0]
    chosen = logs[np.arange(len(ids)), ids]
    count = len(whole.logprobs.token_logprobs)  # an end token is no text
    np.testing.assert_allclose(whole.logprobs.token_logprobs, chosen[:count], atol=1e-4)
    assert all(max(best.values()) == pytest.approx(row.max(), abs=1e-4)
               for best, row in zip(whole.logprobs.top_logprobs, logs, strict=False))  # fmt: skip
    chunks = server.client().completions.create(**asked, logprobs=3, stream=True)
    parts = [chunk.choices[0] for chunk in chunks]
    assert "".join(part.text for part in parts) == whole.text
    assert [log for part in parts if part.logprobs for log in part.logprobs.token_logprobs] == (
        whole.logprobs.token_logprobs
    )


def test_the_tokens_of_an_answer_are_its_bytes(server):
    asked = {"model": "tflite", "messages": MESSAGES, "max_tokens": 12, "seed": 3}
    choice = server.client().chat.completions.create(**asked, logprobs=True, top_logprobs=20).choices[0]
    content = choice.logprobs.content
    assert bytes(byte for token in content for byte in token.bytes).decode(errors="replace") == choice.message.content
    assert all(len(token.top_logprobs) == 20 for token in content)


@pytest.mark.parametrize("engine", ENGINES)
def test_several_texts_with_a_seed(server, pipes, engine):
    settings = {"num_return_sequences": 3, "do_sample": True, "max_new_tokens": 6, "seed": 7, "top_p": 0.9}
    expected = [each["generated_text"] for each in pipes[engine](PROMPT, raw=True, return_full_text=False, **settings)]
    assert len(set(expected)) > 1
    asked = {"model": engine, "prompt": PROMPT, "n": 3, "max_tokens": 6, "seed": 7, "top_p": 0.9}
    answer = server.client().completions.create(**asked)
    assert [choice.text for choice in answer.choices] == expected
    texts = {}
    for chunk in server.client().completions.create(**asked, stream=True):
        texts[chunk.choices[0].index] = texts.get(chunk.choices[0].index, "") + chunk.choices[0].text
    assert [texts[index] for index in range(3)] == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_the_log_probabilities_of_a_prompt(server, pipes, engine):
    """As harnesses for evaluation ask for them: tokens of the prompt first, without a value for the first one."""
    ids = pipes[engine].tokenizer(PROMPT * 6).input_ids[0].tolist()
    asked = {"model": engine, "prompt": ids, "temperature": 0, "logprobs": 1, "echo": True}
    one, none = (server.client().completions.create(**asked, max_tokens=count).choices[0] for count in (1, 0))
    logs = one.logprobs
    assert len(logs.tokens) == len(logs.top_logprobs) == len(logs.text_offset) == len(ids) + 1
    assert logs.token_logprobs[0] is logs.top_logprobs[0] is None
    expected = kf.sequence_logprob(pipes[engine], ids)
    assert sum(logs.token_logprobs[1:-1]) == pytest.approx(expected, abs=1e-3)
    best = [next(iter(top.values())) for top in logs.top_logprobs[1:]]
    assert all(log <= top for log, top in zip(logs.token_logprobs[1:], best, strict=True))
    assert logs.token_logprobs[-1] == best[-1]  # the new token is the most probable one
    assert "".join(logs.tokens[:-1]) == PROMPT * 6
    assert [(PROMPT * 6).startswith(token, start) for token, start in zip(logs.tokens, logs.text_offset, strict=True)][
        :-1
    ] == [True] * len(ids)
    assert none.text == PROMPT * 6 and none.finish_reason == "length"
    assert none.logprobs.token_logprobs == logs.token_logprobs[:-1]
    parts = [chunk.choices[0] for chunk in server.client().completions.create(**asked, max_tokens=1, stream=True)]
    assert "".join(part.text for part in parts) == one.text
    assert [log for part in parts if part.logprobs for log in part.logprobs.token_logprobs] == logs.token_logprobs


def test_an_end_token_has_its_log_probability_after_a_prompt(server):
    """Harnesses drop the last value, which must be that of the new token."""
    asked = {"model": "onnx", "prompt": PROMPT, "max_tokens": 4, "logprobs": 1, "echo": True, "temperature": 0}
    answer = server.client().completions.create(**asked, logit_bias={"1": 100})
    assert answer.choices[0].finish_reason == "stop" and answer.choices[0].text == PROMPT
    logs = answer.choices[0].logprobs
    assert logs.tokens[-1] == "</s>" and len(logs.tokens) == answer.usage.total_tokens


def test_several_greedy_texts_are_the_same(server):
    asked = {"model": "onnx", "prompt": [PROMPT, "late"], "max_tokens": 4, "temperature": 0}
    texts = [choice.text for choice in server.client().completions.create(**asked).choices]
    answer = server.client().completions.create(**asked, n=2)
    assert [choice.text for choice in answer.choices] == [text for text in texts for _ in range(2)]
    streamed = ["", "", "", ""]
    for chunk in server.client().completions.create(**asked, n=2, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == [text for text in texts for _ in range(2)]


def test_several_prompts_texts_and_tokens(server, pipes):
    ids = pipes["onnx"].tokenizer(PROMPT).input_ids[0].tolist()
    asked = {"model": "onnx", "max_tokens": 4, "temperature": 0, "echo": True}
    alone = [server.client().completions.create(prompt=text, **asked).choices[0].text for text in (PROMPT, "late")]
    together = server.client().completions.create(prompt=[PROMPT, "late"], **asked)
    assert [choice.text for choice in together.choices] == alone
    assert server.client().completions.create(prompt=ids, **asked).choices[0].text == alone[0]
    assert alone[0].startswith(PROMPT)


def test_stop_sequences_are_not_part_of_a_text(server):
    asked = {"model": "tflite", "prompt": PROMPT, "max_tokens": 40, "seed": 1}
    whole = server.client().completions.create(**asked).choices[0].text
    stop = whole[9:12]
    answer = server.client().completions.create(**asked, stop=["unlikely", stop])
    assert answer.choices[0].text == whole[: whole.index(stop)] and answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens < 40
    chunks = server.client().completions.create(**asked, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text


def test_a_stop_sequence_that_begins_in_the_prompt_does_not_count(server):
    asked = {"model": "tflite", "prompt": PROMPT, "max_tokens": 12, "seed": 1, "n": 2}
    whole = server.client().completions.create(**asked)
    stops = [PROMPT[-2:] + choice.text[:2] for choice in whole.choices]
    assert not any(stop in choice.text for stop in stops for choice in whole.choices)
    answer = server.client().completions.create(**asked, stop=stops)
    assert answer.choices == whole.choices and answer.usage.completion_tokens == whole.usage.completion_tokens


def test_the_number_of_texts_is_that_of_the_request(server, monkeypatch):
    """Whatever the settings of the model say."""
    pipe = server.models["onnx"].pipe
    settings = pipe.generation_config.replace(do_sample=True, num_return_sequences=3)
    monkeypatch.setattr(pipe, "generation_config", settings)
    assert len(server.client().completions.create(model="onnx", prompt=PROMPT, max_tokens=2).choices) == 1


def test_biases_and_penalties(server, pipes):
    tokenizer = pipes["tflite"].tokenizer
    token = tokenizer.encode("late", add_special_tokens=False)[0]
    asked = {"model": "tflite", "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logit_bias": {str(token): 5}}
    text = server.client().completions.create(**asked).choices[0].text
    assert text == tokenizer.decode([token] * 6)
    less = server.client().completions.create(**asked, frequency_penalty=2, presence_penalty=2).choices[0].text
    settings = {"sequence_bias": [([token], 5.0)], "frequency_penalty": 2, "presence_penalty": 2, "max_new_tokens": 6}
    assert less == pipes["tflite"](PROMPT, raw=True, return_full_text=False, **settings)[0]["generated_text"] != text


def test_a_text_ends_when_the_cache_is_full(server):
    bias = {"1": -100, "3": -100}
    answer = server.client().completions.create(model="tflite", prompt=PROMPT, max_tokens=1000, logit_bias=bias)
    assert answer.choices[0].finish_reason == "length" and answer.usage.total_tokens == 256


@pytest.mark.parametrize("engine", ENGINES)
def test_texts_do_not_depend_on_other_requests(independent, engine):
    """Prompts of different lengths, greedy and sampled: equal to the last bit, log-probabilities included."""
    server = independent
    prompts = [PROMPT * count for count in (1, 2, 3, 4, 9, 12)]
    asked = [
        {"model": engine, "prompt": prompt, "max_tokens": 24, "logprobs": 2, "seed": index}
        | ({"temperature": 0} if index % 2 else {})
        for index, prompt in enumerate(prompts)
    ]
    alone = [server.client().completions.create(**each).choices[0] for each in asked]

    async def together():
        async with server.async_client() as client:
            return await asyncio.gather(*(client.completions.create(**each) for each in asked))

    rows = server.measurements.step_rows.labels(engine)
    before = rows._sum.get() - sum(bucket.get() for bucket in rows._buckets)
    for answer, expected in zip(asyncio.run(together()), alone, strict=True):
        assert answer.choices[0].text == expected.text
        assert answer.choices[0].logprobs == expected.logprobs
    shared = rows._sum.get() - sum(bucket.get() for bucket in rows._buckets) - before
    assert (shared > 0) == (engine == "tflite")  # some steps had several texts


TOOLS = [
    {"type": "function", "function": {"name": "answer", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "wait"}},
]
CALLING = """\
{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}\
{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}\
{{ message.content or '' }}{% for call in message.tool_calls or [] %}{{ '<call>\\n{"name": "' + call.function.name + \
'", "arguments": ' }}{{ call.function.arguments | tojson }}{{ '}\\n</call>' }}{% endfor %}{{ '<|im_end|>\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "answer"}}], ids=["required", "named"]
)
def test_calls_of_tools(server, monkeypatch, choice):
    monkeypatch.setattr(server.models["onnx"].pipe.tokenizer, "chat_template", CALLING)
    asked = {"model": "onnx", "messages": MESSAGES[1:], "max_tokens": 90, "seed": 1, "tools": TOOLS}
    answer = server.client().chat.completions.create(**asked, tool_choice=choice).choices[0]
    (call,) = answer.message.tool_calls
    assert answer.finish_reason == "tool_calls" and answer.message.content is None and call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    assert call.function.name in (("answer", "wait") if choice == "required" else ("answer",))
    assert arguments.keys() == (SCHEMA["properties"].keys() if call.function.name == "answer" else set())
    chunks = [*server.client().chat.completions.create(**asked, tool_choice=choice, stream=True)]
    (delta,) = [chunk.choices[0] for chunk in chunks if chunk.choices[0].delta.tool_calls]
    assert delta.delta.tool_calls[0].function.model_dump() == call.function.model_dump()
    assert delta.finish_reason == "tool_calls"
    assert not any(chunk.choices[0].delta.content for chunk in chunks)
    text = server.client().chat.completions.create(**asked, tool_choice="none").choices[0]
    assert not text.message.tool_calls and text.finish_reason != "tool_calls"


def test_calls_of_tools_in_an_answer(server, monkeypatch):
    """With `auto`, the model decides; calls are recognized as the template writes them."""
    pipe = server.models["onnx"].pipe
    monkeypatch.setattr(pipe.tokenizer, "chat_template", CALLING)
    asked = {"model": "onnx", "messages": MESSAGES[1:], "max_tokens": 90, "tools": TOOLS}
    text = server.client().chat.completions.create(**asked, seed=1).choices[0]
    assert text.message.content and not text.message.tool_calls
    chunks = [chunk.choices[0] for chunk in server.client().chat.completions.create(**asked, seed=1, stream=True)]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == text.message.content
    calls = '{"name":"wait", "arguments": {}}\n</call>\n<call>{"name": "wait", "arguments": {}}</call>'
    written = f"Late! <call>\n{calls}"
    prompt = pipe.prompt
    # The model of this test has random weights: its answer is given.
    monkeypatch.setattr(pipe, "prompt", lambda *inputs, **options: prompt(*inputs, **options, choices=[written]))
    answer = server.client().chat.completions.create(**asked).choices[0]
    assert answer.message.content == "Late!" and answer.finish_reason == "tool_calls"
    assert [(call.function.name, call.function.arguments) for call in answer.message.tool_calls] == [("wait", "{}")] * 2
    chunks = [chunk.choices[0] for chunk in server.client().chat.completions.create(**asked, stream=True)]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == "Late! "
    assert len(chunks[-1].delta.tool_calls) == 2 and chunks[-1].finish_reason == "tool_calls"


def test_models(server):
    assert [model.id for model in server.client().models.list()] == ENGINES
    assert server.client().models.retrieve("onnx").owned_by == "kerasformer"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        server.client().models.retrieve("gpt-4")

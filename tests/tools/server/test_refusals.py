"""Requests that are wrong or too large: the status and the body of OpenAI's API, and a server that goes on."""

from __future__ import annotations

import contextlib
import json
import socket
import threading

import pytest

from kerasformer.errors import InputError
from kerasformer.tools.server import ServerOptions, serve
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.served_model import name_of
from kerasformer.tools.server.served_models import open_models
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.core.tokenization.chat_templates.conversations import TOOL
from tests.extras import need
from tests.tools.server.servers import running, wait_until

httpx, openai = need("httpx"), need("openai")

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 2}
TEXT = {"model": "m", "prompt": "Who?", "max_tokens": 2}
LIMITS = Limits(
    max_running=1, max_waiting=1, max_tokens=200, max_choices=4, max_body=20_000, body_timeout=0.5, timeout=30
)


@pytest.fixture(scope="module")
def server():
    with running([f"m={shared_chat('onnx')}"], LIMITS) as server:
        yield server


@pytest.fixture(autouse=True)
def works_afterwards(server):
    yield
    assert server.client().chat.completions.create(**CHAT).choices[0].finish_reason
    wait_until(lambda: not len(server.models["m"].jobs))


def post(server, content, path="completions", kind="application/json", **headers):
    headers = {"Content-Type": kind, **headers}
    return httpx.post(f"{server.url}/v1/{path}", content=content, headers=headers, timeout=30)


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({**TEXT, "model": "gpt-4"}, "model", "'gpt-4' does not exist. Expected one of: m"),
        ({"prompt": "Who?"}, "model", "Missing required parameter: 'model'"),
        ({**TEXT, "prompt": []}, "prompt", "prompt must be a string, a list of strings"),
        ({**TEXT, "prompt": [1, 99_999]}, "prompt", "from 0 to"),
        ({**TEXT, "prompt": "Who? " * 300}, None, "no room for a new token"),
        ({**TEXT, "max_tokens": 0}, "max_tokens", "at least 1"),
        ({**TEXT, "max_tokens": 201}, "max_tokens", "at most 200"),
        ({**TEXT, "temperature": -0.1}, "temperature", "0 (greedy search)"),
        ({**TEXT, "n": 5}, "n", "at most 4 texts"),
        ({**TEXT, "stop": ["a", "b", "c", "d", "e"]}, "stop", "1 to 4 strings"),
        ({**TEXT, "logit_bias": {"99999": 1}}, "logit_bias", "token ids from 0 to"),
        ({**TEXT, "logit_bias": {"7": 101}}, "logit_bias", "from -100 to 100"),
        ({**TEXT, "logit_bias": dict.fromkeys(map(str, range(1025)), 1)}, "logit_bias", "at most 1024"),
        ({**TEXT, "best_of": 3}, "best_of", "does not support 'best_of'"),
        ({**TEXT, "max_new_tokens": 3}, "max_new_tokens", "Unrecognized request argument supplied: max_new_tokens"),
        (
            {**TEXT, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "late"}}}},
            None,
            "late",
        ),
    ],
)
def test_wrong_fields(server, body, param, message):
    answer = post(server, json.dumps(body))
    error = answer.json()["error"]
    assert answer.status_code == (404 if error["code"] == "model_not_found" else 400)
    assert error["type"] == "invalid_request_error" and error["param"] == param and message in error["message"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "Who? " * 300}]}, None),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
            "messages[0].tool_calls",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "[" * 9000}}]}]},
            "messages[0].tool_calls",
        ),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tools": [{"type": "function"}], "tool_choice": "required"}, "tools"),
        ({"tools": [TOOL]}, "tools"),  # the template of this model knows none
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "late"}}}, "tool_choice"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
    ],
)
def test_wrong_conversations(server, change, param):
    with pytest.raises(openai.BadRequestError) as refusal:
        server.client().chat.completions.create(**{**CHAT, "stream": True, **change})
    assert refusal.value.param == param
    assert (refusal.value.code == "context_length_exceeded") == (param is None)


def test_constrained_texts_are_whole_within_the_limit_of_the_server(server):
    """Which is below the length that an answer has by default."""
    form = {"type": "json_schema", "json_schema": {"name": "late", "schema": {"type": "string", "minLength": 40}}}
    asked = {"model": "m", "messages": CHAT["messages"], "response_format": form}
    answer = server.client().chat.completions.create(**asked, seed=1, temperature=1)
    assert len(json.loads(answer.choices[0].message.content)) >= 40 and answer.choices[0].finish_reason == "stop"


def test_a_model_without_a_chat_template(server, monkeypatch):
    monkeypatch.setattr(server.models["m"].pipe.tokenizer, "chat_template", None)
    with pytest.raises(openai.BadRequestError, match="no chat template.*Use /v1/completions"):
        server.client().chat.completions.create(**CHAT)
    assert server.client().completions.create(**TEXT).choices
    monkeypatch.undo()


def test_harmless_fields_and_other_forms_of_content(server):
    content = [{"type": "text", "text": "Who?"}]
    asked = {**CHAT, "messages": [{"role": "user", "content": content}], "user": "Alice", "store": True, "seed": None}
    assert server.client().chat.completions.create(**asked).choices


@pytest.mark.parametrize(
    ("content", "kind", "status", "message"),
    [
        (b"{", "application/json", 400, "not valid JSON"),
        (b'{"model": "m", "prompt": "\xff"}', "application/json", 400, "UTF-8"),
        (b'{"model": "m", "prompt": "\\ud800"}', "application/json", 400, "not valid JSON"),
        (b'{"model": "m", "n": 1, "n": 2}', "application/json", 400, "the name 'n' twice"),
        (b'{"model": "m", "temperature": NaN}', "application/json", 400, "NaN"),
        (b'{"model": "m", "seed": ' + b"9" * 5000 + b"}", "application/json", 400, "not valid JSON"),
        (b"[" * 9000 + b"]" * 9000, "application/json", 400, "nested too deeply"),
        (b'{"model": "m", "metadata": ' + b"[" * 300 + b"]" * 300 + b"}", "application/json", 400, "nested too deeply"),
        (json.dumps(TEXT).encode(), "text/plain", 415, "Content-Type: application/json"),
        (b'{"model": "' + b"m" * 20_000, "application/json", 413, "at most 20000 bytes"),
    ],
)
def test_bodies_that_are_no_requests(server, content, kind, status, message):
    answer = post(server, content, kind=kind)
    assert answer.status_code == status and message in answer.json()["error"]["message"]


def test_paths_and_methods_that_do_not_exist(server):
    assert httpx.get(f"{server.url}/v1/images").json()["error"]["code"] == "unknown_url"
    assert httpx.get(f"{server.url}/v1/completions").status_code == 405
    with pytest.raises(openai.BadRequestError, match="not for embeddings"):
        server.client().embeddings.create(model="m", input="Who?")


HEAD = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def exchange(server, head, parts, seconds=10.0):
    """Sends parts of a body until the server answers; returns the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(head.encode())
        answer = threading.Event()

        def send():
            try:
                for part in parts:
                    if answer.is_set():
                        return
                    connection.sendall(part)
            except OSError:
                pass

        sender = threading.Thread(target=send)
        sender.start()
        received = b""
        # A server that closes the connection before it has read everything resets it after its answer.
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                received += part
        answer.set()
    sender.join()
    return received.decode()


def chunks(count):
    for _ in range(count):
        yield b"3e8\r\n" + b" " * 1000 + b"\r\n"


def test_a_body_without_end(server):
    answer = exchange(server, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n", chunks(10_000))
    assert answer.startswith("HTTP/1.1 413") and "at most 20000 bytes" in answer


def test_a_body_that_is_longer_than_it_says(server):
    """The surplus is read as the next request on the connection, which it is not."""
    answer = exchange(server, f"{HEAD}Content-Length: 2\r\n\r\n", iter([b"{}" + b" " * 100_000 + b"\r\n\r\n"]))
    assert answer.startswith("HTTP/1.1 400")


def test_a_slow_body_and_slow_headers(server):
    answer = exchange(server, f"{HEAD}Content-Length: 100\r\n\r\n", iter([b'{"model"']))
    assert answer.startswith("HTTP/1.1 408") and "within 0.5 seconds" in answer
    assert exchange(server, HEAD, iter([])) == ""


def test_another_host(server):
    answer = post(server, json.dumps(TEXT), Host="rebound.example:80")
    assert answer.status_code == 403 and "localhost" in answer.json()["error"]["message"]


def test_a_key():
    with running([f"m={shared_chat('onnx')}"], api_key="secret", hosts=None) as server:
        assert server.client(api_key="secret").chat.completions.create(**CHAT).choices
        for key in ("wrong", "secret2"):
            with pytest.raises(openai.AuthenticationError) as refusal:
                server.client(api_key=key).chat.completions.create(**CHAT)
            assert refusal.value.code == "invalid_api_key"
        assert httpx.get(f"{server.url}/metrics").status_code == 401
        assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}


def test_pages_of_other_origins(server):
    """A browser asks first, without the key; other origins, and servers without the option, allow nothing."""
    asked = {"Origin": "https://alice.example", "Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}  # fmt: skip
    allowed = "access-control-allow-origin"
    with running([f"m={shared_chat('onnx')}"], api_key="secret", cors_origins=["https://alice.example"]) as open_server:
        url = f"{open_server.url}/v1/models"
        answer = httpx.options(url, headers=asked)
        assert answer.status_code == 200 and answer.headers[allowed] == "https://alice.example"
        assert "x-stainless-os" in answer.headers["access-control-allow-headers"]
        refusal = httpx.get(url, headers={"Origin": "https://alice.example"})
        assert refusal.status_code == 401 and refusal.headers[allowed] == "https://alice.example"
        assert allowed not in httpx.options(url, headers={**asked, "Origin": "https://other.example"}).headers
    assert allowed not in httpx.options(f"{server.url}/v1/models", headers=asked).headers
    with pytest.raises(InputError, match="and no path.*Received: example.com/"):
        serve([], ServerOptions(cors_origins=["example.com/"]))


def test_more_requests_than_the_server_takes(server):
    """One is computed, one waits, and others are refused until these have ended."""
    model, blocked = server.models["m"], threading.Event()
    engine = model.pipe.model.engine
    original = engine.step

    def step(*arguments):
        blocked.wait(30)
        return original(*arguments)

    engine.step = step
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(server.client().completions.create(**TEXT))) for _ in range(2)
    ]
    try:
        for thread in threads:
            thread.start()
        wait_until(lambda: len(model.jobs) == 2)
        answer = post(server, json.dumps(TEXT))
        assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"
        assert answer.json()["error"] == {
            "message": "The server is busy with other requests. Try again later",
            "type": "server_error",
            "param": None,
            "code": "overloaded",
        }
        figures = httpx.get(f"{server.url}/metrics").text
        assert 'running_requests{model="m"} 1.0' in figures and 'waiting_requests{model="m"} 1.0' in figures
    finally:
        blocked.set()
        for thread in threads:
            thread.join()
        engine.step = original
    assert len(results) == 2


def test_more_requests_than_connections_are_allowed():
    with (
        running([f"m={shared_chat('onnx')}"], Limits(connections=2, body_timeout=10)) as server,
        httpx.Client(base_url=server.url) as client,  # a single connection, as more are refused by uvicorn
    ):
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                connection.sendall(f"{HEAD}Content-Length: 100\r\n\r\n".encode())
            wait_until(lambda: client.get("/v1/models").status_code == 503)
            assert client.get("/v1/models").json()["error"]["code"] == "overloaded"
            for probe in ("/health", "/v2/health/live", "/v2/health/ready"):  # a busy server is not restarted
                assert client.get(probe).status_code == 200
        wait_until(lambda: client.get("/v1/models").status_code == 200)


def test_an_error_of_the_engine_is_no_text_of_the_answer(server, caplog):
    engine = server.models["m"].pipe.model.engine
    original = engine.step

    def step(*arguments):
        raise RuntimeError("private")

    engine.step = step
    try:
        answer = post(server, json.dumps(TEXT))
    finally:
        engine.step = original
    assert answer.status_code == 500 and "private" not in answer.text
    assert answer.json()["error"]["code"] == "internal_error" and "A request failed" in caplog.text


def test_sources_that_cannot_be_served(tmp_path):
    (tmp_path / "site.json").write_text("{}")
    with pytest.raises(InputError, match="kerasformer web .* --serve"):
        open_models([str(tmp_path)], Limits(), None)
    with pytest.raises(InputError, match="its own name"):
        open_models(["a=story-gpt2", "a=sentiment-bert"], Limits(), None)
    with pytest.raises(InputError, match="max_running must be an integer"):
        Limits(max_running=0)
    assert name_of("a=b/c") == ("a", "b/c") and name_of("story-gpt2") == ("story-gpt2", "story-gpt2")

"""Clients that people use beside OpenAI's, each in its own process: they get what the pipelines return.

`tests/foreign/setup.sh clients` installs them, because some need an older version of `openai`.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests import shared
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.extras import need
from tests.foreign.environments import run
from tests.tools.server.servers import running

need("openai")
from tests.tools.server.test_embeddings import export
from tests.tools.server.test_texts import CALLING, MESSAGES, SCHEMA, TOOLS

pytestmark = pytest.mark.foreign
TEXTS = ["The rabbit is late.", "a", "Who is it?"]


@pytest.fixture(scope="module")
def server():
    vectors = shared.once("sentence-tflite", export)
    with running([f"chat={shared_chat('onnx')}", f"vectors={vectors}"], reuse=False) as server:
        server.models["chat"].pipe.tokenizer.chat_template = CALLING
        yield server


@pytest.fixture(scope="module")
def expected(server):
    """The answer to the conversation."""
    asked = {"model": "chat", "messages": MESSAGES, "temperature": 0, "max_tokens": 90}
    text = server.client().chat.completions.create(**asked).choices[0].message.content
    assert text
    return text


def ask(server, program, **request):
    given = {"url": f"{server.url}/v1", "messages": MESSAGES, "texts": TEXTS, "tools": TOOLS, **request}
    return run("clients", program, given, timeout=180)


def check_embeddings(server, answers):
    np.testing.assert_allclose(answers["embeddings"], server.models["vectors"].pipe(TEXTS), atol=1e-6)


def test_langchain(server, expected):
    answers = ask(server, "client_langchain.py", schema={"title": "answer", "description": "An answer.", **SCHEMA})
    assert answers["chat"] == answers["stream"] == answers["responses"] == expected
    for method in ("function_calling", "json_schema"):
        assert answers[method].keys() == SCHEMA["properties"].keys()
    (call,) = answers["calls"]
    assert call["name"] in ("answer", "wait")
    check_embeddings(server, answers)


def test_llama_index(server, expected):
    answers = ask(server, "client_llama_index.py")
    assert answers["chat"] == answers["stream"] == expected and answers["complete"]
    (call,) = answers["calls"]
    assert call["name"] == "answer" and isinstance(call["args"]["late"], bool)
    check_embeddings(server, answers)


def test_litellm(server, expected):
    answers = ask(server, "client_litellm.py", query="late")
    assert answers["chat"] == answers["stream"] == answers["responses"] == expected
    assert answers["calls"][0]["name"] in ("answer", "wait")
    ranked = server.models["vectors"].pipe.rank("late", TEXTS)
    assert answers["ranking"] == [hit["corpus_id"] for hit in ranked]
    check_embeddings(server, answers)


def test_triton(server):
    answers = ask(server, "client_triton.py", host=server.url.removeprefix("http://"))
    assert answers["is_ready"] and (answers["server"], answers["id"]) == ("kerasformer", "42")
    assert answers["model"]["outputs"] == [{"name": "embedding", "datatype": "FP32", "shape": [-1, -1]}]
    check_embeddings(server, answers)
    written = server.client().completions.create(model="chat", prompt=TEXTS, max_tokens=3, temperature=0)
    assert answers["texts"] == [choice.text for choice in written.choices]
    assert "binary_data=False" in answers["error"]

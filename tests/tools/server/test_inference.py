"""The Open Inference Protocol: the tensors of each task are what its pipeline returns."""

from __future__ import annotations

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.tools.server.predictions import zero_shot
from tests.core.pipelines.test_zero_shot_classification import NAMES, named
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.extras import need
from tests.tiny_text import CORPUS
from tests.tools.server.servers import running

httpx = need("httpx")

TEXTS = ["The train", "Rain.", "A film"]
PAIRS = ["a film", "rain", "The train is late."]
MASKED = ["The [MASK] is", "[MASK] and [MASK]"]
CASES = ["classes", "entities", "gaps", "vectors", "answers", "rewrite"]


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    nli = named(checkpoint("compared"), tmp_path_factory.mktemp("nli") / "model", NAMES)
    sources = [f"{name}={checkpoint(name)}" for name in CASES]
    with running([*sources, f"nli={nli}", f"chat={shared_chat('onnx')}"]) as server:
        yield server


def tensors(**inputs):
    return [{"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data} for name, data in inputs.items()]


def infer(server, model, parameters=None, **inputs):
    body = {"id": "42", "inputs": tensors(**inputs), "parameters": parameters or {}}
    answer = httpx.post(f"{server.url}/v2/models/{model}/infer", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    content = answer.json()
    assert (content["model_name"], content["model_version"], content["id"]) == (model, "1", "42")
    described = httpx.get(f"{server.url}/v2/models/{model}").json()["outputs"]
    expected = {each["name"]: (each["datatype"], len(each["shape"])) for each in described}
    assert {each["name"]: (each["datatype"], len(each["shape"])) for each in content["outputs"]} == expected
    return {each["name"]: np.array(each["data"]).reshape(each["shape"]).tolist() for each in content["outputs"]}


def columns(rows, *names):
    return {name: [row[name] for row in rows] for name in names}


def test_classes(server):
    pipe = server.models["classes"].pipe
    found = infer(server, "classes", text=TEXTS)
    assert found == {name: [[row[name]] for row in pipe(TEXTS)] for name in ("label", "score")}
    every = infer(server, "classes", {"top_k": 9}, text=TEXTS, pair=PAIRS)
    assert every["label"] == [[each["label"] for each in row] for row in pipe(TEXTS, pair=PAIRS, top_k=9)]


def test_classes_of_the_request(server):
    expected = zero_shot(server.models["nli"])(TEXTS, ["rain", "train"], multi_label=True)
    found = infer(server, "nli", {"multi_label": True}, text=TEXTS, candidate_labels=["rain", "train"])
    assert found["label"] == [row["labels"] for row in expected]
    np.testing.assert_allclose(found["score"], [row["scores"] for row in expected], atol=1e-6)


def test_entities(server):
    pipe = server.models["entities"].pipe
    found = infer(server, "entities", {"aggregation_strategy": "none"}, text=TEXTS)
    expected = [(row, each) for row, entities in enumerate(pipe(TEXTS)) for each in entities]
    assert found.pop("row") == [row for row, _ in expected] and expected
    assert found == columns([each for _, each in expected], "entity", "score", "word", "start", "end")
    assert len(infer(server, "entities", text=TEXTS)["entity"]) <= len(expected)


def test_mask_tokens(server):
    pipe = server.models["gaps"].pipe
    found, (first, others) = infer(server, "gaps", {"top_k": 2}, text=MASKED), pipe(MASKED, top_k=2)
    assert found["row"] == [0, 1, 1]
    for name in ("token", "token_str", "score", "sequence"):
        assert found[name] == [[each[name] for each in row] for row in (first, *others)]


def test_embeddings(server):
    found = infer(server, "vectors", text=TEXTS)["embedding"]
    np.testing.assert_allclose(found, server.models["vectors"].pipe(TEXTS, pooling="mean", normalize=True), atol=1e-6)


def test_answers(server):
    pipe, context = server.models["answers"].pipe, CORPUS[:3]
    found = infer(server, "answers", question=TEXTS, context=context)
    expected = pipe([{"question": q, "context": c} for q, c in zip(TEXTS, context, strict=True)])
    assert found == {name: [[row[name]] for row in expected] for name in ("answer", "score", "start", "end")}
    short = infer(server, "answers", {"top_k": 50}, question=TEXTS[:2], context=["Rain.", CORPUS[0]])
    assert len({len(row) for row in short["answer"]}) == 1 and short["answer"][0][-1] == ""


def test_texts(server):
    for model, texts, options in (
        ("chat", TEXTS, {"return_full_text": False, "raw": True}),
        ("rewrite", TEXTS[:1], {}),
    ):
        expected = server.models[model].pipe(texts, max_new_tokens=3, do_sample=False, num_beams=1, **options)
        expected = [row if isinstance(row, dict) else row[0] for row in expected]
        found = infer(server, model, {"max_tokens": 3, "temperature": 0, "n": 2}, text=texts)
        assert found["text"] == [[row["generated_text"]] * 2 for row in expected]
        assert {reason for row in found["finish_reason"] for reason in row} <= {"length", "stop"}


def test_descriptions(server):
    def get(path):
        return httpx.get(f"{server.url}{path}").json()

    assert get("/v2") == {"name": "kerasformer", "version": kf.__version__, "extensions": []}
    for probe in ("live", "ready"):
        assert get(f"/v2/health/{probe}") == {"live": True, "ready": True}
    for path in ("", "/versions/1"):
        assert get(f"/v2/models/answers{path}/ready") == {"name": "answers", "ready": True}
        assert get(f"/v2/models/answers{path}") == {
            "name": "answers",
            "versions": ["1"],
            "platform": "kerasformer_keras",
            "inputs": [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in ("question", "context")],
            "outputs": [
                {"name": name, "datatype": datatype, "shape": [-1, -1]}
                for name, datatype in (("answer", "BYTES"), ("score", "FP32"), ("start", "INT64"), ("end", "INT64"))
            ],
        }  # fmt: skip
    assert httpx.get(f"{server.url}/v2/models/answers/versions/2").status_code == 404
    # With axes in the data, without a content type, and with one output of two.
    body = {"inputs": [{"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": [["a"], ["b"]]}],
            "outputs": [{"name": "score", "parameters": {"binary_data": False}}]}  # fmt: skip
    url, content = (
        f"{server.url}/v2/models/classes/versions/1/infer",
        httpx.Request("POST", "http://x", json=body).content,
    )
    answer = httpx.post(url, content=content, timeout=60).json()
    assert [each["name"] for each in answer["outputs"]] == ["score"] and "id" not in answer
    assert httpx.post(url, content=content, headers={"Origin": "http://alice.example"}).status_code == 415
    figures = httpx.get(f"{server.url}/metrics").text
    assert 'requests_total{endpoint="/v2/models/{name}/infer",status="200"}' in figures
    assert 'endpoint="/v2/models/{name}/ready"' in figures and "answers/ready" not in figures


ONE, INFER = tensors(text=["a"]), "v2/models/classes/infer"
LABELLED = tensors(text=["a"], candidate_labels=["b"])


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (INFER, {"instances": ["a"]}, 400, "of version 1 of KServe's protocol. Expected: a request"),
        ("v2/models/chat/infer", {"messages": []}, 400, "send the request to /v1/chat/completions"),
        ("v2/models/late/infer", {"inputs": ONE}, 404, "'late' does not exist"),
        ("v2/models/classes/versions/2/infer", {"inputs": ONE}, 404, "the version 1 alone"),
        (INFER, {"inputs": tensors(question=["a"])}, 400, "needs the inputs text, and optionally"),
        (INFER, {"inputs": tensors(text=["a"], pair=["b", "c"])}, 400, "same number of texts"),
        ("v2/models/nli/infer", {"inputs": tensors(text=["a"], pair=["b"], candidate_labels=["c"])}, 400, "not both"),
        (INFER, {"inputs": [{**ONE[0], "datatype": "FP32"}]}, 400, "datatype BYTES"),
        (INFER, {"inputs": [{**ONE[0], "shape": [10**4000] * 2}]}, 400, "shape must be a list of 1 to 8 integers"),
        (INFER, {"inputs": tensors(candidate_labels=["b"], text=["a"] * 2049)}, 400, "text must have at most 2048"),
        (INFER, {"inputs": ONE, "parameters": {"max_tokens": 1}}, 400, "no parameter 'max_tokens'"),
        ("v2/models/nli/infer", {"inputs": LABELLED, "parameters": {"top_k": 1}}, 400, "no parameter 'top_k'"),
        ("v2/models/chat/infer", {"inputs": ONE, "parameters": {"top_p": 2}}, 400, "top_p must be"),
        ("v2/chat/completions", {}, 404, "OpenAI's API is below /v1"),
    ],
)  # fmt: skip
def test_refusals(server, path, body, status, message):
    answer = httpx.post(f"{server.url}/{path}", json=body, timeout=60)
    assert answer.status_code == status and answer.json().keys() == {"error"}
    assert message in answer.json()["error"]


def test_requests_of_other_protocols(server):
    answer = httpx.post(f"{server.url}/v1/models/chat:predict", json={"instances": ["a"]})
    assert answer.status_code == 400 and "POST /v2/models/chat/infer" in answer.json()["error"]["message"]
    binary = {"Inference-Header-Content-Length": "5"}
    answer = httpx.post(f"{server.url}/v2/models/classes/infer", content=b"{}   abc", headers=binary)
    assert answer.status_code == 400 and "binary_data=False" in answer.json()["error"]

"""`/v1/classify` and `/v1/rerank`: what pipelines return, in the forms of other servers."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.tools.server.predictions import zero_shot
from tests import shared
from tests.core.pipelines.test_zero_shot_classification import NAMES, named
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.extras import need
from tests.tiny_text import CORPUS
from tests.tools.server.servers import running

httpx = need("httpx")
need("openai")
from tests.tools.server.test_embeddings import export

TEXTS = ["The train", "Rain.", "A film"]
DOCUMENTS = [" ".join(text.split()[:4]) for text in (*CORPUS[:9], "Rain.")] * 4


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    nli = named(checkpoint("compared"), tmp_path_factory.mktemp("nli") / "model", NAMES)
    sources = [f"one={checkpoint('one-class')}", f"nli={nli}", f"vectors={shared.once('sentence-tflite', export)}"]
    with running([*sources, f"chat={shared_chat('onnx')}"]) as server:
        yield server


def post(server, path, model, **fields):
    answer = httpx.post(f"{server.url}/v1/{path}", json={"model": model, **fields}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_classes(server):
    pipe = server.models["nli"].pipe
    answer = post(server, "classify", "nli", input=TEXTS, top_k=2)
    expected = pipe(TEXTS, top_k=None)
    assert (answer["object"], answer["model"]) == ("list", "nli") and answer["usage"]["prompt_tokens"] > 0
    for datum, row in zip(answer["data"], expected, strict=True):
        assert datum["scores"] == row[:2] and datum["label"] == row[0]["label"] and datum["num_classes"] == len(NAMES)
        assert datum["probs"] == [{each["label"]: each["score"] for each in row}[name] for name in NAMES]
    pairs = [["rain", "The train"], ["rain", "Rain."]]
    found = post(server, "classify", "nli", input=pairs)["data"]
    assert [each["scores"] for each in found] == pipe([*map(tuple, pairs)], top_k=None)
    assert post(server, "classify", "one", input=TEXTS[0])["data"][0]["num_classes"] == 1


def test_classes_of_the_request(server):
    labels = ["rain", "train", "a film"]
    found = post(server, "classify", "nli", input=TEXTS, candidate_labels=labels, hypothesis_template="It is {}!")
    expected = zero_shot(server.models["nli"])(TEXTS, labels, hypothesis_template="It is {}!")
    for datum, row in zip(found["data"], expected, strict=True):
        assert [each["label"] for each in datum["scores"]] == row["labels"] and datum["label"] == row["labels"][0]
        by_label = dict(zip(row["labels"], row["scores"], strict=True))
        np.testing.assert_allclose(datum["probs"], [by_label[label] for label in labels], atol=1e-6)


@pytest.mark.parametrize(("model", "options"), [("one", {}), ("nli", {"label": "neutral"}), ("vectors", {})])
def test_ranking(server, model, options):
    answer = post(server, "rerank", model, query="rain", documents=DOCUMENTS, top_n=3, return_documents=True, **options)
    expected = server.models[model].pipe.rank("rain", DOCUMENTS, top_k=3, **options)
    scores = [each["relevance_score"] for each in answer["results"]]
    np.testing.assert_allclose(scores, [each["score"] for each in expected], atol=1e-5)
    assert all(each["document"]["text"] == DOCUMENTS[each["index"]] for each in answer["results"])
    documents = [{"text": text} for text in DOCUMENTS]
    every = post(server, "rerank", model, query="rain", documents=documents, **options)["results"]
    assert sorted(each["index"] for each in every) == [*range(len(DOCUMENTS))] and "document" not in every[0]
    assert 'endpoint="/v1/rerank"' in httpx.get(f"{server.url}/metrics").text


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("rerank", {"model": "chat", "query": "a", "documents": ["b"]}, "not for the order of documents"),
        ("rerank", {"model": "one", "documents": ["b"]}, "Missing required parameter: 'query'"),
        ("rerank", {"model": "one", "query": "a", "documents": [{"title": "b"}]}, "documents must be"),
        ("rerank", {"model": "one", "query": "a", "documents": ["b"] * 2049}, "at most 2048 texts"),
        ("rerank", {"model": "nli", "query": "a", "documents": ["b"]}, "label=…, one of CONTRADICTION"),
        ("classify", {"model": "chat", "input": "a"}, "not for classification"),
        ("classify", {"model": "one", "input": [["a"]]}, "input must be"),
        ("classify", {"model": "one", "input": "a", "candidate_labels": ["b"]}, "starts with 'entail'"),
        ("classify", {"model": "nli", "input": [["a", "b"]], "candidate_labels": ["b"]}, "for single texts"),
    ],
)  # fmt: skip
def test_refusals(server, path, body, message):
    answer = httpx.post(f"{server.url}/v1/{path}", json=body, timeout=60)
    assert answer.status_code == 400 and message in answer.json()["error"]["message"]

"""Models of LangChain, LlamaIndex, Haystack, sentence-transformers and BERTopic have the results of the pipelines."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

import kerasformer as kf
from kerasformer.errors import InputError
from kerasformer.tools.integrations.sentence_transformers import KerasformerSentenceTransformer
from tests import shared
from tests.core.export.text_models import sentence_row
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.extras import need

need("mteb")
need("haystack")
need("langchain_core")
need("llama_index.core")
from haystack import Document, Pipeline
from langchain_core.messages import HumanMessage, SystemMessage

from kerasformer.tools.integrations.haystack import KerasformerDocumentEmbedder, KerasformerTextEmbedder
from kerasformer.tools.integrations.langchain import ChatKerasformer, KerasformerEmbeddings, KerasformerLLM
from kerasformer.tools.integrations.llama_index import KerasformerEmbedding
from tests.tools.integrations.test_mteb import DOCUMENTS, PRESET, QUERIES, RELEVANT

TEXTS = [*DOCUMENTS.values()][:3]
PROMPT = "Who is it? It is late"
CONVERSATION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is it?"}]
MESSAGES = [SystemMessage("Be brief."), HumanMessage("Who is it?")]


@pytest.fixture(scope="module")
def embedder() -> Any:
    folder = shared.once("tools-embedder", lambda out: kf.export.export("embedder-bert", out, "tflite"))
    return kf.pipeline(folder)


@pytest.fixture(scope="module")
def chat() -> Any:
    return kf.pipeline(shared_chat("tflite"))


def test_embeddings_are_those_of_the_pipeline(embedder: Any) -> None:
    documents, query = embedder.encode_document(TEXTS), embedder.encode_query(TEXTS[0])
    langchain, llama_index = KerasformerEmbeddings(embedder), KerasformerEmbedding(embedder, embed_batch_size=3)
    np.testing.assert_allclose(langchain.embed_documents(TEXTS), documents, atol=1e-6)
    np.testing.assert_allclose(llama_index.get_text_embedding_batch(TEXTS), documents, atol=1e-6)
    np.testing.assert_allclose(langchain.embed_query(TEXTS[0]), query, atol=1e-6)
    np.testing.assert_allclose(asyncio.run(llama_index.aget_query_embedding(TEXTS[0])), query, atol=1e-6)
    assert langchain.embed_documents([]) == [] and llama_index.model_name == embedder.info.name


def test_texts_and_answers_are_those_of_the_pipeline(chat: Any) -> None:
    model, talk = KerasformerLLM(chat, max_new_tokens=12), ChatKerasformer(chat, max_new_tokens=12)
    expected = chat(PROMPT, max_new_tokens=12, return_full_text=False)[0]["generated_text"]
    answer = chat(CONVERSATION, max_new_tokens=12, return_full_text=False)[0]["generated_text"]
    assert (
        model.invoke(PROMPT) == "".join(model.stream(PROMPT)) == expected
        and model.batch([PROMPT] * 2) == [expected] * 2
    )
    assert talk.invoke(MESSAGES).content == "".join(piece.content for piece in talk.stream(MESSAGES)) == answer
    assert asyncio.run(talk.ainvoke(MESSAGES)).content == answer
    stop = expected[3:5]
    assert model.invoke(PROMPT, stop=[stop]) == expected[: expected.index(stop)]
    assert "".join(model.bind(stop=[stop]).stream(PROMPT)) == expected[: expected.index(stop)]
    assert talk.bind(choices=["Alice", "Rabbit"]).invoke(MESSAGES).content in ("Alice", "Rabbit")
    assert KerasformerLLM(chat, max_new_tokens=2, tags=["short"]).tags == ["short"]


def test_components_in_a_pipeline_and_its_file(embedder: Any) -> None:
    folder = str(shared.once("tools-embedder", lambda out: None))
    pipeline = Pipeline()
    pipeline.add_component("query", KerasformerTextEmbedder(folder))
    pipeline.add_component("documents", KerasformerDocumentEmbedder(folder, batch_size=2, options={"num_threads": 1}))
    pipeline = Pipeline.loads(pipeline.dumps(), allowed_modules=["kerasformer.tools.integrations.haystack"])
    inputs = {"query": {"text": TEXTS[0]}, "documents": {"documents": [Document(content=text) for text in TEXTS]}}
    found = pipeline.run(inputs)
    np.testing.assert_allclose(found["query"]["embedding"], embedder.encode_query(TEXTS[0]), atol=1e-6)
    received = [document.embedding for document in found["documents"]["documents"]]
    np.testing.assert_allclose(received, embedder.encode_document(TEXTS), atol=1e-6)
    assert pipeline.get_component("documents").options == {"num_threads": 1}
    assert KerasformerDocumentEmbedder(folder).run([]) == {"documents": []}


@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.truncation.TruncationWarning")
def test_an_evaluator_of_sentence_transformers(embedder: Any) -> None:
    evaluate = InformationRetrievalEvaluator(QUERIES, DOCUMENTS, {name: {*docs} for name, docs in RELEVANT.items()})
    ours = KerasformerSentenceTransformer(embedder)
    theirs = SentenceTransformer(str(PRESET), device="cpu", model_kwargs={"dtype": "float32"})
    assert evaluate(ours) == pytest.approx(evaluate(theirs), abs=1e-5)
    options: dict[str, Any] = {"normalize_embeddings": True, "truncate_dim": 40, "convert_to_tensor": True}
    np.testing.assert_allclose(ours.encode(TEXTS, **options), theirs.encode(TEXTS, **options), atol=1e-5)
    assert ours.get_embedding_dimension() == 384


@pytest.mark.parametrize("form", ["tflite", "onnx"])
def test_sentence_transformers_opens_a_bundle(form: str, tmp_path: Path) -> None:
    """As do, through it, all libraries that take the name of one of its models."""
    folder = str(tmp_path / "bundle")
    expected = kf.export.export(sentence_row("bert").model(), folder, form).pipeline()
    model = SentenceTransformer(folder, trust_remote_code=True, model_kwargs={"num_threads": 1})
    for name in ("encode_query", "encode_document"):
        np.testing.assert_allclose(getattr(model, name)(TEXTS), getattr(expected, name)(TEXTS), atol=1e-6)
    assert model.prompts["query"] == expected.embedding.prompts["query"] == "rain: "
    assert (model.similarity_fn_name, model.max_seq_length) == (expected.embedding.similarity, expected.info.max_length)
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(folder)
    with pytest.raises(InputError, match="Copy its folder"):
        model.save(str(tmp_path / "copy"))


MISSING = """
import importlib, sys
for plug, module in (each.split("=") for each in sys.argv[1:]):
    sys.modules[module] = None
    try:
        importlib.import_module(f"kerasformer.tools.integrations.{plug}")
    except ImportError as error:
        print(type(error).__name__, error)
"""


def test_missing_packages_are_named() -> None:
    plugs = {
        "lm_eval": "lm_eval", "mteb": "mteb", "langchain": "langchain_core", "llama_index": "llama_index",
        "haystack": "haystack", "sentence_transformers": "sentence_transformers",
    }  # fmt: skip
    arguments = [f"{plug}={module}" for plug, module in plugs.items()]
    done = subprocess.run([sys.executable, "-c", MISSING, *arguments], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(plugs), done.stderr[-2000:]
    for plug, line in zip(plugs, lines, strict=True):
        assert line.startswith("MissingExtraError")
        assert "pip install " in line and f"[{plug.replace('_', '-')}]" in line


def test_a_model_of_another_task_raises(chat: Any) -> None:
    with pytest.raises(InputError, match="sentence-similarity"):
        KerasformerEmbeddings(str(shared_chat("tflite")))

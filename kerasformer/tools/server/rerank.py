"""Requests for the order of documents for a query, `/v1/rerank`, in the form that Cohere, Jina and vLLM share."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from kerasformer.basics.arguments import BOOLEAN, TEXT, Kind, integer, sequence
from kerasformer.pipelines import SentenceSimilarityPipeline, TextClassificationPipeline
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.jobs import Job
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.predictions import batches, check_count, count_tokens, predicted
from kerasformer.tools.server.replies import ApiError, json_response
from kerasformer.tools.server.served_model import ServedModel

_DOCUMENT = Kind("a text or {'text': …}", lambda value: _text(value))


@dataclass(frozen=True)
class RerankRequest:
    """A checked request.

    Attributes:
        model: The model.
        query: The query.
        documents: The documents.
        top_n: Number of documents in the answer; `None` for all.
        with_text: Whether the answer has the texts of the documents.
        options: Further arguments of the pipeline.
    """

    model: ServedModel
    query: str
    documents: tuple[str, ...]
    top_n: int | None
    with_text: bool
    options: dict[str, Any]


def read_rerank(body: Mapping[str, object], model: ServedModel, limits: Limits) -> RerankRequest:
    """Reads a request.

    Raises:
        ApiError: the model ranks no documents, or a field is wrong or not supported.
    """
    fields = Fields(body)
    fields.ignore("model")
    options: dict[str, object] = {}
    if isinstance(model.pipe, TextClassificationPipeline):
        options = {name: value for name in ("label", "prompt") if (value := fields.read(name, TEXT)) is not None}
    elif not isinstance(model.pipe, SentenceSimilarityPipeline):
        raise ApiError(
            400,
            f"{model.name} is for {model.pipe.task}, not for the order of documents. Use another model",
            param="model",
        )
    query = fields.required("query", TEXT)
    documents = fields.required("documents", sequence(_DOCUMENT, least=1))
    check_count("documents", len(documents), limits)
    top_n, with_text = fields.read("top_n", integer(1)), fields.read("return_documents", BOOLEAN, False)
    fields.ignore("user")
    fields.refuse_others({"max_chunks_per_doc": (), "max_tokens_per_doc": (), "rank_fields": (["text"],)})
    return RerankRequest(model, query, documents, top_n, with_text, options)


async def respond(request: Request, asked: RerankRequest, measurements: Measurements) -> Response:
    """Returns the response to a request.

    Raises:
        ApiError: the request is refused.
        ClientDisconnect: the client left before the answer.
    """
    scores, count = await predicted(request, asked.model, lambda job: _scores(asked, job))
    measurements.prompt_tokens.labels(asked.model.name).inc(count)
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[: asked.top_n]
    results = [
        {"index": index, "relevance_score": scores[index]}
        | ({"document": {"text": asked.documents[index]}} if asked.with_text else {})
        for index in best
    ]
    usage = {"prompt_tokens": count, "total_tokens": count}
    head = {"id": f"rerank-{uuid.uuid4().hex}", "model": asked.model.name}
    return json_response({**head, "results": results, "usage": usage})


def _scores(asked: RerankRequest, job: Job) -> tuple[list[float], int]:
    """Returns the score of each document, and the number of tokens."""
    pipe, scores, count = asked.model.pipe, list[float](), 0
    each = count_tokens(pipe, [asked.query])
    for part in batches(asked.documents, job):
        ranked = pipe.rank(asked.query, part, **asked.options)
        scores += [hit["score"] for hit in sorted(ranked, key=lambda hit: hit["corpus_id"])]
        count += each * len(part) + count_tokens(pipe, part)
    return scores, count


def _text(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"text"}:
        value = value["text"]
    text: str = TEXT.convert(value)
    return text

"""Requests for embeddings of texts, `/v1/embeddings`."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from kerasformer.basics.arguments import TEXT, Kind, integer, one_of, sequence
from kerasformer.pipelines import SentenceSimilarityPipeline
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.jobs import Job
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.predictions import batches, check_count, count_tokens, predicted
from kerasformer.tools.server.replies import ApiError, json_response
from kerasformer.tools.server.served_model import ServedModel


@dataclass(frozen=True)
class EmbeddingRequest:
    """A checked request for embeddings.

    Attributes:
        model: The model.
        texts: The texts.
        options: Further arguments of the pipeline.
        encoding: `"float"`, or `"base64"` for the bytes of little-endian float32.
    """

    model: ServedModel
    texts: tuple[str, ...]
    options: dict[str, Any]
    encoding: str


def read_embeddings(body: Mapping[str, object], model: ServedModel, limits: Limits) -> EmbeddingRequest:
    """Reads a request.

    Raises:
        ApiError: the model is for other requests, or a field is wrong or not supported.
    """
    fields = Fields(body)
    fields.ignore("model")
    if not model.embeds:
        raise ApiError(
            400, f"{model.name} is for {model.pipe.task}, not for embeddings. Use another model", param="model"
        )
    inputs = fields.required("input", _input_of(model.pipe.tokenizer.vocab_size))
    texts = tuple(each if isinstance(each, str) else _text_of(model, each) for each in inputs)
    check_count("input", len(texts), limits)
    options: dict[str, object] = {}
    if isinstance(model.pipe, SentenceSimilarityPipeline):
        options = {
            "truncate_dim": fields.read("dimensions", integer(1, model.pipe.embedding.dimension)),
            "prompt_name": fields.read("prompt_name", TEXT),
        }
    else:
        options = {"pooling": "mean", "normalize": True}
    encoding = fields.read("encoding_format", one_of("float", "base64"), "float")
    fields.ignore("user")
    fields.refuse_others({"dimensions": ()})
    return EmbeddingRequest(model, texts, options, encoding)


async def respond(request: Request, asked: EmbeddingRequest, measurements: Measurements) -> Response:
    """Returns the response to a request.

    Raises:
        ApiError: the request is refused.
        ClientDisconnect: the client left before the answer.
    """
    vectors, count = await predicted(request, asked.model, lambda job: _vectors(asked, job), "input")
    measurements.prompt_tokens.labels(asked.model.name).inc(count)
    # In a thread, as two thousand vectors are tens of megabytes of JSON, during which others must be served.
    return await asyncio.to_thread(_response, asked, vectors, count)


def _response(asked: EmbeddingRequest, vectors: list[np.ndarray], count: int) -> Response:
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, asked.encoding)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return json_response({"object": "list", "data": data, "model": asked.model.name, "usage": usage})


def _vectors(asked: EmbeddingRequest, job: Job) -> tuple[list[np.ndarray], int]:
    """Returns the embeddings and the number of tokens of the texts."""
    pipe, vectors, count = asked.model.pipe, list[np.ndarray](), 0
    for part in batches(asked.texts, job):
        vectors += [*pipe(part, **asked.options)]
        count += count_tokens(pipe, part)
    return vectors, count


def _encoded(vector: np.ndarray, encoding: str) -> Any:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


def _text_of(model: ServedModel, ids: tuple[int, ...]) -> str:
    """Returns the text of token ids.

    Raises:
        ApiError: they are not the tokens of a text, with or without special tokens, such as those of another tokenizer.
    """
    tokenizer, inner = model.pipe.tokenizer, list(ids)
    around = tokenizer.encode("")
    for before in range(len(around) + 1):
        end = len(ids) - len(around) + before
        if around and before <= end and inner[:before] == around[:before] and inner[end:] == around[before:]:
            inner = inner[before:end]
            break
    text: str = tokenizer.decode(inner)  # with the names of unknown tokens, which are then read as such
    if not inner or tokenizer.encode(text, add_special_tokens=False) != inner:
        raise ApiError(
            400,
            f"input must have the token ids of a text as the tokenizer of {model.name} returns them. Received: other "
            "token ids. Send the text",
            param="input",
        )
    return text


def _input_of(vocab_size: int) -> Kind:
    """Returns the kind of value that is converted to inputs, each a text or token ids."""
    text, tokens = (
        Kind("a text", lambda value: TEXT.convert(value or None)),
        sequence(integer(0, vocab_size - 1), least=1),
    )
    one = Kind("an input", lambda value: (tokens if isinstance(value, list) else text).convert(value))

    def convert(value: Any) -> tuple[Any, ...]:
        if isinstance(value, list) and not isinstance(next(iter(value), None), int):
            inputs: tuple[object, ...] = sequence(one, least=1).convert(value)
            return inputs
        return (one.convert(value),)

    ids = f"token ids from 0 to {vocab_size - 1}"
    return Kind(f"a string, a list of strings, {ids}, or a list of lists of token ids, none of them empty", convert)

"""Requests for the classes of texts, `/v1/classify`, in the form of vLLM, with the list of scores of TEI.

Both take texts and return labels with scores. From vLLM are the path, `model`, `input` and the list `data` with
`label`, `probs` and `num_classes`; from text-embeddings-inference (TEI), pairs of texts, and lists of `label` and
`score`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from kerasformer.basics.arguments import BOOLEAN, TEXT, Kind, integer, sequence
from kerasformer.pipelines import Label, TextClassificationPipeline
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.jobs import Job
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.predictions import batches, check_count, count_tokens, predicted, zero_shot
from kerasformer.tools.server.replies import ApiError, json_response
from kerasformer.tools.server.served_model import ServedModel

_PAIR = sequence(TEXT)
_INPUT = Kind("a string, a list of strings, or a list of pairs of strings", lambda value: _inputs(value))
_LABELS = sequence(TEXT.where(bool, "a string that is not empty"), least=1)


@dataclass(frozen=True)
class ClassifyRequest:
    """A checked request.

    Attributes:
        model: The model.
        inputs: Texts, or pairs of texts.
        labels: Classes of the request; `None` for those of the model.
        options: Further arguments of the pipeline.
        top_k: Number of classes in each list of scores; `None` for all.
    """

    model: ServedModel
    inputs: tuple[str | tuple[str, str], ...]
    labels: tuple[str, ...] | None
    options: dict[str, Any]
    top_k: int | None


def read_classify(body: Mapping[str, object], model: ServedModel, limits: Limits) -> ClassifyRequest:
    """Reads a request.

    Raises:
        ApiError: the model is no classifier, or a field is wrong or not supported.
    """
    fields = Fields(body)
    fields.ignore("model", "user")
    labels = fields.read("candidate_labels", _LABELS)
    if labels is None and not isinstance(model.pipe, TextClassificationPipeline):
        raise ApiError(
            400, f"{model.name} is for {model.pipe.task}, not for classification. Use another model", param="model"
        )
    inputs = fields.required("input", _INPUT)
    check_count("input", len(inputs), limits)
    kinds: dict[str, Kind] = {"truncation": BOOLEAN}
    if labels is not None:
        check_count("candidate_labels", len(labels), limits)
        kinds |= {"multi_label": BOOLEAN, "hypothesis_template": TEXT}
        if not all(isinstance(each, str) for each in inputs):
            raise ApiError(400, "candidate_labels are for single texts. Received: pairs", param="input")
        zero_shot(model)
    options = {name: value for name, kind in kinds.items() if (value := fields.read(name, kind)) is not None}
    top_k = fields.read("top_k", integer(1))
    # Fields of vLLM and TEI, with the values that are what this server does.
    fields.refuse_others({"activation": (True,), "use_activation": (True,), "raw_scores": (False,)})
    return ClassifyRequest(model, inputs, labels, options, top_k)


async def respond(request: Request, asked: ClassifyRequest, measurements: Measurements) -> Response:
    """Returns the response to a request.

    Raises:
        ApiError: the request is refused.
        ClientDisconnect: the client left before the answer.
    """
    rows, count = await predicted(request, asked.model, lambda job: _classified(asked, job), "input")
    measurements.prompt_tokens.labels(asked.model.name).inc(count)
    # In a thread, as the classes of two thousand texts may be megabytes of JSON, during which others must be served.
    return await asyncio.to_thread(_response, asked, rows, count)


def _response(asked: ClassifyRequest, rows: Sequence[Sequence[Label]], count: int) -> Response:
    order = asked.labels or asked.model.pipe.info.labels
    return json_response(
        {
            "id": f"classify-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": asked.model.name,
            "data": [_datum(index, row, order, asked.top_k) for index, row in enumerate(rows)],
            "usage": {"prompt_tokens": count, "total_tokens": count, "completion_tokens": 0},
        }
    )


def _datum(index: int, row: Sequence[Label], order: Sequence[str], top_k: int | None) -> dict[str, object]:
    scores = {each["label"]: each["score"] for each in row}
    return {
        "index": index,
        "label": row[0]["label"],
        "probs": [scores[label] for label in order],
        "num_classes": len(order),
        "scores": [*row[:top_k]],
    }


def _classified(asked: ClassifyRequest, job: Job) -> tuple[list[list[Label]], int]:
    """Returns all classes of each text, the best first, and the number of tokens."""
    rows, count = list[list[Label]](), 0
    for part in batches(asked.inputs, job, len(asked.labels or (None,))):
        if asked.labels is None:
            found = asked.model.pipe(part, top_k=None, **asked.options)
            rows += [each if isinstance(each, list) else [each] for each in found]
        else:
            for each in zero_shot(asked.model)(part, asked.labels, **asked.options):
                pairs = zip(each["labels"], each["scores"], strict=True)
                rows.append([{"label": label, "score": score} for label, score in pairs])
        texts = [text for each in part for text in ([each] if isinstance(each, str) else each)]
        count += count_tokens(asked.model.pipe, texts)
    return rows, count


def _inputs(value: Any) -> tuple[str | tuple[str, str], ...]:
    """Returns texts and pairs. Two strings are two texts, as in vLLM, and not a pair, as in TEI."""
    if isinstance(value, str):
        return (TEXT.convert(value),)
    inputs: list[str | tuple[str, str]] = []
    for each in value:
        if isinstance(each, str):
            inputs.append(TEXT.convert(each))
        else:
            first, second = _PAIR.convert(each)
            inputs.append((first, second))
    if not inputs or not isinstance(value, list):
        raise ValueError
    return tuple(inputs)

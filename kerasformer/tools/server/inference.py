"""The Open Inference Protocol v2 of KServe and Triton: `/v2`, with JSON alone.

Reference: https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import kerasformer
from kerasformer.basics.arguments import STRING, TEXT, instance, integer, sequence
from kerasformer.tools.server.completions import read_completion
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.predictions import check_count, count_tokens, predicted
from kerasformer.tools.server.replies import ApiError, json_response
from kerasformer.tools.server.served_model import ServedModel
from kerasformer.tools.server.tensors import BYTES, Tensor, form_of
from kerasformer.tools.server.text_requests import TextRequest, generated

VERSION = "1"
"""The only version of each model."""
_OBJECT = instance("an object", dict)
_SHAPE = sequence(integer(0, 2**31 - 1), least=1).where(
    lambda shape: len(shape) <= 8, "a list of 1 to 8 integers from 0 to 2147483647"
)
_GENERATED = {"text": (BYTES, 2), "finish_reason": (BYTES, 2)}
"""Outputs of models that generate texts: one row for each prompt, with `n` texts."""
_NOT_HERE = {"stream", "stream_options", "echo", "logprobs", "model", "prompt"}
"""Fields of a completion that are no parameters."""
_BINARY = ("binary_data", "binary_data_output")
"""Parameters that ask for binary tensors, which a client does not need."""
NO_BINARY = (
    "This server reads JSON, and no binary tensors. With tritonclient, pass binary_data=False to set_data_from_numpy"
)
NO_VERSION_1 = (
    "This is version 1 of KServe's protocol. Expected: version 2, POST /v2/models/{name}/infer with "
    '{{"inputs": [{{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["Some text"]}}]}}'
)
NOT_VERSION_2 = (
    "Below /v2 is the Open Inference Protocol, such as POST /v2/models/NAME/infer. OpenAI's API is below /v1"
)
_OTHERS = {
    "instances": "'instances' is of version 1 of KServe's protocol",
    "messages": "'messages' is of OpenAI's API; send the request to /v1/chat/completions, or to version 2 as follows",
    "prompt": "'prompt' is of OpenAI's API; send the request to /v1/completions, or to version 2 as follows",
    "input": "'input' is of OpenAI's API; send the request to /v1/embeddings, or to version 2 as follows",
}
"""Fields of other protocols."""
_EXAMPLE = '{"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["Some text"]}]}'


@dataclass(frozen=True)
class InferenceRequest:
    """A checked request.

    Attributes:
        model: The model.
        id: What the client calls the request, or `None`.
        texts: Texts of each input.
        parameters: Arguments of the pipeline.
        outputs: Names of the outputs that are returned.
        completion: The request for texts, if the model generates.
    """

    model: ServedModel
    id: str | None
    texts: dict[str, tuple[str, ...]]
    parameters: dict[str, Any]
    outputs: tuple[str, ...]
    completion: TextRequest | None = None


def server_metadata() -> dict[str, object]:
    """Returns the description of the server."""
    return {"name": "kerasformer", "version": kerasformer.__version__, "extensions": []}


def check_version(version: str | None) -> None:
    """Checks the version of a path.

    Raises:
        ApiError: it is another one than the only one.
    """
    if version not in (None, VERSION):
        raise ApiError(404, f"Each model has the version {VERSION} alone. Received: version {version[:20]}")


def model_metadata(model: ServedModel) -> dict[str, object]:
    """Returns the description of a model: its tensors, with -1 for axes of any length."""
    form = form_of(model)
    required, outputs = (("text",), _GENERATED) if form is None else (form.required, form.outputs)
    return {
        "name": model.name,
        "versions": [VERSION],
        "platform": f"kerasformer_{model.pipe.engine}",
        "inputs": [{"name": name, "datatype": BYTES, "shape": [-1]} for name in required],
        "outputs": [
            {"name": name, "datatype": datatype, "shape": [-1] * axes} for name, (datatype, axes) in outputs.items()
        ],
    }


def read_inference(body: Mapping[str, object], model: ServedModel, limits: Limits) -> InferenceRequest:
    """Reads a request.

    Raises:
        ApiError: a request of another protocol, or inputs, outputs or parameters that the model does not have.
    """
    if "inputs" not in body:
        hint = next((hint for name, hint in _OTHERS.items() if name in body), "'inputs' is missing")
        raise ApiError(400, f"{hint}. Expected: a request of the Open Inference Protocol v2, {_EXAMPLE}")
    fields, form = Fields(body), form_of(model)
    id = fields.read("id", TEXT)
    tensors: tuple[dict[str, object], ...] = fields.required("inputs", sequence(_OBJECT, least=1))
    requested: tuple[dict[str, object], ...] = fields.read("outputs", sequence(_OBJECT), ())
    parameters = dict(fields.read("parameters", _OBJECT, {}))
    fields.refuse_others({})
    for name in _BINARY:
        parameters.pop(name, None)
    required, optional = (("text",), ()) if form is None else (form.required, form.optional)
    texts = dict(_input(tensor) for tensor in tensors)
    if len(texts) < len(tensors) or not set(required) <= set(texts) <= {*required, *optional}:
        further = f", and optionally {', '.join(optional)}" if optional else ""
        raise ApiError(
            400,
            f"{model.name} needs the inputs {', '.join(required)}{further}, each once. Received: "
            f"{', '.join(str(tensor.get('name'))[:40] for tensor in tensors)}",
        )
    _check_lengths(texts)
    for name in texts:
        check_count(name, len(texts[name]), limits)
    outputs = _outputs(requested, _GENERATED if form is None else form.outputs)
    known = None if form is None else form.parameters_for(texts)
    unknown = [name for name in parameters if (name in _NOT_HERE if known is None else name not in known)]
    if unknown:
        raise ApiError(
            400,
            f"{model.name} has no parameter '{unknown[0][:80]}' here. Expected: "
            f"{'fields of /v1/completions' if known is None else ', '.join(sorted(known))}",
        )
    if form is not None:
        return InferenceRequest(model, id, texts, parameters, outputs)
    completion = read_completion({**parameters, "prompt": list(texts["text"])}, model, limits)
    return InferenceRequest(model, id, texts, {}, outputs, completion)


async def respond(request: Request, asked: InferenceRequest, measurements: Measurements, reuse: bool) -> Response:
    """Returns the response to a request.

    Raises:
        ApiError: the request is refused.
        ClientDisconnect: the client left before the answer.
    """
    model = asked.model
    if asked.completion is not None:
        tensors = await _generated(request, asked.completion, measurements, reuse)
    else:
        form = form_of(model)
        if form is None:
            raise TypeError("A request without a completion needs a model with tensors")
        compute, every = form.compute, [text for texts in asked.texts.values() for text in texts]
        tensors, count = await predicted(
            request,
            model,
            lambda job: (compute(model, asked.texts, asked.parameters, job), count_tokens(model.pipe, every)),
        )
        measurements.prompt_tokens.labels(model.name).inc(count)
    return await asyncio.to_thread(_response, asked, tensors)


def _response(asked: InferenceRequest, tensors: Sequence[Tensor]) -> Response:
    outputs = [tensor.body for tensor in tensors if tensor.name in asked.outputs]
    named = {} if asked.id is None else {"id": asked.id}
    return json_response({"model_name": asked.model.name, "model_version": VERSION, **named, "outputs": outputs})


async def _generated(
    request: Request, completion: TextRequest, measurements: Measurements, reuse: bool
) -> list[Tensor]:
    """Returns the texts of a model that generates."""
    texts, _ = await generated(request, completion, measurements, reuse)
    shape = len(completion.prompts), completion.sampling.n
    return [
        Tensor("text", BYTES, shape, ["".join(piece.text for piece in pieces) for pieces in texts]),
        Tensor("finish_reason", BYTES, shape, [pieces[-1].finish_reason for pieces in texts]),
    ]


def _input(tensor: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """Returns the name and the texts of an input."""
    fields = Fields(tensor)
    name: str = fields.required("name", STRING)
    datatype, shape = fields.required("datatype", STRING), fields.required("shape", _SHAPE)
    settings = fields.read("parameters", _OBJECT, {})
    if "binary_data_size" in settings:
        raise ApiError(
            400,
            f"The input '{name[:40]}' is binary, which this server does not read. Expected: its texts in 'data'. "
            "With tritonclient, pass binary_data=False to set_data_from_numpy",
        )
    if datatype != BYTES:
        raise ApiError(
            400, f"The input '{name[:40]}' must have the datatype BYTES, for texts. Received: {datatype[:20]}"
        )
    data = _flat(fields.required("data", instance("a list", list)))
    fields.refuse_others({})
    if not all(isinstance(text, str) for text in data):
        raise ApiError(400, f"The data of the input '{name[:40]}' must be strings. Received: other values")
    if not data or len(data) != prod(shape):
        raise ApiError(
            400,
            f"The data of the input '{name[:40]}' must have at least one string, and as many as its shape says: "
            f"{prod(shape)}. Received: {len(data)}",
        )
    return name, tuple(data)


def _flat(data: list[Any]) -> list[Any]:
    """Returns values without the lists of their axes, which a client may send or leave out."""
    return [value for each in data for value in (_flat(each) if isinstance(each, list) else [each])]


def _check_lengths(texts: Mapping[str, Sequence[str]]) -> None:
    """Checks that inputs have equal numbers of texts, except for classes, which are those of all texts."""
    counts = {name: len(each) for name, each in texts.items() if name != "candidate_labels"}
    if len({*counts.values()}) > 1:
        received = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise ApiError(400, f"All inputs must have the same number of texts. Received: {received}")
    if "pair" in texts and "candidate_labels" in texts:
        raise ApiError(400, "Classes of a request are for single texts. Expected: pair or candidate_labels, not both")


def _outputs(requested: Sequence[Mapping[str, object]], known: Mapping[str, object]) -> tuple[str, ...]:
    names = []
    for output in requested:
        fields = Fields(output)
        names.append(fields.required("name", STRING))
        fields.read("parameters", _OBJECT)
        fields.refuse_others({})
    if unknown := [name for name in names if name not in known]:
        raise ApiError(400, f"There is no output '{unknown[0][:40]}'. Expected: {', '.join(known)}")
    return tuple(names or known)

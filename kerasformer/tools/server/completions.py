"""Requests for continuations of prompts, `/v1/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerasformer.basics.arguments import BOOLEAN, TEXT, Kind, integer, sequence
from kerasformer.tools.server.answers import CompletionAnswer
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.replies import ApiError
from kerasformer.tools.server.sampling import read_sampling, top_candidates
from kerasformer.tools.server.served_model import ServedModel
from kerasformer.tools.server.text_requests import TextRequest

_DEFAULT_TOKENS = 16
"""Number of new tokens of a request without a limit, as in OpenAI's API."""
_MAX_CANDIDATES = 5
"""Largest value of `logprobs`, as in OpenAI's API."""


def read_completion(body: Mapping[str, object], model: ServedModel, limits: Limits) -> TextRequest:
    """Reads a request.

    Raises:
        ApiError: the model is for other requests, or a field is wrong or not supported.
    """
    fields = Fields(body)
    fields.ignore("model")
    if not model.generates:
        raise ApiError(400, f"{model.name} is for {model.pipe.task}, not for texts. Use another model", param="model")
    prompts = fields.required("prompt", _prompts_of(model.pipe.model.vocab_size))
    options: dict[str, object] = {"raw": True}  # a chat template is for `/v1/chat/completions`
    if model.pipe.task != "text-generation":
        options = {name: fields.read(name, TEXT) for name in ("prefix", "src_lang", "tgt_lang")}
        if not all(isinstance(prompt, str) for prompt in prompts):
            raise ApiError(400, f"A prompt of {model.name} must be a string. Received: token ids", param="prompt")
    echo = fields.read("echo", BOOLEAN, False)
    sampling = read_sampling(
        fields,
        limits,
        num_prompts=len(prompts),
        vocab_size=model.pipe.model.vocab_size,
        default_tokens=_DEFAULT_TOKENS,
        lengths=("max_tokens",),
        least_tokens=0 if echo else 1,
    )
    num_candidates = fields.read("logprobs", top_candidates(_MAX_CANDIDATES))
    if echo and num_candidates is not None and model.pipe.task != "text-generation":
        raise ApiError(
            400,
            f"{model.name} does not write its prompts, which have no logprobs. Remove echo or logprobs",
            param="echo",
        )
    fields.refuse_others({"best_of": (1, sampling.n), "suffix": ("",)})
    answer = CompletionAnswer(model, num_candidates is not None, sampling.includes_usage)
    return TextRequest(model, prompts, options, sampling, num_candidates, answer, echo)


def _prompts_of(vocab_size: int) -> Kind:
    """Returns the kind of value that is converted to prompts, each a text or token ids."""
    tokens = sequence(integer(0, vocab_size - 1), least=1)
    one = Kind("a prompt", lambda value: TEXT.convert(value) if isinstance(value, str) else tokens.convert(value))

    def convert(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], int)):
            return (one.convert(value),)
        prompts: tuple[object, ...] = sequence(one, least=1).convert(value)
        return prompts

    ids = f"token ids from 0 to {vocab_size - 1}"
    return Kind(f"a string, a list of strings, {ids}, or a list of lists of token ids", convert)

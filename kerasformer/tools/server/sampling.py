"""Fields of requests for texts that set how tokens are chosen, in the names of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kerasformer.basics.arguments import BOOLEAN, TEXT, Kind, instance, integer, number, sequence
from kerasformer.basics.options import declared
from kerasformer.generation import TOP, GenerationConfig
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.replies import ApiError

_OBJECT, _BIAS = instance("an object", dict), number(-100, 100)
_STOPS = Kind("a string, or a list of 1 to 4 strings, none of them empty", lambda value: _stops(value))
_MAX_BIASES = 1024
_SETTINGS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
)
"""Fields that are settings of the same name and with the same values."""
_IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls")
"""Fields that do not change an answer."""


@dataclass(frozen=True)
class Sampling:
    """How texts are generated.

    Attributes:
        settings: Settings of `kerasformer.generation.request`.
        stops: Texts before which an answer ends.
        n: Number of texts for each prompt.
        streams: Whether the answer is sent piece by piece.
        includes_usage: Whether a stream ends with the numbers of tokens.
        max_tokens: Largest number of new tokens, whatever the settings of the model say; `None` without a limit.
        generates: Whether there are new tokens; otherwise, an answer consists of its prompt.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    stops: tuple[str, ...] = ()
    n: int = 1
    streams: bool = False
    includes_usage: bool = False
    max_tokens: int | None = None
    generates: bool = True

    @property
    def rows(self) -> int:
        """Number of texts for each prompt that are generated; `n`, or 1 if all are the same."""
        rows: int = self.settings["num_return_sequences"]
        return rows


def read_sampling(
    fields: Fields,
    limits: Limits,
    *,
    num_prompts: int,
    vocab_size: int,
    default_tokens: int | None,
    lengths: tuple[str, ...],
    least_tokens: int = 1,
) -> Sampling:
    """Reads the fields.

    Args:
        fields: Fields of the request.
        limits: Limits of the server.
        num_prompts: Number of prompts of the request.
        vocab_size: Number of tokens of the model.
        default_tokens: Number of new tokens of a request without a limit; by default that of the model.
        lengths: Names of the field for the number of new tokens.
        least_tokens: Smallest number of new tokens, 1, or 0 if there may be none.
    Raises:
        ApiError: a value of another type, or over the limits.
    """
    known = declared(GenerationConfig)
    settings: dict[str, Any] = {name: fields.read(name, known[name][1].kind) for name in _SETTINGS}
    settings |= {"sequence_bias": fields.read("logit_bias", _biases_of(vocab_size)) or None, **_constraint(fields)}
    seed = fields.read("seed", integer(-(2**63), 2**64 - 1))
    if seed is not None:
        settings["seed"] = seed % 2**64
    n = fields.read("n", integer(1), 1)
    if n * num_prompts > limits.max_choices:
        raise ApiError(
            400, f"A request may ask for at most {limits.max_choices} texts. Received: {n * num_prompts}", param="n"
        )
    rows = 1 if settings["temperature"] == 0 else n  # greedy search has one result
    if rows > 1:
        settings["do_sample"] = True  # the model's own setting may be greedy search
    num_tokens = _num_tokens(fields, limits, lengths, default_tokens, least_tokens)
    settings["max_new_tokens"] = num_tokens or None
    settings = {name: value for name, value in settings.items() if value is not None}
    # Texts are sent as they are generated, and each step is shared with other requests.
    settings |= {"num_return_sequences": rows, "num_beams": 1, "prompt_lookup_num_tokens": 0}
    stops = fields.read("stop", _STOPS, ())
    streams = fields.read("stream", BOOLEAN, False)
    options = fields.read("stream_options", _OBJECT, {})
    if options and not streams:
        raise ApiError(400, "stream_options is only allowed when stream is true", param="stream_options")
    includes_usage = Fields(options).read("include_usage", BOOLEAN, False)
    fields.ignore(*_IGNORED)
    return Sampling(settings, stops, n, streams, includes_usage, limits.max_tokens, num_tokens != 0)


def top_candidates(count: int | None) -> Kind:
    """A number of most probable tokens; at most that of a record, `TOP`, or `count`."""
    return integer(0, TOP if count is None else count)


def _num_tokens(fields: Fields, limits: Limits, names: tuple[str, ...], default: int | None, least: int) -> int | None:
    """Returns the maximum number of new tokens."""
    given = [(name, value) for name in names if (value := fields.read(name, integer(least))) is not None]
    if not given:
        return default
    name, value = given[0]
    if limits.max_tokens is not None and value > limits.max_tokens:
        raise ApiError(
            400, f"{name} is too large: {value}. This server generates at most {limits.max_tokens} tokens", param=name
        )
    return int(value)


def _constraint(fields: Fields) -> dict[str, object]:
    """Returns the constraint of `response_format`."""
    form = fields.read("response_format", _OBJECT)
    if form is None or form.get("type") == "text":
        return {}
    if form.get("type") == "json_object":
        return {"json_schema": {"type": "object"}}
    described = form.get("json_schema")
    if form.get("type") != "json_schema" or not isinstance(described, Mapping):
        raise ApiError(
            400,
            'response_format must be {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", '
            '"json_schema": {"name": …, "schema": …}}',
            param="response_format",
        )
    schema = described.get("schema")
    if not isinstance(schema, Mapping):
        raise ApiError(400, "response_format.json_schema needs a schema, an object", param="response_format")
    return {"json_schema": dict(schema)}


def _biases_of(vocab_size: int) -> Kind:
    """Returns the kind of value that is converted to pairs of a token and its bias."""

    def convert(value: Any) -> tuple[tuple[tuple[int], float], ...]:
        biases = {int(token): _BIAS.convert(bias) for token, bias in _OBJECT.convert(value).items()}
        if len(biases) > _MAX_BIASES or not all(0 <= token < vocab_size for token in biases):
            raise ValueError
        return tuple(((token,), bias) for token, bias in biases.items())

    return Kind(
        f"an object that maps token ids from 0 to {vocab_size - 1} to numbers from -100 to 100, at most {_MAX_BIASES} "
        "of them",
        convert,
    )


def _stops(value: Any) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else sequence(TEXT, least=1).convert(value)
    if len(stops) > 4 or not all(stops):
        raise ValueError
    return tuple(TEXT.convert(stop) for stop in stops)

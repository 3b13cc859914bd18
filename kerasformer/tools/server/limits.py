"""Limits of a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kerasformer.basics.arguments import check, integer, number, optional
from kerasformer.basics.options import Option, declared

_COUNT, _SECONDS = Option(integer(1)), Option(number(above=0))


@dataclass(frozen=True)
class Limits:
    """Limits of a server; each protects the other requests from one.

    Attributes:
        max_running: Number of requests of a model that are computed at the same time.
        max_waiting: Number of further requests of a model that wait; more are refused with status 503.
        max_tokens: Largest number of new tokens of a text; by default the capacity of the cache.
        max_body: Largest size of a body in bytes.
        timeout: Seconds from the arrival of a request to the end of its answer, which then has the tokens so far.
        max_choices: Largest number of texts of one request: `n` times the number of prompts.
        max_rows: Largest number of texts of a model that are generated at the same time, each with a cache in memory; a
            request for more is computed alone.
        max_inputs: Largest number of texts of a request for embeddings, classes or a ranking.
        body_timeout: Seconds in which the headers of a request must arrive, and then its body; also the longest time in
            which a client may read nothing of an answer.
        connections: Largest number of requests of all models and paths at once, without probes of health; more are
            refused with status 503, as are open connections beyond twice as many.
    Raises:
        InputError: a value is not accepted.
    """

    max_running: Annotated[int, _COUNT] = 8
    max_waiting: Annotated[int, Option(integer(0))] = 64
    max_tokens: Annotated[int | None, Option(optional(integer(1)))] = None
    max_body: Annotated[int, _COUNT] = 4 * 2**20
    timeout: Annotated[float, _SECONDS] = 300.0
    max_choices: Annotated[int, _COUNT] = 16
    max_rows: Annotated[int, _COUNT] = 32
    max_inputs: Annotated[int, _COUNT] = 2048
    body_timeout: Annotated[float, _SECONDS] = 30.0
    connections: Annotated[int, _COUNT] = 256

    def __post_init__(self) -> None:
        kind: type = type(self)
        for name, (_, option) in declared(kind).items():
            check(name, getattr(self, name), option.kind)

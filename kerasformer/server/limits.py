"""Limits of a server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from kerasformer.arguments import check, integer, number, optional


@dataclass(frozen=True)
class Limits:
    """Limits of a server; each protects the other requests from one.

    Attributes:
        running: Number of requests of a model that are computed at the same time.
        waiting: Number of further requests of a model that wait; more are refused with status 503.
        timeout: Seconds from the arrival of a request to the end of its answer. A text ends then with the tokens that
            it has.
        max_tokens: Largest number of new tokens of a text that a request may ask for; `None` for the capacity of the
            cache.
        max_choices: Largest number of texts of one request, which is `n` times the number of prompts.
        max_rows: Largest number of texts of a model that are generated at the same time, each of which has a cache in
            memory; further requests wait. A request for more texts is computed alone.
        max_inputs: Largest number of texts of a request for embeddings.
        max_body: Largest size of a body in bytes.
        body_timeout: Seconds in which the headers of a request must arrive, and then its body; also the longest time in
            which a client may read nothing of an answer.
        connections: Largest number of requests of all models and paths at once; more are refused with status 503, and
            so are twice as many open connections.
    """

    running: int = 8
    waiting: int = 64
    timeout: float = 300.0
    max_tokens: int | None = None
    max_choices: int = 16
    max_rows: int = 32
    max_inputs: int = 2048
    max_body: int = 4 * 2**20
    body_timeout: float = 30.0
    connections: int = 256

    def __post_init__(self) -> None:
        """Checks all values.

        Raises:
            InputError: a limit is not a number above 0; `waiting` may be 0.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("timeout", "body_timeout"):
                check(field.name, value, number(above=0))
            elif field.name == "max_tokens":
                check(field.name, value, optional(integer(1)))
            else:
                check(field.name, value, integer(0 if field.name == "waiting" else 1))

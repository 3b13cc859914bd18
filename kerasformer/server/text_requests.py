"""Answering of requests for texts: as one JSON object, or as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kerasformer.server.answers import Answer
from kerasformer.server.clients import while_connected
from kerasformer.server.jobs import Job
from kerasformer.server.limits import Limits
from kerasformer.server.measurements import Measurements
from kerasformer.server.replies import ApiError, encoded, internal_error, json_response
from kerasformer.server.sampling import Sampling
from kerasformer.server.served_model import ServedModel
from kerasformer.server.texts import Piece, Texts


@dataclass(frozen=True)
class TextRequest:
    """A checked request for texts.

    Attributes:
        model: The model.
        prompts: Prompts, or one conversation.
        options: Further arguments of the pipeline.
        sampling: How the texts are generated.
        num_candidates: Number of candidates of each token; `None` without log-probabilities.
        answer: Form of the answer.
        echo: Whether texts begin with their prompts.
    """

    model: ServedModel
    prompts: Sequence[object]
    options: dict[str, object]
    sampling: Sampling
    num_candidates: int | None
    answer: Answer
    echo: bool = False


async def respond(
    request: Request, asked: TextRequest, limits: Limits, measurements: Measurements, reuse: bool
) -> Response:
    """Returns the response to a request.

    Args:
        request: The HTTP request.
        asked: Its content.
        limits: Limits of the server.
        measurements: Figures of the server.
        reuse: Whether to continue the caches of earlier texts.
    Raises:
        ApiError: the request is refused.
        ClientDisconnect: the client left before the answer.
    """
    texts = Texts(
        asked.model,
        asked.prompts,
        asked.options,
        asked.sampling,
        asked.num_candidates,
        reuse,
        measurements,
        echo=asked.echo,
    )
    rows = asked.sampling.rows
    if asked.sampling.streams:
        events = asked.model.jobs.start(texts.pieces, rows).events()
        # Errors of the prompt and the settings are an HTTP status, which is not possible after the first piece.
        await while_connected(request, anext(events))
        return StreamingResponse(_sent(events, asked, texts), media_type="text/event-stream", headers=_UNBUFFERED)

    def whole(job: Job) -> Generator[list[Piece], None, None]:
        yield [piece for pieces in texts.pieces(job) for piece in pieces]

    pieces = await while_connected(request, asked.model.jobs.start(whole, rows).result())
    by_index: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_index.setdefault(piece.index, []).append(piece)
    answer = asked.answer
    choices = [answer.choice(by_index[index]) for index in sorted(by_index)]
    return json_response({**answer.head(answer.whole_kind), "choices": choices, "usage": texts.usage.body})


_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers that keep proxies from collecting pieces."""


async def _sent(events: AsyncGenerator[list[Piece], None], asked: TextRequest, texts: Texts) -> AsyncIterator[bytes]:
    """Yields the server-sent events of an answer."""
    answer, includes_usage = asked.answer, asked.sampling.includes_usage
    head = answer.head(answer.piece_kind) | ({"usage": None} if includes_usage else {})
    count = asked.sampling.n * len(asked.prompts)
    async with aclosing(events):
        for index in range(count):
            if opening := answer.opening(index):
                yield _event({**head, "choices": [opening]})
        try:
            async for pieces in events:
                for piece in pieces:
                    yield _event({**head, "choices": [answer.delta(piece)]})
        except ApiError as error:
            yield _event(error.body)
            return
        except Exception as error:
            yield _event(internal_error(error).body)
            return
    if includes_usage:
        yield _event({**head, "choices": [], "usage": texts.usage.body})
    yield b"data: [DONE]\n\n"


def _event(content: object) -> bytes:
    return b"data: " + encoded(content) + b"\n\n"

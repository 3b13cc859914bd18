"""Answering of requests for texts: as one JSON object, or as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kerasformer.tools.server.answers import Answer
from kerasformer.tools.server.clients import client_of, while_connected
from kerasformer.tools.server.jobs import Job
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.replies import ApiError, internal_error, json_response
from kerasformer.tools.server.sampling import Sampling
from kerasformer.tools.server.served_model import ServedModel
from kerasformer.tools.server.texts import Piece, Texts, Usage


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


async def respond(request: Request, asked: TextRequest, measurements: Measurements, reuse: bool) -> Response:
    """Returns the response to a request.

    Args:
        request: The HTTP request.
        asked: Its content.
        measurements: Figures of the server.
        reuse: Whether to continue the caches of earlier texts.
    Raises:
        ApiError: the request is refused.
        ClientDisconnect: the client left before the answer.
    """
    if not asked.sampling.streams:
        return json_response(asked.answer.whole(*await generated(request, asked, measurements, reuse)))
    texts = _texts(asked, measurements, reuse)
    events = asked.model.start(texts.pieces, asked.sampling.rows, client_of(request)).events()
    # Errors of the prompt and the settings are an HTTP status, which is not possible after the first piece.
    await while_connected(request, anext(events))
    return StreamingResponse(_sent(events, asked, texts), media_type="text/event-stream", headers=_UNBUFFERED)


async def generated(
    request: Request, asked: TextRequest, measurements: Measurements, reuse: bool
) -> tuple[list[list[Piece]], Usage]:
    """Returns the pieces of each text of a request, and its numbers of tokens; arguments as for `respond`."""
    texts = _texts(asked, measurements, reuse)

    def whole(job: Job) -> Generator[list[Piece], None, None]:
        yield [piece for pieces in texts.pieces(job) for piece in pieces]

    job = asked.model.start(whole, asked.sampling.rows, client_of(request))
    pieces = await while_connected(request, job.result())
    by_index: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_index.setdefault(piece.index, []).append(piece)
    return [by_index[index] for index in sorted(by_index)], texts.usage


def _texts(asked: TextRequest, measurements: Measurements, reuse: bool) -> Texts:
    return Texts(
        asked.model,
        asked.prompts,
        asked.options,
        asked.sampling,
        asked.num_candidates,
        reuse,
        measurements,
        echo=asked.echo,
    )


_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers that keep proxies from collecting pieces."""


async def _sent(events: AsyncGenerator[list[Piece], None], asked: TextRequest, texts: Texts) -> AsyncIterator[bytes]:
    """Yields the server-sent events of an answer."""
    answer = asked.answer
    async with aclosing(events):
        for sent in answer.opening(asked.sampling.n * len(asked.prompts)):
            yield sent
        try:
            async for pieces in events:
                for piece in pieces:
                    for sent in answer.events(piece):
                        yield sent
        except Exception as error:
            for sent in answer.failing(error if isinstance(error, ApiError) else internal_error(error)):
                yield sent
            return
    for sent in answer.closing(texts.usage):
        yield sent

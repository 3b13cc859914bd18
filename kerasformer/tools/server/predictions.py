"""Results of models that are no generated texts: computed in a thread, in batches between which a client may leave."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from kerasformer.basics.arguments import TEXT, Kind, sequence
from kerasformer.errors import KerasformerError
from kerasformer.pipelines import Opened, TextClassificationPipeline, ZeroShotClassificationPipeline
from kerasformer.tools.server.clients import client_of, while_connected
from kerasformer.tools.server.jobs import Job
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.replies import ApiError, refused
from kerasformer.tools.server.served_model import ServedModel

_BATCH = 32
"""Number of texts that the model reads between two checks whether the client has left."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

TEXTS = Kind(
    "a string or a list of strings",
    lambda value: (TEXT.convert(value),) if isinstance(value, str) else sequence(TEXT, least=1).convert(value),
)
"""One text or several."""


async def predicted(
    request: Request, model: ServedModel, compute: Callable[[Job], _Result], param: str | None = None
) -> _Result:
    """Returns what a thread computes for a request.

    Args:
        request: The request, whose body was read.
        model: The model.
        compute: Returns the result; a job that is cancelled may end with anything.
        param: Parameter that is wrong if the pipeline refuses the request.
    Raises:
        ApiError: the pipeline refuses the request, or too many requests wait.
        ClientDisconnect: the client left before the answer.
    """

    def whole(job: Job) -> Generator[_Result, None, None]:
        try:
            yield compute(job)
        except KerasformerError as error:
            raise refused(error, param) from error

    result: _Result = await while_connected(request, model.start(whole, client=client_of(request)).result())
    return result


def batches(items: Sequence[_Item], job: Job, reads: int = 1) -> Iterator[list[_Item]]:
    """Yields parts of texts until the client leaves; the model reads each text `reads` times."""
    size = max(1, _BATCH // reads)
    for start in range(0, len(items), size):
        if job.is_cancelled():
            return
        yield [*items[start : start + size]]


def check_count(name: str, count: int, limits: Limits) -> None:
    """Checks the number of texts of a request.

    Raises:
        ApiError: there are too many.
    """
    if count > limits.max_inputs:
        raise ApiError(400, f"{name} must have at most {limits.max_inputs} texts. Received: {count}", param=name)


def count_tokens(pipe: Any, texts: Sequence[str]) -> int:
    """Returns the number of tokens of texts."""
    return sum(len(pipe.tokenizer.encode(text)) for text in texts)


def zero_shot(model: ServedModel) -> ZeroShotClassificationPipeline:
    """Returns the pipeline that classifies with classes of a request.

    Raises:
        ApiError: the model is not one for natural language inference.
    """
    pipe = model.pipe
    if isinstance(pipe, ZeroShotClassificationPipeline):
        return pipe
    if not isinstance(pipe, TextClassificationPipeline):
        raise ApiError(400, f"{model.name} is for {pipe.task}, not for classification. Use another model")
    opened = Opened(pipe.engine, pipe.model, pipe.tokenizer, pipe.info, "zero-shot-classification")
    try:
        return ZeroShotClassificationPipeline(opened)
    except KerasformerError as error:
        raise refused(error, "candidate_labels") from error

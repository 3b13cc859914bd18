"""Bodies of requests: read within limits of size and time, and parsed strictly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request

from kerasformer.files.reading import check_levels, unique_object
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.replies import ApiError

_Asked = TypeVar("_Asked")
_SMALL = 2**16
"""Number of bytes that are parsed at once. A larger body takes so long that other requests must be served meanwhile."""


class Body:
    """The JSON object in the body of a request.

    Args:
        content: The object.
        is_large: Whether it takes long to check.
    """

    def __init__(self, content: dict[str, Any], is_large: bool) -> None:
        self.content, self._is_large = content, is_large

    async def checked(self, read: Callable[[dict[str, Any]], _Asked]) -> _Asked:
        """Returns what the object asks for.

        Args:
            read: Checks the object; called in a thread if the body is large.
        Raises:
            ApiError: `read` refuses it.
        """
        return await asyncio.to_thread(read, self.content) if self._is_large else read(self.content)


async def read_json(request: Request, limits: Limits, *, needs_type: bool = True) -> Body:
    """Returns the JSON object in the body of a request.

    Args:
        request: The request.
        limits: Limits of the server.
        needs_type: Whether each request needs the content type of JSON; otherwise, those of browsers alone.
    Raises:
        ApiError: the body is not JSON (status 400 or 415), too large (413) or too slow (408).
        ClientDisconnect: the client left before the end.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Browsers let any site send a body of another type to a server on this machine, and name the site.
    is_program = not (needs_type or kind or "origin" in request.headers)
    if kind != "application/json" and not is_program:
        raise ApiError(415, f"Expected the header Content-Type: application/json. Received: {kind or 'none'}")
    content = await _content(request, limits)
    if len(content) <= _SMALL:
        return Body(_parsed(content), is_large=False)
    return Body(await asyncio.to_thread(_parsed, content), is_large=True)


async def _content(request: Request, limits: Limits) -> bytes:
    """Returns the body. The bytes are counted as they arrive, since a header can name any length."""
    too_large = ApiError(413, f"The body of a request must have at most {limits.max_body} bytes. Received: more")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limits.max_body:
        raise too_large
    content = bytearray()
    try:
        async with asyncio.timeout(limits.body_timeout):
            async for part in request.stream():
                content += part
                if len(content) > limits.max_body:
                    raise too_large
    except TimeoutError:
        raise ApiError(
            408, f"The body of a request must arrive within {limits.body_timeout:g} seconds. Received: a part of it"
        ) from None
    return bytes(content)


def _parsed(content: bytes) -> dict[str, object]:
    try:
        value = json.loads(content.decode(), parse_constant=_refuse, object_pairs_hook=unique_object)
        check_levels(value)
        # A lone surrogate, which JSON can write as \ud800, is no text, and 1e999 would be read as infinity.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ApiError(400, f"The body of the request is not valid JSON in UTF-8: {reason}") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"The body of the request must be a JSON object. Received: {type(value).__name__}")
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")

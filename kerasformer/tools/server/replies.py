"""Errors as OpenAI's API returns them, a body with message, type, parameter and code; and JSON of responses."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from starlette.responses import Response

from kerasformer.errors import CapacityError, KerasformerError


class ApiError(Exception):
    """A request that is refused.

    Args:
        status: HTTP status.
        message: What is wrong and what to do.
        param: Parameter that is wrong.
        code: Code that programs can compare.
        headers: Further headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, object]:
        """Body of the response."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self, path: str = "") -> Response:
        """Returns the response to a request for a path, in the form of the protocol there."""
        body = {"error": self.message} if path == "/v2" or path.startswith("/v2/") else self.body
        return json_response(body, self.status, self.headers)


def refused(error: KerasformerError, param: str | None = None) -> ApiError:
    """Returns the answer to a request that a pipeline refuses."""
    code = "context_length_exceeded" if isinstance(error, CapacityError) else None
    return ApiError(400, str(error), param=param, code=code)


def overloaded(message: str) -> ApiError:
    """Returns the answer to a request that may succeed later; OpenAI's clients repeat it after `Retry-After`."""
    return ApiError(503, message, code="overloaded", headers={"Retry-After": "1"})


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Returns a response with a JSON body."""
    return Response(encoded(content), status, dict(headers or {}), media_type="application/json")


def encoded(content: object) -> bytes:
    """Returns JSON as bytes, without NaN and infinity, which JSON does not have."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def event(content: object, kind: str | None = None) -> bytes:
    """Returns a server-sent event."""
    return (b"" if kind is None else f"event: {kind}\n".encode()) + b"data: " + encoded(content) + b"\n\n"


def internal_error(error: BaseException) -> ApiError:
    """Logs an unexpected error and returns the answer to its request, which does not contain the error's text."""
    logging.getLogger("kerasformer.tools.server").error("A request failed", exc_info=error)
    return ApiError(500, "The server had an error while it answered this request", code="internal_error")

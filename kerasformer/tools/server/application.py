"""The ASGI application: paths, API key, hosts, and one form of error for everything."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kerasformer.basics.arguments import TEXT
from kerasformer.tools.server import classify, embeddings, inference, rerank, text_requests
from kerasformer.tools.server.bodies import read_json
from kerasformer.tools.server.chat import read_chat
from kerasformer.tools.server.clients import CLIENT
from kerasformer.tools.server.completions import read_completion
from kerasformer.tools.server.embeddings import read_embeddings
from kerasformer.tools.server.fields import Fields
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.replies import ApiError, internal_error, json_response, overloaded
from kerasformer.tools.server.responses import read_response
from kerasformer.tools.server.served_models import ServedModels

_DRAINED_SECONDS, _DRAINED_BYTES = 1.0, 2**24
"""How much of a refused body is read, so that a client that sends it whole can then read the answer."""


def application(
    models: ServedModels,
    limits: Limits,
    measurements: Measurements,
    *,
    api_key: str | None = None,
    api_keys: Mapping[str, str] | None = None,
    hosts: frozenset[str] | None = None,
    reuse: bool = True,
    cors_origins: Sequence[str] = (),
) -> ASGIApp:
    """Returns the application.

    Args:
        models: The models, which are closed when the application ends.
        limits: Limits of the server.
        measurements: Figures of the server.
        api_key: Key that requests must have, or `None`.
        api_keys: Keys of several clients by name, one of which requests must have, or `None`.
        hosts: Names by which clients may call the server; `None` for any.
        reuse: Whether to continue the caches of earlier texts that begin with the same tokens.
        cors_origins: Origins of web pages that may use the server from a browser; `"*"` for all.
    """

    def posting(read: Callable[..., Any], respond: Callable[..., Awaitable[Response]]) -> Endpoint:
        """Returns an endpoint for bodies that name a model: `read` checks one, and `respond` answers it."""

        async def endpoint(request: Request) -> Response:
            body = await read_json(request, limits)
            model = await models.hold(Fields(body.content).required("model", TEXT), request.scope[_HELD])
            return await respond(
                request, await body.checked(lambda content: read(content, model, limits)), measurements
            )

        return _answering(endpoint)

    texts = partial(text_requests.respond, reuse=reuse)

    async def infer(request: Request) -> Response:
        inference.check_version(request.path_params.get("version"))
        if "inference-header-content-length" in request.headers:
            raise ApiError(400, inference.NO_BINARY)
        body = await read_json(request, limits, needs_type=False)
        model = await models.hold(request.path_params["name"], request.scope[_HELD])
        asked = await body.checked(lambda content: inference.read_inference(content, model, limits))
        return await inference.respond(request, asked, measurements, reuse)

    async def server_metadata(request: Request) -> Response:
        return json_response(inference.server_metadata())

    async def model_metadata(request: Request) -> Response:
        inference.check_version(request.path_params.get("version"))
        model = await models.hold(request.path_params["name"], request.scope[_HELD])
        return json_response(inference.model_metadata(model))

    async def model_ready(request: Request) -> Response:
        inference.check_version(request.path_params.get("version"))
        return json_response({"name": models.described(request.path_params["name"])["id"], "ready": True})

    async def live(request: Request) -> Response:
        return json_response({"live": True, "ready": True})

    async def predict(request: Request) -> Response:
        raise ApiError(400, inference.NO_VERSION_1.format(name=request.path_params["name"][:80]), code="unknown_url")

    async def listed(request: Request) -> Response:
        return json_response({"object": "list", "data": models.descriptions})

    async def described(request: Request) -> Response:
        return json_response(models.described(request.path_params["name"]))

    async def health(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def metrics(request: Request) -> Response:
        content, kind = measurements.text()
        return Response(content, media_type=kind)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for model in models:
            await asyncio.to_thread(model.close)

    routes = [
        Route("/v1/chat/completions", posting(read_chat, texts), methods=["POST"]),
        Route("/v1/completions", posting(read_completion, texts), methods=["POST"]),
        Route("/v1/embeddings", posting(read_embeddings, embeddings.respond), methods=["POST"]),
        Route("/v1/responses", posting(read_response, texts), methods=["POST"]),
        Route("/v1/rerank", posting(rerank.read_rerank, rerank.respond), methods=["POST"]),
        Route("/v1/classify", posting(classify.read_classify, classify.respond), methods=["POST"]),
        Route("/v1/models", _answering(listed)),
        Route("/v1/models/{name:path}", _answering(described)),
        Route("/v1/models/{name:path}:predict", _answering(predict), methods=["POST"]),
        Route("/v2", _answering(server_metadata)),
        Route("/v2/health/live", _answering(live)),
        Route("/v2/health/ready", _answering(live)),
        *(
            Route(f"/v2/models/{{name:path}}{version}{path}", _answering(endpoint), methods=methods)
            for path, endpoint, methods in (
                ("/infer", infer, ["POST"]),
                ("/ready", model_ready, ["GET"]),
                ("", model_metadata, ["GET"]),
            )
            for version in ("/versions/{version}", "")
        ),
        Route("/health", _answering(health)),
        Route("/metrics", _answering(metrics)),
    ]
    handlers: Any = {HTTPException: _http_error}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    keys = dict(api_keys or {}) if api_key is None else {"": api_key}
    guard = _Guard(app, limits, measurements, keys, hosts, routes)
    if not cors_origins:
        return guard
    # Outside the guard: a browser asks without the key whether it may send a request, and refusals are for pages, too.
    return CORSMiddleware(guard, cors_origins, allow_methods=("GET", "POST"), allow_headers=("*",))


_HELD = "kerasformer.held"
"""What a request holds until its answer is sent, such as its model."""
_PROBES = ("/health", "/v2/health/live", "/v2/health/ready")
"""Paths that need no key, since what restarts containers has none, and that a busy server answers, too."""
Endpoint = Callable[[Request], Awaitable[Response]]


def _answering(endpoint: Endpoint) -> Endpoint:
    """Returns an endpoint that answers errors, too."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ApiError as error:
            return error.response(request.url.path)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:
            return internal_error(error).response(request.url.path)

    return answer


async def _http_error(request: Request, error: Exception) -> Response:
    """Answers a path or a method that does not exist."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    method, path = request.method, request.url.path[:80]
    if status == 405:
        message = f"Not allowed to {method} on {path}. Perhaps you meant to use a different HTTP method?"
        headers = error.headers if isinstance(error, HTTPException) else None
        return ApiError(405, message, code="method_not_supported", headers=headers).response(path)
    hint = inference.NOT_VERSION_2 if path.startswith("/v2/") else "Please check the URL"
    return ApiError(404, f"Unknown request URL: {method} {path}. {hint}", code="unknown_url").response(path)


class _Guard:
    """Checks host and key, counts requests, and closes the connection of a client whose body was not read.

    Args:
        app: The application.
        limits: Limits of the server.
        measurements: Figures of the server.
        keys: Keys by the names of clients, one of which requests must have; empty if they need none.
        hosts: Names by which clients may call the server; `None` for any.
        routes: Paths, by which requests are counted.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        measurements: Measurements,
        keys: Mapping[str, str],
        hosts: frozenset[str] | None,
        routes: Sequence[Route],
    ) -> None:
        self._limit, self._requests = limits.connections, 0
        self._app, self._measurements = app, measurements
        self._keys = {name: key.strip().encode() for name, key in keys.items()}
        self._hosts, self._routes = hosts, [(route.path_regex, _label(route.path)) for route in routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Arriving(scope, receive)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"])
                if body.is_unread:
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            elif not message.get("more_body", False) and body.is_unread:
                await send({**message, "more_body": True})
                await body.drain()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        is_probe = scope["path"] in _PROBES
        self._requests += not is_probe
        try:
            refusal = self._refusal(scope, is_probe)
            with ExitStack() as scope[_HELD]:  # until all of the answer is sent
                await (self._app if refusal is None else refusal.response(scope["path"]))(scope, body.receive, counted)
        finally:
            self._requests -= not is_probe

    def _refusal(self, scope: Scope, is_probe: bool) -> ApiError | None:
        if self._requests > self._limit and not is_probe:
            return overloaded("The server is busy with other requests. Try again later")
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"authorization")}
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition("]")[2].count(":") else host
        if self._hosts is not None and name not in self._hosts:
            return ApiError(403, f"This server answers requests to {', '.join(sorted(self._hosts))} only")
        scope[CLIENT] = str(next(iter(scope.get("client") or ()), ""))
        if not self._keys or is_probe:
            return None
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        found = [name for name, each in self._keys.items() if hmac.compare_digest(key.strip(), each)]
        if scheme.lower() == b"bearer" and found:
            if found[0]:
                scope[CLIENT] = found[0]
            return None
        return ApiError(
            401,
            "A request needs the header Authorization: Bearer KEY with the API key of this server",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _count(self, scope: Scope, status: int) -> None:
        path = scope["path"]
        endpoint = next((label for pattern, label in self._routes if pattern.match(path)), "other")
        self._measurements.requests.labels(endpoint, str(status)).inc()


def _label(path: str) -> str:
    """Returns the name of a path in the figures: without the names of models, which are those of requests."""
    return re.sub(r"/\{version\}|:path", "", path).replace("/versions", "").removesuffix("/{name}")


class _Arriving:
    """The body of a request, and whether the server still has to read it.

    Args:
        scope: Scope of the request.
        receive: Returns the next part.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        names = {name for name, value in scope["headers"] if value != b"0"}
        self.is_unread = bool(names & {b"content-length", b"transfer-encoding"})
        self._receive = receive

    async def receive(self) -> Message:
        """Returns the next message of the client."""
        message = await self._receive()
        if not message.get("more_body", False):
            self.is_unread = False
        return message

    async def drain(self) -> None:
        """Reads and forgets the rest, within limits."""
        size = 0
        try:
            async with asyncio.timeout(_DRAINED_SECONDS):
                while self.is_unread and size < _DRAINED_BYTES:
                    size += len((await self.receive()).get("body", b""))
        except TimeoutError:
            pass

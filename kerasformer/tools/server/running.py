"""Running of the server on uvicorn."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from kerasformer.errors import InputError
from kerasformer.tools.server.application import application
from kerasformer.tools.server.keys import read_keys
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.options import ServerOptions
from kerasformer.tools.server.served_models import ServedModels, open_models

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names of this machine for itself."""
_SHUTDOWN_SECONDS = 30
"""Time in which running requests can end when the server is stopped."""


def serve(
    models: Sequence[str | os.PathLike[str]],
    options: ServerOptions | None = None,
    *,
    ready: Callable[[str, list[str]], object] = lambda address, names: None,
) -> None:
    """Serves models until the process is asked to stop (SIGTERM, Ctrl+C).

    Args:
        models: Presets, checkpoint folders, hub ids and bundles; `NAME=SOURCE` sets the name.
        options: Address, key and limits; the defaults of `ServerOptions` if `None`.
        ready: Called with the address of the API and the names of the models before the first request.
    Raises:
        InputError: the address is unavailable, a key is empty, an origin is not one, or a model cannot be served.
        SystemExit: SIGTERM arrives while models load, and the process has no handler for it.
    """
    options = options or ServerOptions()
    # Before models are loaded, which can take minutes.
    listening = listen(options.host, options.port)
    # Without a handler, the first process of a container ignores SIGTERM while models load.
    unhandled = [signal.SIGTERM] if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL else []
    with listening, _handling(unhandled, _end):
        # Without a key, a web page whose name leads to this machine could use the server.
        has_key = options.api_key is not None or options.api_keys is not None
        hosts = LOOPBACK if not has_key and options.host in ("127.0.0.1", "localhost", "::1") else None
        app, opened = application_of(models, options, hosts)
        ready(_address(listening), opened.names)
        # Quietly, since uvicorn raises the signal that has stopped it again when everything has ended.
        with _handling([signal.SIGINT, signal.SIGTERM], lambda number, frame: None):
            uvicorn.Server(settings(app, options)).run([listening])


def application_of(
    models: Sequence[str | os.PathLike[str]], options: ServerOptions, hosts: frozenset[str] | None = None
) -> tuple[ASGIApp, ServedModels]:
    """Opens models and returns the application that serves them, for a server of your own.

    Args:
        models: Presets, checkpoint folders, hub ids and bundles; `NAME=SOURCE` sets the name.
        options: Keys and limits; its address is unused.
        hosts: Names by which clients may call the server; `None` for any.
    Raises:
        InputError: a key is empty, an origin is not one, or a model cannot be served.
    """
    _check_keys(options)
    _check_origins(options.cors_origins)
    measurements = Measurements()
    opened = open_models(
        models,
        options,
        measurements,
        options.num_threads,
        adapters=options.adapter,
        memory_budget=options.memory_budget,
    )
    app = application(
        opened,
        options,
        measurements,
        api_key=options.api_key,
        api_keys=None if options.api_keys is None else read_keys(options.api_keys),
        hosts=hosts,
        reuse=options.prefix_cache,
        cors_origins=options.cors_origins,
    )
    return app, opened


def _check_keys(options: ServerOptions) -> None:
    """Checks the key, or the keys with names."""
    if options.api_key is not None and (not options.api_key.strip() or not options.api_key.isascii()):
        raise InputError("An API key must have at least one character, all of them ASCII. Received: another key")
    if options.api_keys is not None:
        read_keys(options.api_keys)
        if options.api_key is not None:
            raise InputError("A server has one key or keys with names. Received: api_key and api_keys")


def _check_origins(origins: Sequence[str]) -> None:
    """Checks that origins are written as browsers send them."""
    for origin in origins:
        if not re.fullmatch(r"\*|[a-z][a-z0-9+.-]*://[^/\s?#@]+", origin):
            raise InputError(
                "An origin is a scheme and a host, with a port if it is not the usual one, and no path. Expected: "
                f"such as https://example.com or http://localhost:3000, or * for all. Received: {origin}"
            )


def settings(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """Returns the settings of uvicorn. Requests are not logged, since they are private."""
    return uvicorn.Config(
        app,
        http=_protocol(limits.body_timeout),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        # The application refuses more requests by itself; idle connections have none.
        limit_concurrency=2 * limits.connections,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


def _protocol(seconds: float) -> type[H11Protocol]:
    """Returns the protocol of uvicorn with time limits for clients that do not send headers, or read no answer."""

    class Protocol(H11Protocol):
        _stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.set_write_buffer_limits(0)  # so that writing is paused whenever something waits to be read
            self._await_headers()

        def data_received(self, data: bytes) -> None:
            cycle = self.cycle
            super().data_received(data)
            if self.cycle is not cycle:
                self._headers.cancel()
            elif cycle is not None and cycle.response_complete and self._headers.cancelled():
                self._await_headers()  # part of the headers of the next request

        def pause_writing(self) -> None:
            super().pause_writing()
            self._await_reading()

        def resume_writing(self) -> None:
            self._end_waiting()
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._headers.cancel()
            self._end_waiting()
            super().connection_lost(exc)

        def _await_reading(self) -> None:
            """Aborts the connection if the client reads nothing for some time, since closing it would wait, too."""
            size = self.transport.get_write_buffer_size()

            def check() -> None:
                if self.transport.get_write_buffer_size() < size:
                    self._await_reading()
                else:
                    self.transport.abort()

            self._stalled = self.loop.call_later(seconds, check)

        def _end_waiting(self) -> None:
            if self._stalled is not None:
                self._stalled.cancel()

        def _await_headers(self) -> None:
            self._headers = self.loop.call_later(seconds, self.transport.close)

    return Protocol


def _end(number: int, frame: object) -> None:
    raise SystemExit(0)


@contextmanager
def _handling(signals: Sequence[signal.Signals], handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handles signals meanwhile, in the main thread, which alone can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, handler) for each in signals}
    try:
        yield
    finally:
        for each, earlier in before.items():
            signal.signal(each, earlier)


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on an address: clients that know the address wait until the server answers."""
    try:
        # With its protocol: asyncio sends at once (TCP_NODELAY) on sockets of TCP alone; others hold back for 40 ms.
        listening = socket.socket(*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][:3])
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        raise InputError(
            f"The server cannot listen on {host}:{port}: {error}. Choose another --port, or 0 for a free one."
        ) from error
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"

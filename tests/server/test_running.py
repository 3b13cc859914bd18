"""The socket of a server."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kerasformer.server.running import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_an_answer_is_sent_at_once(host: str) -> None:
    """Otherwise the last part of an answer waits for the client's acknowledgement, which may take 40 ms."""
    delays: list[int] = []

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connection = transport.get_extra_info("socket")
            delays.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def connect(listening: socket.socket) -> None:
        async with await asyncio.get_running_loop().create_server(Protocol, sock=listening):
            reader, _ = await asyncio.open_connection(*listening.getsockname()[:2])
            assert await reader.read() == b""

    with listen(host, 0) as listening:
        asyncio.run(connect(listening))
    assert delays and delays[0] != 0

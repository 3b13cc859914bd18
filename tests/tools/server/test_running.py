"""The socket of a server, and signals."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading

import pytest

from kerasformer.tools.server import ServerOptions, running
from kerasformer.tools.server.running import listen


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
            reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

    with listen(host, 0) as listening:
        asyncio.run(connect(listening))
    assert delays and delays[0] != 0


def test_a_client_that_knows_the_address_waits_for_the_server() -> None:
    with listen("127.0.0.1", 0) as listening:
        socket.create_connection(listening.getsockname(), timeout=5).close()


def test_the_process_ends_while_models_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a handler, the first process of a container would ignore SIGTERM."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        pytest.skip("signals are handled by others")

    def load(*arguments: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("the signal was ignored")

    monkeypatch.setattr(running, "application_of", load)
    with pytest.raises(SystemExit) as end:
        running.serve([], ServerOptions(port=0))
    assert end.value.code == 0 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

"""Serves a folder, and evaluates JavaScript in a page of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kerasformer.tools.web import serve
from kerasformer.tools.web.serve import Handler
from tests.foreign.environments import started


class LinkFollowingHandler(SimpleHTTPRequestHandler):
    """Has the headers and types of the real server, but follows links, such as the `node_modules` of a test."""

    extensions_map = Handler.extensions_map

    def end_headers(self) -> None:
        """Adds the headers."""
        for name, value in serve._HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@contextmanager
def served(folder: Path, handler: type[SimpleHTTPRequestHandler] = LinkFollowingHandler) -> Iterator[str]:
    """Serves a folder with the headers that threads need; yields its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://localhost:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


class Page:
    """Evaluates JavaScript in a page in Chromium; see tests/foreign/programs/browser.js."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def open(self, url: str) -> None:
        """Opens a page in a new profile."""
        self._do("open", width=800, height=600)
        self._do("go", url=url)

    def call(self, function: str, *arguments: Any) -> Any:
        """Calls a JavaScript function; arguments and result are JSON."""
        return self._do("run", script=f"({function})(...{json.dumps(arguments)})")

    def _do(self, name: str, **arguments: Any) -> Any:
        answer = self._ask({"do": name, **arguments})
        assert "error" not in answer, f"{name}: {answer['error']}; the page logged: {answer['console']}"
        return answer["value"]


@contextmanager
def chromium() -> Iterator[Page]:
    """Starts Chromium."""
    with started("node", "browser.js", timeout=180) as ask:
        yield Page(ask)

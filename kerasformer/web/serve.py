"""Serves a site on this machine, with the headers that let WebAssembly use several threads."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kerasformer.errors import InputError
from kerasformer.web.site import check_site

_HEADERS = {
    # Both make a page cross-origin isolated, and only such a page may share memory between threads.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Files are asked for again, so that a site that was written anew is seen.
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
}


class Handler(SimpleHTTPRequestHandler):
    """Static files with our headers; says nothing of requests that succeed."""

    extensions_map = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".json": "application/json",
        ".webmanifest": "application/manifest+json",
        ".wasm": "application/wasm",
        ".svg": "image/svg+xml",
    }

    def end_headers(self) -> None:
        """Adds the headers."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Errors alone are worth a line, and `log_error` writes them."""

    def list_directory(self, path: object) -> None:
        """A folder without a page is not shown."""
        self.send_error(404, "no such file")


def server(folder: str | Path, host: str = "127.0.0.1", port: int = 8000) -> ThreadingHTTPServer:
    """A server, bound and not yet running.

    Args:
        folder: A site.
        host: Address to listen at; `"0.0.0.0"` for all networks of this machine.
        port: 0 takes a free one.
    Raises:
        BundleError: the folder is no whole site.
        InputError: the address cannot be had.
    """
    check_site(folder)
    place = str(Path(folder).expanduser().resolve())
    try:
        return ThreadingHTTPServer((host, port), partial(Handler, directory=place))
    except (OSError, OverflowError) as error:
        raise InputError(
            f"No server could be started at {host}:{port}: {error}. Choose another --port, or 0 for a free one."
        ) from error


def address(running: ThreadingHTTPServer) -> str:
    """URL of a server, as a browser on this machine knows it."""
    host, port = str(running.server_address[0]), running.server_address[1]
    local = host in ("127.0.0.1", "0.0.0.0", "")
    return f"http://{'localhost' if local else host}:{port}/"

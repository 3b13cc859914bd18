"""Serves a site on this machine: compressed, with the headers that allow WebAssembly to use several threads.

Only regular files of the folder are served: no hidden files, and no links to files outside the folder.
"""

from __future__ import annotations

import gzip
import io
import re
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache, partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from kerasformer.errors import InputError
from kerasformer.files.reading import local_path
from kerasformer.tools.web.site import check_site

_HEADERS = {
    # These two make a page cross-origin isolated, which is required for sharing memory between threads.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Browsers revalidate files, so that they notice a new version of the site.
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
}
_MIN_BYTES, _MAX_BYTES = 512, 32 * 2**20
"""Sizes of files that are compressed. Larger files are weights, which take long to compress and hardly shrink."""
_MAX_RATIO = 0.9
"""Largest useful ratio of compressed size to size; that of floats and pictures is higher."""
_BLOCK = 2**16
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@lru_cache(maxsize=64)
def _gzipped(path: Path, version: str) -> bytes | None:
    """Returns the compressed content of a file, cached for each `version`; `None` if it saves little."""
    content = path.read_bytes()
    packed = gzip.compress(content, compresslevel=6, mtime=0)
    return packed if len(packed) <= _MAX_RATIO * len(content) else None


@dataclass(frozen=True)
class _File:
    """A file in the form that a request gets: plain or compressed."""

    path: Path
    size: int
    modified: float
    version: str
    packed: bytes | None

    @property
    def etag(self) -> str:
        """A strong entity tag, which therefore differs for the compressed bytes."""
        return f'"{self.version}{"" if self.packed is None else "-gzip"}"'


class Handler(SimpleHTTPRequestHandler):
    """Serves static files with the headers above; logs only errors."""

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
        """Logs nothing; `log_error` logs errors."""

    def send_head(self) -> BinaryIO | None:  # type: ignore[override]  # io.BytesIO is one, too
        """Sends status and headers; returns the body, which `do_GET` sends and closes."""
        file = self._file()
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND, "no such file")
            return None
        if self._is_current(file):
            self._send_headers(HTTPStatus.NOT_MODIFIED, file)
            return None
        if (part := self._part(file)) is not None:
            return self._send_part(file, *part)
        if file.packed is not None:
            self._send_headers(HTTPStatus.OK, file, len(file.packed))
            return io.BytesIO(file.packed)
        content = file.path.open("rb")
        self._send_headers(HTTPStatus.OK, file, file.size)
        return content

    def _file(self) -> _File | None:
        """Returns the requested file, or `None` if it does not exist or may not be served."""
        root = Path(self.directory).resolve()
        try:
            *folders, name = unquote(urlsplit(self.path).path).lstrip("/").split("/")
            names = [*folders, name or "index.html"]
            path = root.joinpath(*names).resolve(strict=True)
            parts = (*names, *path.relative_to(root).parts)
            if not path.is_file() or any(not part or part.startswith(".") or set(part) & set("\\:") for part in parts):
                return None
            info = path.stat()
        except (OSError, ValueError, RuntimeError):  # missing, a loop of links, an invalid name, outside the folder
            return None
        version = f"{info.st_mtime_ns:x}-{info.st_size:x}"
        # Ranges refer to the uncompressed bytes.
        compress = "Range" not in self.headers and _accepts_gzip(self.headers.get("Accept-Encoding", ""))
        packed = _gzipped(path, version) if compress and _MIN_BYTES <= info.st_size <= _MAX_BYTES else None
        return _File(path, info.st_size, info.st_mtime, version, packed)

    def _is_current(self, file: _File) -> bool:
        """Whether the browser already has these bytes."""
        tags = self.headers.get("If-None-Match")
        if tags is not None:
            return tags.strip() == "*" or file.etag in {tag.strip().removeprefix("W/") for tag in tags.split(",")}
        return self.headers.get("If-Modified-Since") == formatdate(file.modified, usegmt=True)

    def _part(self, file: _File) -> tuple[int, int] | None:
        """Returns the first and last byte of a requested range, or `(size, …)` if the file does not have these bytes.

        Several ranges, other units and ranges of another version are ignored, as RFC 9110 permits.
        """
        requested = _RANGE.fullmatch(self.headers.get("Range", "").strip())
        if requested is None or self.headers.get("If-Range", file.etag) != file.etag:
            return None
        first, last = requested.groups()
        if len(first + last) > 30 or not first + last or (first and last and int(last) < int(first)):
            return None
        if not first:
            return (max(0, file.size - int(last)), file.size - 1) if int(last) else (file.size, file.size)
        return int(first), min(int(last or file.size), file.size - 1)

    def _send_part(self, file: _File, first: int, last: int) -> BinaryIO | None:
        if first >= file.size:
            self._send_headers(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, file, 0, f"bytes */{file.size}")
            return None
        content = file.path.open("rb")
        content.seek(first)
        self._send_headers(HTTPStatus.PARTIAL_CONTENT, file, last - first + 1, f"bytes {first}-{last}/{file.size}")
        return content

    def copyfile(self, source: BinaryIO, outputfile: BinaryIO) -> None:  # type: ignore[override]
        """Sends the announced number of bytes, unless the browser closes the connection."""
        with suppress(ConnectionError):
            while self._length and (block := source.read(min(self._length, _BLOCK))):
                self._length -= len(block)
                outputfile.write(block)

    def _send_headers(
        self, status: HTTPStatus, file: _File, length: int | None = None, part: str | None = None
    ) -> None:
        """Sends the status and headers of a response with a body of `length` bytes."""
        self.send_response(status)
        self.send_header("ETag", file.etag)
        self.send_header("Last-Modified", formatdate(file.modified, usegmt=True))
        self.send_header("Vary", "Accept-Encoding")
        self._length = length or 0
        if length is not None:
            self.send_header("Content-Type", self.guess_type(file.path))
            self.send_header("Content-Length", str(length))
            self.send_header("Accept-Ranges", "bytes")
        if file.packed is not None and status == HTTPStatus.OK:
            self.send_header("Content-Encoding", "gzip")
        if part is not None:
            self.send_header("Content-Range", part)
        self.end_headers()


def _accepts_gzip(accepted: str) -> bool:
    """Whether `Accept-Encoding` allows gzip, by its name or by `*`, with a quality above 0."""
    qualities = {}
    for each in accepted.lower().split(","):
        name, _, parameter = each.partition(";")
        qualities[name.strip()] = not re.fullmatch(r"q=0(\.0*)?", parameter.strip())
    return qualities.get("gzip", qualities.get("*", False))


def server(folder: str | Path, host: str = "127.0.0.1", port: int = 8000) -> ThreadingHTTPServer:
    """Returns a server that is bound to its address, but not yet running.

    Args:
        folder: The folder of a site.
        host: Address to listen on; `"0.0.0.0"` for all networks of this machine.
        port: Port to listen on; 0 selects a free one.

    Raises:
        BundleError: The folder is not a complete site.
        InputError: The address is unavailable.
    """
    check_site(folder)
    directory = str(local_path(folder))
    try:
        return ThreadingHTTPServer((host, port), partial(Handler, directory=directory))
    except (OSError, OverflowError) as error:
        raise InputError(
            f"The server cannot listen on {host}:{port}: {error}. Choose another --port, or 0 for a free one."
        ) from error


def address(running: ThreadingHTTPServer) -> str:
    """Returns the URL of a server for a browser on this machine."""
    host, port = str(running.server_address[0]), running.server_address[1]
    local = host in ("127.0.0.1", "0.0.0.0", "")
    return f"http://{'localhost' if local else host}:{port}/"

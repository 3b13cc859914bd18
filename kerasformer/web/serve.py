"""Serves a site on this machine: compressed, with the headers that let WebAssembly use several threads.

Nothing but regular files of the folder is given out: no hidden ones, and none that a link names outside of it.
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
from kerasformer.files import local_path
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
_LEAST_BYTES, _MOST_BYTES = 512, 32 * 2**20
"""Of files that are compressed; larger ones are weights, which gain little and would wait for it."""
_WORTH_IT = 0.9
"""Largest share of its bytes that a compressed file may have; floats and pictures have more."""
_BLOCK = 2**16
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@lru_cache(maxsize=64)
def _gzipped(path: Path, version: str) -> bytes | None:
    """A file compressed once for each `version` of its content; `None` where that saves little."""
    content = path.read_bytes()
    packed = gzip.compress(content, compresslevel=6, mtime=0)
    return packed if len(packed) <= _WORTH_IT * len(content) else None


@dataclass(frozen=True)
class _File:
    """A file as one request gets it."""

    path: Path
    size: int
    modified: float
    version: str
    packed: bytes | None

    @property
    def etag(self) -> str:
        """Strong, hence another one for the compressed bytes."""
        return f'"{self.version}{"" if self.packed is None else "-gzip"}"'


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

    def send_head(self) -> BinaryIO | None:  # type: ignore[override]  # io.BytesIO is one, too
        """Sends status and headers; returns the body, which `do_GET` sends and closes."""
        file = self._file()
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND, "no such file")
            return None
        if self._known(file):
            self._begin(HTTPStatus.NOT_MODIFIED, file)
            return None
        if (part := self._part(file)) is not None:
            return self._send_part(file, *part)
        if file.packed is not None:
            self._begin(HTTPStatus.OK, file, len(file.packed))
            return io.BytesIO(file.packed)
        content = file.path.open("rb")
        self._begin(HTTPStatus.OK, file, file.size)
        return content

    def _file(self) -> _File | None:
        """What the request names, if it may be given out."""
        root = Path(self.directory).resolve()
        try:
            *folders, name = unquote(urlsplit(self.path).path).lstrip("/").split("/")
            names = [*folders, name or "index.html"]
            path = root.joinpath(*names).resolve(strict=True)
            parts = (*names, *path.relative_to(root).parts)
            if not path.is_file() or any(not part or part.startswith(".") or set(part) & set("\\:") for part in parts):
                return None
            known = path.stat()
        except (
            OSError,
            ValueError,
            RuntimeError,
        ):  # missing, a loop of links, no name of a file, outside of the folder
            return None
        version = f"{known.st_mtime_ns:x}-{known.st_size:x}"
        # A range is one of the bytes as they lie there.
        asked = "Range" not in self.headers and _takes_gzip(self.headers.get("Accept-Encoding", ""))
        packed = _gzipped(path, version) if asked and _LEAST_BYTES <= known.st_size <= _MOST_BYTES else None
        return _File(path, known.st_size, known.st_mtime, version, packed)

    def _known(self, file: _File) -> bool:
        """Whether the browser has these bytes already."""
        tags = self.headers.get("If-None-Match")
        if tags is not None:
            return tags.strip() == "*" or file.etag in {tag.strip().removeprefix("W/") for tag in tags.split(",")}
        return self.headers.get("If-Modified-Since") == formatdate(file.modified, usegmt=True)

    def _part(self, file: _File) -> tuple[int, int] | None:
        """First and last byte of the one range that is asked for, `(size, …)` where the file has no such bytes.

        Several ranges, other units and ranges of another version are ignored, as RFC 9110 lets a server do.
        """
        asked = _RANGE.fullmatch(self.headers.get("Range", "").strip())
        if asked is None or self.headers.get("If-Range", file.etag) != file.etag:
            return None
        first, last = asked.groups()
        if len(first + last) > 30 or not first + last or (first and last and int(last) < int(first)):
            return None
        if not first:
            return (max(0, file.size - int(last)), file.size - 1) if int(last) else (file.size, file.size)
        return int(first), min(int(last or file.size), file.size - 1)

    def _send_part(self, file: _File, first: int, last: int) -> BinaryIO | None:
        if first >= file.size:
            self._begin(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, file, 0, f"bytes */{file.size}")
            return None
        content = file.path.open("rb")
        content.seek(first)
        self._begin(HTTPStatus.PARTIAL_CONTENT, file, last - first + 1, f"bytes {first}-{last}/{file.size}")
        return content

    def copyfile(self, source: BinaryIO, outputfile: BinaryIO) -> None:  # type: ignore[override]
        """Sends the bytes that the headers promised, until the browser has enough of them."""
        with suppress(ConnectionError):
            while self._length and (block := source.read(min(self._length, _BLOCK))):
                self._length -= len(block)
                outputfile.write(block)

    def _begin(self, status: HTTPStatus, file: _File, length: int | None = None, part: str | None = None) -> None:
        """Sends what comes before a body of `length` bytes."""
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


def _takes_gzip(accepted: str) -> bool:
    """Whether `Accept-Encoding` allows it: by its name, or by `*`, and not with a quality of 0."""
    qualities = {}
    for each in accepted.lower().split(","):
        name, _, parameter = each.partition(";")
        qualities[name.strip()] = not re.fullmatch(r"q=0(\.0*)?", parameter.strip())
    return qualities.get("gzip", qualities.get("*", False))


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
    place = str(local_path(folder))
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

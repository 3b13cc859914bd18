"""Local HTTP server that implements the part of the Hugging Face Hub API that downloads use."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serve(repositories: dict[str, dict[str, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """Serves `{"owner/name": {"file": content}}`; returns the address and a list of downloaded files, filled later."""
    downloads: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            parts = self.path.split("?")[0].strip("/").split("/")
            if parts[:2] == ["api", "models"] and (files := repositories.get("/".join(parts[2:4]))) is not None:
                self.answer_api(parts, files)
            elif (files := repositories.get("/".join(parts[:2]))) is not None and parts[2] == "resolve":
                self.answer_file("/".join(parts[4:]), files, body)
            else:
                self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

        def answer_api(self, parts: list[str], files: dict[str, bytes]) -> None:
            kind, revision = (parts[4:] + ["revision", "main"])[:2]
            if revision not in ("main", COMMIT):
                self.send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            elif kind == "tree":
                entries = [
                    {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for name, content in files.items()
                ]
                self.send(200, json.dumps(entries).encode())
            else:
                siblings = [{"rfilename": name} for name in files]
                self.send(200, json.dumps({"id": "/".join(parts[2:4]), "sha": COMMIT, "siblings": siblings}).encode())

        def answer_file(self, name: str, files: dict[str, bytes], body: bool) -> None:
            if name not in files:
                self.send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
                return
            if body:
                downloads.append(name)
            etag = f'"{hashlib.sha1(files[name]).hexdigest()}"'
            self.send(200, files[name], {"ETag": etag, "X-Repo-Commit": COMMIT}, body)

        def send(self, status: int, content: bytes, headers: dict[str, str] | None = None, body: bool = True) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if body and self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", downloads
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

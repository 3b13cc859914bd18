"""Sites of artificial bundles, which are quick to write, and a Chromium to open them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers.models import WordLevel

from kerasformer import bundle
from kerasformer.bundle import Manifest, ModelInfo, Signature, TensorInfo
from kerasformer.engines.fidelity.references import DEFAULT_TEXTS, largest_entries
from kerasformer.tools.web import serve
from kerasformer.tools.web.serve import Handler, address, server
from kerasformer.tools.web.site import build
from kerasformer.tools.web.vendor import FILES, PINS
from tests.foreign.environments import started

HERE = Path(__file__).parent
IDS = TensorInfo((1, 16), "int32")
FIDELITY = {"answers": 32, "agreement": 1.0, "max_error": 0.01, "mean_error": 0.001}


def tokenizer_json() -> str:
    """Returns the `tokenizer.json` of a tokenizer with three words."""
    tokenizer = tokenizers.Tokenizer(WordLevel({"[UNK]": 0, "[MASK]": 1, "word": 2}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[UNK]", "[MASK]"])
    return tokenizer.to_str()


def references(given_texts: bool = False) -> dict[str, np.ndarray]:
    """Returns reference answers to two texts of three tokens, of which the second one is padded."""
    scores = np.array([[2.0, -1.5], [-0.5, 0.25]], "float32")
    return {
        "input.input_ids": np.array([[2, 1, 2], [1, 2, 0]], "int32"),
        "input.attention_mask": np.array([[1, 1, 1], [1, 1, 0]], "int32"),
        **{f"output.logits.{key}": array for key, array in largest_entries(scores).items()},
        DEFAULT_TEXTS: np.array(int(not given_texts)),
    }


def write_bundle(
    folder: Path,
    task: str = "text-classification",
    format: str = "tflite",
    recipe: str = "int8",
    output: str = "logits",
    tokenizer: bool = True,
    tokenizer_class: str | None = None,
    given_texts: bool = False,
    card: str | None = None,
    **info: Any,
) -> Path:
    """Writes a bundle whose model file is not a real model.

    With `tokenizer_class`, the tokenizer is one whose rules `tokenizer.json` cannot contain. With `given_texts`, its
    references are answers to texts that were passed to the export. `card` is that of the checkpoint.
    """
    folder.mkdir(parents=True)
    model = {"tflite": "model.tflite", "onnx": "onnx/model_quantized.onnx", "saved-model": "saved_model.pb"}[format]
    (folder / model).parent.mkdir(exist_ok=True)
    (folder / model).write_bytes(b"model " * 20_000)
    if tokenizer:
        settings = {"tokenizer_class": tokenizer_class} if tokenizer_class else {"mask_token": "[MASK]"}
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "unk_token": "[UNK]"}))
    if tokenizer and not tokenizer_class:
        (folder / "tokenizer.json").write_text(tokenizer_json())
    (folder / "README.md").write_text("a card")
    if card is not None:
        (folder / "MODEL_CARD.md").write_bytes(card.encode())
    bundle.write_references(folder, references(given_texts))
    known = {"labels": ("NEGATIVE", "POSITIVE"), "max_length": 512, "vocab_size": 3, "model_type": "bert", **info}
    manifest = Manifest(
        format=format,
        info=ModelInfo(task=task, name="BertModel", **known),
        signatures={
            "forward_16": Signature(
                model, {"input_ids": IDS}, {output: TensorInfo((1, len(known["labels"])), "float32")}
            )
        },
        recipe={"name": recipe, "tolerance": 0.1, "min_agreement": 0.9},
        files=bundle.checksums(folder),
        fidelity=FIDELITY,
        capacity=256 if task == "text-generation" else None,
    )
    bundle.write(folder, manifest)
    return folder


def write_runtimes(folder: Path) -> Path:
    """Writes packages with the pinned versions and dummy files."""
    packages = folder / "node_modules"
    for name, version in json.loads(PINS.read_text())["dependencies"].items():
        (packages / name).mkdir(parents=True)
        about = {"name": name, "version": version, "license": "MIT"}
        (packages / name / "package.json").write_text(json.dumps(about))
    for path in (path for part in FILES.values() for path in part.values()):
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        licence = path.endswith("/LICENSE")
        text = "Permission is hereby granted" if licence else 'import x from "@litertjs/wasm-utils";'
        (packages / path).write_text(text)
    return folder


def write_site(folder: Path, *bundles: Path | str, **settings: Any) -> Path:
    """Builds a site whose worker is the mock `worker.js` in this folder."""
    runtimes = folder.parent / f"{folder.name}-runtimes"
    if not runtimes.is_dir():
        write_runtimes(runtimes)
    build(bundles, folder, runtime_files=runtimes, **settings)
    replace_file(folder, "worker.js", (HERE / "worker.js").read_bytes())
    return folder


def replace_file(folder: Path, path: str, content: bytes) -> None:
    """Replaces a file of the page, as if the site had been built with it."""
    (folder / path).write_bytes(content)
    listed = json.loads((folder / "site.json").read_text())
    entry = {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    listed["page"] = [each for each in listed["page"] if each["path"] != path] + [entry]
    (folder / "site.json").write_text(json.dumps(listed))


def edit_site(folder: Path, **changes: Any) -> None:
    """Changes fields of `site.json`."""
    path = folder / "site.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


class PlainHandler(SimpleHTTPRequestHandler):
    """Serves files without special headers, as many web hosts do."""

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


class LinkFollowingHandler(PlainHandler):
    """Has the headers and types of the real server, but follows links, such as the `node_modules` of a test."""

    extensions_map = Handler.extensions_map

    def end_headers(self) -> None:
        """Adds the headers."""
        for name, value in serve._HEADERS.items():
            self.send_header(name, value)
        super().end_headers()


@contextmanager
def served(folder: Path, plain: bool = False, handler: type[SimpleHTTPRequestHandler] | None = None) -> Iterator[str]:
    """Serves a site and yields its URL; `plain` omits the headers that threads need, `handler` serves any folder."""
    handler = PlainHandler if plain else handler
    other = handler and ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    with other or server(folder, port=0) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield address(running)
        finally:
            running.shutdown()
            thread.join()


def edit_manifest(folder: Path, **changes: Any) -> None:
    """Changes fields of a bundle's manifest without updating its checksum."""
    path = folder / bundle.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


SPY = """
globalThis.posted = [];
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message) { posted.push(message); return post.call(this, message); };
"""
"""A script that keeps the messages to workers."""
ERRORS = "[...document.querySelectorAll('#problem, .error')].filter((each) => each.checkVisibility())"
"""A JavaScript expression: the visible error messages of the page and its fields."""
IDLE = "!document.getElementById('run').classList.contains('stops')"


served_folder = partial(served, handler=LinkFollowingHandler)
"""Serves any folder with the headers that threads need."""


class Browser:
    """A Chromium with one page; see tests/foreign/programs/browser.js for the commands."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def __call__(self, do: str, **arguments: Any) -> Any:
        """Runs a command and returns its value."""
        answer = self._ask({"do": do, **arguments})
        assert "error" not in answer, f"{do} {arguments}: {answer['error']}; the page logged: {answer['console']}"
        return answer["value"]

    def ready(self) -> None:
        """Waits until the page can be used and is stored for offline use."""
        self("until", script="!document.getElementById('form').hidden && navigator.serviceWorker.controller !== null")

    def answered(self) -> str:
        """Waits for the answer and returns it; fails if an error appears."""
        self("until", script=f"{IDLE} && (!document.getElementById('figures').hidden || {ERRORS}.length)")
        assert self("run", script=f"{ERRORS}.length") == 0, self.problem()
        return str(self("text", at="#result"))

    def problem(self) -> str:
        """Waits for an error message and returns it, with its details."""
        self("until", script=f"{ERRORS}.length")
        return str(self("run", script=f"{ERRORS}.map((each) => each.textContent).join()"))

    def call(self, function: str, *arguments: Any) -> Any:
        """Calls a JavaScript function; arguments and result are JSON."""
        return self("run", script=f"({function})(...{json.dumps(arguments)})")

    def open(self, url: str, width: int = 390, height: int = 844, **settings: Any) -> None:
        """Opens a page in a new profile, with the screen of a phone by default."""
        self("open", width=width, height=height, phone=width < 600, **settings)
        self("go", url=url)


@contextmanager
def browser() -> Iterator[Browser]:
    """Starts Chromium."""
    with started("node", "browser.js", timeout=180) as ask:
        yield Browser(ask)

"""Folders for Triton: the configuration by Triton's schema and the graph itself, and the client of the card.

No server is run: a stand-in checks each request against the configuration, as Triton does, and runs the graph in ONNX
Runtime. docs/runtimes.md therefore has no ticks for this target.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import kerasformer as kf
from kerasformer.errors import ExportError
from tests.foreign.cards import block
from tests.foreign.cases import CROSS_ENCODER, Case, embedder, tiny
from tests.foreign.environments import run
from tests.grids import grid

DTYPES = {
    "TYPE_FP32": ("tensor(float)", "FP32", np.float32),
    "TYPE_INT64": ("tensor(int64)", "INT64", np.int64),
    "TYPE_INT32": ("tensor(int32)", "INT32", np.int32),
}
MODELS = [
    tiny("bert", "text-classification", "int8"),
    embedder("mpnet"),
    tiny("bert", "question-answering"),
    tiny("gpt2", "text-classification"),
    tiny("deberta", "token-classification"),
    CROSS_ENCODER,
]
"""CI runs the first three: an output for each text, a vector, and two texts with outputs for each token."""


def checked_session(folder: Path) -> tuple[dict[str, Any], onnxruntime.InferenceSession]:
    """Returns the configuration and the graph that it names, after a comparison of all tensors."""
    config = run("triton", "triton_config.py", str(folder / "config.pbtxt"))
    session = onnxruntime.InferenceSession(folder / "1" / config["default_model_filename"])
    assert config["backend"] == "onnxruntime" and "name" not in config and config["max_batch_size"] > 1
    assert config["dynamic_batching"] and config["instance_group"] == [{"count": 1, "kind": "KIND_CPU"}]
    for declared, actual in ((config["input"], session.get_inputs()), (config["output"], session.get_outputs())):
        assert [each["name"] for each in declared] == [each.name for each in actual]
        for entry, tensor in zip(declared, actual, strict=True):
            assert DTYPES[entry["data_type"]][0] == tensor.type
            batch, *sizes = tensor.shape
            assert isinstance(batch, str), "Triton adds the axis of the batch by itself"
            assert [int(size) for size in entry["dims"]] == [size if isinstance(size, int) else -1 for size in sizes]
    return config, session


@contextmanager
def stand_in(folder: Path) -> Iterator[str]:
    """Serves a folder by the HTTP protocol of Triton; yields the address."""
    config, session = checked_session(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == f"/v2/models/{folder.name}/infer"
            received = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
            declared = {each["name"]: each for each in config["input"]}
            assert sorted(each["name"] for each in received) == sorted(declared)
            feeds = {}
            for each in received:
                _, kind, dtype = DTYPES[declared[each["name"]]["data_type"]]
                batch, *sizes = each["shape"]
                assert each["datatype"] == kind and batch <= config["max_batch_size"]
                assert len(sizes) == len(declared[each["name"]]["dims"])
                feeds[each["name"]] = np.array(each["data"], dtype).reshape(each["shape"])
            outputs = zip(config["output"], session.run(None, feeds), strict=True)
            answer = [
                {"name": entry["name"], "shape": array.shape, "data": array.ravel().tolist()}
                for entry, array in outputs
            ]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"outputs": answer}).encode())

        def log_message(self, *arguments: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.foreign("triton")
@pytest.mark.parametrize("model_case", grid(MODELS, always=MODELS[:3], others="release"), ids=str)
def test_the_client_of_the_card_has_the_answers_of_keras(model_case: Case, tmp_path: Path) -> None:
    model = model_case.model()
    folder = model_case.export(tmp_path / "my_model", model, target="triton")
    with stand_in(folder) as address:
        program = block(folder, "Triton").replace("path/to/this/folder", str(folder))
        program = program.replace("http://localhost:8000", address).replace("name-of-this-folder", folder.name)
        done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    received = ast.literal_eval(done.stdout)
    pairs = model_case.task in ("question-answering", "text-ranking")
    encoded = model.tokenizer(*((["A question."], ["A text."]) if pairs else (["A text."],)))
    inputs = {name: getattr(encoded, name) for name in model.input_names}
    length = inputs["input_ids"].shape[1]
    for name, value in model.named(model(inputs)).items():
        expected, (shape, data) = np.asarray(value), received[name]
        array = np.array(data).reshape(shape)
        if array.shape != expected.shape:  # a number for each token, of which the client pads
            assert array.shape[1] > length
            array = array[:, :length]
        limit = 1e-5 if model_case.quantize == "none" else 0.1
        assert np.abs(array - expected).max() <= limit * np.abs(expected).max(), name
    # The same folder is a bundle, whose only folder is that of the graph.
    assert kf.pipeline(folder, model_case.task)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["1"]
    if model_case.task == "text-classification":
        assert (folder / "labels.txt").read_text().splitlines() == list(model.config.id2label.values())


def test_a_decoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="would have to send the caches with each token. Received: Gpt2CausalLM"):
        tiny("gpt2", "text-generation").export(tmp_path / "out", target="triton")

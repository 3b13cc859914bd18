"""Nothing that this package runs leaves a file in the home folder, as the telemetry of ONNX Runtime does."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerasformer import telemetry
from tests.core.export.text_models import shared_bundle

CLASSIFIER = "bert-text-classification"
KNOWN = (".keras/", ".cache/matplotlib/")
"""Folders where Keras keeps its settings and Matplotlib, which it imports, its list of fonts."""

RUN = "import sys, kerasformer as kf; kf.pipeline(sys.argv[1])('The museum is closed.')"
SERVE = """
import sys
from starlette.testclient import TestClient
from kerasformer.tools.server.application import application
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.served_models import open_models

models = open_models([f"one={sys.argv[1]}"], Limits(), Measurements())
with TestClient(application(models, Limits(), Measurements())) as client:
    answer = client.post("/v2/models/one/infer", json={"inputs": [
        {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["The museum is closed."]}]})
assert answer.status_code == 200, answer.text
"""
EXPORT = """
import sys, kerasformer as kf
model = kf.zoo.build("bert", "text-classification", hidden_dim=16, num_layers=1, num_heads=2, vocab_size=40,
                     intermediate_dim=32)
kf.export.export(model, sys.argv[1], "onnx", progress=False)
"""
UNCHANGED = """
import os, sys
before = dict(os.environ)
exec(sys.argv[2])
assert dict(os.environ) == before
"""


def left_by(home: Path, *command: object, **environment: str) -> set[str]:
    """Runs Python with an empty home folder, and without the variables that silence telemetry; returns the files."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env={"HOME": str(home), "PATH": os.environ["PATH"], "KERAS_BACKEND": "tensorflow", **environment},
        cwd=home.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    files = (path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    return {name for name in files if not name.startswith(KNOWN)}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_running_and_serving_onnx_leave_nothing(home: Path) -> None:
    assert left_by(home, "-c", UNCHANGED, shared_bundle(CLASSIFIER, "onnx"), RUN + "\n" + SERVE) == set()


def test_the_variable_of_the_user_holds(home: Path) -> None:
    """Shows as well that such files would be seen."""
    if tuple(map(int, importlib.metadata.version("onnxruntime").split(".")[:2])) < (1, 29):
        pytest.skip("this version of ONNX Runtime has no telemetry on this system")
    found = left_by(home, "-c", RUN, shared_bundle(CLASSIFIER, "onnx"), **{telemetry.VARIABLE: "0"})
    assert any("deviceid" in name for name in found)


@pytest.mark.grid
@pytest.mark.parametrize("format", ["tflite", "saved-model"])
def test_other_engines_leave_nothing(format: str, home: Path) -> None:
    assert left_by(home, "-c", RUN, shared_bundle(CLASSIFIER, format)) == set()


@pytest.mark.grid
def test_an_export_leaves_nothing(home: Path, tmp_path: Path) -> None:
    assert left_by(home, "-c", EXPORT, tmp_path / "out") == set()


@pytest.mark.grid
@pytest.mark.parametrize("arguments", [("run",), ("verify",), ("bench",)], ids=str)
def test_commands_leave_nothing(arguments: tuple[str, ...], home: Path) -> None:
    bundle, text = shared_bundle(CLASSIFIER, "onnx"), ["A fine film."] if arguments == ("run",) else []
    assert left_by(home, "-m", "kerasformer.cli", *arguments, bundle, *text) == set()

"""The C++ library gives the results of Python, in the vectors and with bundles on the real engines."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import kerasformer as kf
from kerasformer.basics.tasks import ZERO_SHOT_TOKENS
from tests.code_blocks import programs
from tests.core.export.text_models import SpanRow
from tests.extras import missing
from tests.foreign.cases import Case, tiny
from tests.margins import check_same
from tests.mobile.cards import CASES, codes, shipped

pytestmark = pytest.mark.grid

ROOT = Path(__file__).parents[2] / "mobile"
VECTORS = ROOT / "vectors"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder where the project of a bundle's card was built, with the program of mobile/cpp/tests."""
    if absent := [name for name in ("cmake", "g++") if shutil.which(name) is None]:
        missing(f"this test needs {' and '.join(absent)}")
    bundle, project = tiny("bert", "text-classification").shared("onnx"), tmp_path_factory.mktemp("cpp")
    (code,), (settings,) = programs(bundle, "cpp"), programs(bundle, "cmake")
    code = code.replace("path/to/this/folder", str(bundle))
    code = code.replace("path/to/libonnxruntime.so.1", str(library("onnx")))
    (project / "main.cpp").write_text(code, encoding="utf-8")
    (project / "CMakeLists.txt").write_text(settings.replace("path/to/kerasformer/mobile", str(ROOT)), encoding="utf-8")
    flags = ["-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror", "-DCMAKE_BUILD_TYPE=Debug", "-DKERASFORMER_TESTS=ON"]
    for command in (["cmake", "-S", ".", "-B", "build", *flags], ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return project / "build"


@pytest.fixture(scope="session")
def program(built: Path) -> Path:
    """Returns the program of mobile/cpp/tests."""
    return built / "kerasformer" / "kerasformer_tests"


def test_the_program_of_a_card(built):
    bundle = tiny("bert", "text-classification").shared("onnx")
    done = subprocess.run([built / "app"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    expected = kf.pipeline(bundle)("Not bad at all!", top_k=len(rows))
    assert rows and [(label, pytest.approx(float(score), abs=1e-4)) for label, score in rows] == [
        (each["label"], each["score"]) for each in expected
    ]


def test_code_of_cards(tmp_path):
    """That of every task but conversations compiles with the headers, without warnings."""
    if shutil.which("g++") is None:
        pytest.skip("a C++ compiler is needed")
    found = codes("cpp")
    assert found.keys() == CASES.keys() - {"conversation"}
    text = "\n".join(code.replace("int main()", f"int Card{index}()") for index, code in enumerate(found.values()))
    (tmp_path / "cards.cpp").write_text(text, encoding="utf-8")
    options = [
        "-std=c++17",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-return-type",
        f"-I{ROOT / 'cpp' / 'include'}",
    ]
    done = subprocess.run(["g++", *options, "cards.cpp"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]


def folders(name: str) -> list[Any]:
    paths = sorted(path for path in (VECTORS / name).glob("*") if path.is_dir())
    return [pytest.param(path, id=path.name) for path in paths]


def compared(program: Path, *arguments: Any) -> None:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("folder", folders("tokenizers"))
def test_tokenizers(program, folder):
    compared(program, "tokenizer", folder)


def test_decoding(program):
    compared(program, "decoding", VECTORS / "decoding", VECTORS / "tokenizers")


@pytest.mark.parametrize("folder", [each for each in folders("tasks") if each.id != "chat"])
def test_tasks(program, folder):
    compared(program, "task", folder)


def library(format: str) -> Path:
    """Returns the shared library of a runtime out of its Python package."""
    package, pattern = {
        "onnx": ("onnxruntime", "capi/libonnxruntime.so*"),
        "tflite": ("ai_edge_litert", "libLiteRt.so"),
    }[format]
    spec = importlib.util.find_spec(package)
    found = [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob(pattern))
    if not found:
        pytest.skip(f"the package {package} has no shared library")
    return found[0]


def answers(program: Path, bundle: Path, format: str, calls: Iterable[dict[str, Any]]) -> list[Any]:
    """Returns results with the files that an app ships; the runtime leaves nothing in an empty home folder."""
    lines = "\n".join(json.dumps(call) for call in calls)
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as folder:
        command = [program, "call", str(shipped(bundle, Path(folder))), str(library(format))]
        environment = {"HOME": home, "PATH": os.environ["PATH"]}
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, env=environment)
        assert not [*Path(home).iterdir()], "the runtime has left usage data"
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line)["result"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("format", ["onnx", pytest.param("tflite", marks=pytest.mark.release)])
def test_a_classifier(program, format):
    bundle = tiny("bert", "text-classification").shared(format)
    texts = ["A fine film.", "", "A bad one " * 4]
    received = answers(
        program,
        bundle,
        format,
        [{"task": "text-classification", "inputs": text, "options": {"top_k": None}} for text in texts],
    )
    for result, text in zip(received, texts, strict=True):
        expected = kf.pipeline(bundle)(text, top_k=None)
        assert [label["label"] for label in result] == [label["label"] for label in expected]
        assert [label["score"] for label in result] == pytest.approx([label["score"] for label in expected], abs=1e-5)


@pytest.mark.parametrize("format", ["onnx", "tflite"])
def test_named_entities(program, format):
    """Words and labels have lengths of their own, which are fixed in TFLite."""
    bundle, options = Case(SpanRow()).shared(format), {"labels": ["person", "city"], "threshold": 0.4}
    texts = ["Anna lives in Rome.", "Ännchen 🙂 saw the sea", ""]
    calls = [{"task": ZERO_SHOT_TOKENS, "inputs": text, "options": options} for text in texts]
    for received, text in zip(answers(program, bundle, format, calls), texts, strict=True):
        expected = kf.pipeline(bundle)(text, **options)
        check_same(received, [dict(sorted(each.items())) for each in expected])


@pytest.mark.parametrize(
    ("model", "task", "format"),
    [
        ("gpt2", "text-generation", "tflite"),
        ("t5", "text2text-generation", "onnx"),
        pytest.param("gpt2", "text-generation", "onnx", marks=pytest.mark.release),
        pytest.param("t5", "text2text-generation", "tflite", marks=pytest.mark.release),
    ],
)
def test_a_generator(program, format, model, task):
    bundle = tiny(model, task).shared(format)
    settings = [
        {"max_new_tokens": 8},
        {"max_new_tokens": 8, "do_sample": True, "seed": 3, "top_k": 20},
        {"max_new_tokens": 6, "num_beams": 3},
    ]
    calls = [{"task": task, "inputs": "Once upon a time", "options": each} for each in settings]
    for result, each in zip(answers(program, bundle, format, calls), settings, strict=True):
        assert result == kf.pipeline(bundle)("Once upon a time", **each)

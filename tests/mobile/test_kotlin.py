"""The Kotlin library compiles, agrees with the vectors, and runs real bundles; see mobile/kotlin."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasformer as kf
from kerasformer import telemetry
from kerasformer.basics.tasks import ZERO_SHOT_TOKENS
from kerasformer.export.card import in_apps
from kerasformer.tokenization.chat_templates.rendering import render
from tests.code_blocks import blocks
from tests.core.export.text_models import LENGTHS, ROWS, SpanRow, shared_bundle, size_options
from tests.foreign.environments import HOME, need
from tests.mobile.cards import CASES, codes, section, shipped

pytestmark = pytest.mark.grid

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "mobile" / "kotlin" / "src" / "main" / "kotlin"
PROGRAMS = Path(__file__).parent / "kotlin"
VECTORS = ROOT / "mobile" / "vectors"

Run = Callable[..., str]


@pytest.fixture(scope="module")
def jars() -> Path:
    """The folder of Kotlin's compiler."""
    need("kotlin")
    if shutil.which("java") is None:
        pytest.skip("Kotlin's compiler needs Java")
    (folder,) = (HOME / "kotlin").glob("lib/python*/site-packages/run_kotlin_kernel/jars")
    return folder


def libraries(jars: Path) -> str:
    """Returns a class path; the compiler's own archive contains kotlinx-coroutines."""
    return ":".join(str(path) for pattern in ("kotlin-stdlib-*", "*-all.jar") for path in jars.glob(pattern))


def compile_to(classes: Path, jars: Path, class_path: str, sources: Iterable[Path]) -> None:
    """Compiles sources, without warnings."""
    options = ["-no-stdlib", "-no-reflect", "-Werror", "-jvm-target", "11", "-classpath", class_path]
    # A process that lives for a minute does not earn what Java's second compiler and its parallel collector cost.
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    compiler = [*java, "-cp", f"{jars}/*", "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", *options]
    done = subprocess.run(
        [*compiler, "-d", str(classes), *map(str, sources)], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr


def card_codes() -> list[str]:
    """Returns the Kotlin code of the cards of every task and of the guide."""
    found = codes("kotlin")
    assert found.keys() == CASES.keys()
    (guide,) = blocks(ROOT / "docs" / "phones.md", "kt")
    names = ("java.io.File", *(f"kerasformer.{name}" for name in ("TextModel", "engine.*", "decoding.*")))
    imports = "\n".join(f"import {name}" for name in names)
    return [*found.values(), f"{imports}\nsuspend fun guide(filesDir: File, texts: List<String>) {{\n{guide}\n}}"]


@pytest.fixture(scope="module")
def classes(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library, the programs of the folder `kotlin` and the code of cards: the compiler starts slowly."""
    folder = tmp_path_factory.mktemp("kotlin")
    code_of = {folder / f"card_{index}.kt": code for index, code in enumerate(card_codes())}
    for card, code in code_of.items():
        card.write_text(f"package {card.stem}\n{code}", encoding="utf-8")
    sources = sorted([*LIBRARY.rglob("*.kt"), *PROGRAMS.glob("*.kt")])
    compile_to(folder / "classes", jars, libraries(jars), [*sources, *code_of])
    return folder / "classes"


@pytest.fixture(scope="module")
def run(classes: Path, jars: Path) -> Run:
    """Returns a function that runs a program of the folder `kotlin`, and returns what it writes."""

    def call(program: str, *arguments: str | Path, text: str = "") -> str:
        properties = [f"-Dpython={sys.executable}", f"-Dengine={PROGRAMS / 'engine.py'}", "-Dfile.encoding=UTF-8"]
        command = ["java", "-cp", f"{classes}:{libraries(jars)}", *properties, program, *map(str, arguments)]
        # As in an app, which nobody starts with variables.
        environment = {name: value for name, value in os.environ.items() if name != telemetry.VARIABLE}
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=600, env=environment)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
        return done.stdout.decode()

    return call


def test_code_of_cards_and_of_the_guide(classes):
    """That of every task compiles with the library."""
    assert all((classes / f"card_{index}").is_dir() for index in range(len(CASES) + 1))


def test_versions_of_cards():
    """They are those with which the library is built."""
    built = (ROOT / "mobile" / "kotlin" / "build.gradle.kts").read_text(encoding="utf-8")
    assert all(f'compileOnly("{each}")' in built for each in in_apps.GRADLE.values())
    group, version = (re.search(rf'^{name} = "(.*)"', built, re.MULTILINE)[1] for name in ("group", "version"))
    assert f'implementation("{group}:kerasformer:{version}")' in section("fill-mask")


@pytest.mark.parametrize("kind", ["tokenizers", "decoding", "tasks"])
def test_vectors(run, kind):
    *differences, last = run("Vectors", VECTORS, kind).splitlines()
    assert last.endswith(" 0 differences"), "\n".join([*differences, last])
    assert int(last.split()[0]) > 50


def test_calls(run, tmp_path):
    """Flows, cancellation, calls at the same time, a closed model, and files that were changed or are missing."""
    assert run("Calls", VECTORS / "tasks" / "story", tmp_path / "changed") == "the calls are right\n"


def test_a_file_that_would_end_the_app_is_refused_for_the_gpu(run):
    printed = run("Gpu", shared_bundle("bert-text-classification", "tflite", "int8"))
    assert printed.startswith("EngineError: Accelerator.GPU needs a file without operators that end the process")
    assert "EMBEDDING_LOOKUP" in printed and 'accelerator="gpu"' in printed


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi there "},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Go on"},
]
TEMPLATES = json.loads((PROGRAMS / "templates.json").read_text(encoding="utf-8"))


def test_chat_templates(run):
    """The interpreter writes what Jinja writes."""
    context = {"messages": MESSAGES, "add_generation_prompt": True, "tools": None}
    rows = [json.dumps({"template": template, "variables": context}) for template in TEMPLATES]
    written = [json.loads(line) for line in run("Templates", text="\n".join(rows) + "\n").splitlines()]
    assert written == [render(each, MESSAGES, add_generation_prompt=True).text for each in TEMPLATES]


CALLS: dict[str, list[tuple[object, dict[str, object]]]] = {
    "token-classification": [
        ("Anna lives in Rome.", {"aggregation_strategy": "simple"}),
        ("word " * 90, {"stride": 9}),
    ],
    ZERO_SHOT_TOKENS: [
        ("Ännchen 🙂 lives in Rome.", {"labels": ["person", "city"], "threshold": 0.4}),
        ("Rain", {"labels": ["sea"], "threshold": 0.0, "flat_ner": False}),
    ],
    "sentence-similarity": [("A fine film.", {}), (["Rain", ""], {})],
    "text-generation": [
        ("Once upon a time", {"max_new_tokens": 12}),
        ("The cat", {"max_new_tokens": 12, "seed": 3, "temperature": 1.5, "repetition_penalty": 1.2}),
        ("The cat " * 6, {"max_new_tokens": 8, "num_beams": 3}),
    ],
    "text2text-generation": [
        ("The cat sat.", {"max_new_tokens": 8}),
        ("The cat sat.", {"max_new_tokens": 6, "num_beams": 2}),
    ],
}
BUNDLES = [
    ("bert", "token-classification", "onnx"),
    ("bert", ZERO_SHOT_TOKENS, "tflite"),
    ("gpt2", "text-generation", "tflite"),
    ("t5", "text2text-generation", "onnx"),
    *(
        pytest.param(*each, marks=pytest.mark.release)
        for each in (
            ("bert", "sentence-similarity", "tflite"),
            ("gpt2", "text-generation", "onnx"),
            ("t5", "text2text-generation", "tflite"),
        )
    ),
]
"""CI runs an encoder, a decoder and an encoder-decoder, and both engines."""


@pytest.mark.parametrize(("model_type", "task", "format_"), BUNDLES)
def test_bundles(run, tmp_path, model_type, task, format_):
    """The engines run real bundles, of the files that an app ships; Python packages take the place of the runtimes."""
    row = next(row for row in (*ROWS.values(), SpanRow()) if (row.model_type, row.task) == (model_type, task))
    model = row.model()
    folder = tmp_path / "bundle"
    kf.export.export(model, folder, format_, "none", **size_options(model, format_, LENGTHS, 48))
    pipe = kf.pipeline(folder, task)
    calls = [
        {"task": task, "inputs": inputs, "options": options, "result": plain(pipe(inputs, **options))}
        for inputs, options in CALLS[task]
    ]
    folder = shipped(folder, tmp_path / "shipped")
    (folder / "calls.json").write_text(json.dumps({"engine": {}, "calls": calls}), encoding="utf-8")
    *differences, last = run("Vectors", folder, "bundle").splitlines()
    assert last == f"{len(calls)} rows, 0 differences", "\n".join(differences)


def plain(value: Any) -> Any:
    """Returns a result as values of JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value

"""The Kotlin library compiles, agrees with the vectors, and runs real bundles; see mobile/kotlin."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.foreign.environments import HOME, need

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "mobile" / "kotlin" / "src" / "main" / "kotlin"
PROGRAMS = Path(__file__).parent / "kotlin"
VECTORS = ROOT / "mobile" / "vectors"
MAX_LINES = 3000

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Returns a function that runs a program of the folder `kotlin`, and returns what it writes."""
    need("kotlin")
    if shutil.which("java") is None:
        pytest.skip("Kotlin's compiler needs Java")
    (jars,) = (HOME / "kotlin").glob("lib/python*/site-packages/run_kotlin_kernel/jars")
    classes = tmp_path_factory.mktemp("kotlin") / "classes"
    # The compiler's own archive contains kotlinx-coroutines.
    libraries = ":".join(str(path) for pattern in ("kotlin-stdlib-*", "*-all.jar") for path in jars.glob(pattern))
    sources = sorted([*LIBRARY.rglob("*.kt"), *PROGRAMS.glob("*.kt")])
    options = ["-no-stdlib", "-no-reflect", "-Werror", "-jvm-target", "11", "-classpath", libraries]
    compiler = ["java", "-cp", f"{jars}/*", "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", *options]
    done = subprocess.run(
        [*compiler, "-d", str(classes), *map(str, sources)], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr

    def call(program: str, *arguments: str | Path, text: str = "") -> str:
        properties = [f"-Dpython={sys.executable}", f"-Dengine={PROGRAMS / 'engine.py'}", "-Dfile.encoding=UTF-8"]
        command = ["java", "-cp", f"{classes}:{libraries}", *properties, program, *map(str, arguments)]
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=600)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
        return done.stdout.decode()

    return call


@pytest.mark.parametrize("kind", ["tokenizers", "decoding", "tasks"])
def test_vectors(run, kind):
    *differences, last = run("Vectors", VECTORS, kind).splitlines()
    assert last.endswith(" 0 differences"), "\n".join([*differences, last])
    assert int(last.split()[0]) > 50


def test_lines(run):
    """The command for a comparison of many lines reads lines and writes ids and offsets."""
    folder = VECTORS / "tokenizers" / "gpt2"
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    known = [row for row in rows if "ids" in row and "pair" not in row and "special" not in row]
    chosen = [row for row in known if not set(row["text"]) & set("\n\r")][:20]
    written = run("Tokenize", "tokenize", folder, text="\n".join(row["text"] for row in chosen) + "\n")
    assert [json.loads(line) for line in written.splitlines()] == [
        {"ids": row["ids"], "offsets": row["offsets"]} for row in chosen
    ]


def test_size():
    """The library has at most 3,000 lines of code, without blank lines and comments."""
    lines = [line.strip() for path in LIBRARY.rglob("*.kt") for line in path.read_text(encoding="utf-8").splitlines()]
    assert sum(bool(line) and not line.startswith(("//", "/*", "*")) for line in lines) <= MAX_LINES

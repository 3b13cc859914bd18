"""Runs Python without this package and without Keras: code of a model card, and a program for both runtimes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.code_blocks import blocks
from tests.foreign.environments import HERE, HOME, need

PROGRAM = "run_bundle.py"
"""The program in `programs` for LiteRT and ONNX Runtime; it reads all that it needs from the manifest."""

_RUNNER = """
import contextlib, io, json, sys
source, requests = json.load(sys.stdin)
for name in ("kerasformer", "keras", "tensorflow", "torch", "transformers"):
    sys.modules[name] = None  # makes imports of it fail
results = []
for texts in requests:
    scope, printed, sys.argv = {}, io.StringIO(), ["card.py", *texts]
    with contextlib.redirect_stdout(printed):
        exec(source, scope)
    arrays = {name: value.tolist() for name, value in scope.get("answer", {}).items()}
    results.append({"printed": printed.getvalue().strip(), "arrays": arrays, "tokens": scope.get("tokens")})
print(json.dumps(results))
"""


@dataclass(frozen=True)
class Result:
    """The output of a program, and its final arrays and tokens."""

    printed: str
    arrays: dict[str, np.ndarray]
    tokens: list[int] | None


def block(folder: Path, heading: str) -> str:
    """Returns the program under the heading of the card that starts with `heading`, or `PROGRAM`."""
    if heading == PROGRAM:
        return (HERE / "programs" / heading).read_text(encoding="utf-8")
    card = (folder / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(rf"^#+ {re.escape(heading)}[^\n]*\n.*?```\w+\n(.*?)```", card, re.MULTILINE | re.DOTALL)
    return program


def run_python(folder: Path, heading: str, texts: Sequence[Sequence[str]]) -> list[Result]:
    """Runs the program once for each of these lists of arguments; `PROGRAM` also gets the folder."""
    if heading == PROGRAM:
        texts = [[str(folder), *row] for row in texts]
    source = block(folder, heading).replace("path/to/this/folder", folder.as_posix())
    done = subprocess.run(
        [sys.executable, "-I", "-c", _RUNNER],
        input=json.dumps([source, texts]),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{source}\n{done.stderr[-4000:]}"
    assert done.stderr == "", "a program prints only its answer"
    return [
        Result(row["printed"], {name: np.asarray(value) for name, value in row["arrays"].items()}, row["tokens"])
        for row in json.loads(done.stdout.splitlines()[-1])
    ]


def run_litert_lm(folder: Path, language: str, work: Path) -> str:
    """Returns what the card's program for LiteRT-LM prints, unchanged, in the folder with the file.

    C++ is compiled against the declarations in `programs/` (the package has no header) and linked with its library.
    """
    (code,) = [code for code in blocks(folder / "README.md", language) if "litert_lm" in code]
    command = [str(need("litert-lm")), "-I", "-c", code]
    if language == "cpp":
        if shutil.which("g++") is None:
            pytest.skip("a C++ compiler is needed")
        (library,) = (HOME / "litert-lm").glob("lib/python*/site-packages/litert_lm/liblitert-lm.so")
        (work / "card.cpp").write_text(code)
        build = ["g++", "-std=c++17", f"-I{HERE / 'programs' / 'litert_lm_declared'}", "card.cpp", str(library)]
        built = subprocess.run([*build, f"-Wl,-rpath,{library.parent}"], cwd=work, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        command = [str(work / "a.out")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def keras_arrays(model: Any, *texts: str) -> dict[str, np.ndarray]:
    """Returns the outputs of the Keras model for a text, or for a question and its context."""
    encoded = model.tokenizer(*([text] for text in texts))
    inputs = {name: getattr(encoded, name) for name in model.input_names if hasattr(encoded, name)}
    return {name: np.asarray(value) for name, value in model.named(model(inputs)).items()}

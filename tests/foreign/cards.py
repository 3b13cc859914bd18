"""Code of model cards, and runs of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.code_blocks import blocks
from tests.foreign.environments import HERE, HOME, need


def block(folder: Path, heading: str) -> str:
    """Returns the program under the heading of the card that starts with `heading`."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(rf"^#+ {re.escape(heading)}[^\n]*\n.*?```\w+\n(.*?)```", card, re.MULTILINE | re.DOTALL)
    return program


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

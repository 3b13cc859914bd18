"""The environments of the foreign runtimes, and how a program runs in one: JSON in, JSON out.

A program is a file of `programs/`. It imports nothing of this package: it is what a user of that runtime would write.
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

HERE = Path(__file__).parent
HOME = Path(os.environ.get("KERASFORMER_FOREIGN", HERE.parents[1] / ".foreign")).absolute()
REQUIRED = "KERASFORMER_FOREIGN_REQUIRED"


def need(name: str) -> Path:
    """The interpreter of an environment; without it the test is skipped, or fails where CI asks for all.

    Args:
        name: As `setup.sh` knows it.
    """
    path = {
        "node": HOME / "node" / "node_modules",
        "web": HOME / "web" / "node_modules",
        "chromium": Path(shutil.which("chromium") or "/nowhere/chromium"),
        # TensorFlow is here already; the program sees to it that nothing else is imported.
        "saved-model": Path(sys.executable),
    }.get(name, HOME / name / "bin" / "python")
    if not path.exists():
        reason = f"tests/foreign/setup.sh {name} installs what this test needs"
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def run(name: str, program: str, request: Any, timeout: float = 600) -> Any:
    """What a program of `programs/` answers to a request.

    Args:
        name: Of the environment; `"node"` runs JavaScript.
        program: Its file name.
        request: JSON, on the program's standard input; the last line of its output is JSON, too.
        timeout: In seconds.
    """
    with _command(name, program) as command:
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{program} failed in {name}:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextmanager
def started(name: str, program: str, timeout: float = 600) -> Iterator[Callable[[Any], Any]]:
    """A program that answers one request after another, for environments that take seconds to load.

    Args:
        name: Of the environment; see `run`.
        program: Its file name; it reads a request a line and answers each with a line of JSON.
        timeout: For each answer, in seconds.

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
    """What starts a program, as long as it runs."""
    path, source = need(name), HERE / "programs" / program
    if name != "node":
        yield [str(path), "-I", str(source)]
        return
    # Node looks for packages beside the program, so it gets a copy there.
    copy = path.parent / f"{os.getpid()}-{program}"
    shutil.copyfile(source, copy)
    try:
        yield ["node", str(copy)]
    finally:
        copy.unlink(missing_ok=True)

"""The environments of the foreign runtimes, and how a program runs in one: JSON in, JSON out.

A program is a file of `programs/`. It imports nothing of this package: it is what a user of that runtime would write.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
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
        "chromium": Path(shutil.which("chromium") or "/nowhere/chromium"),
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
    path = need(name)
    if name == "node":
        # Node looks for packages beside the program, so it gets a copy there.
        source = path.parent / f"{os.getpid()}-{program}"
        shutil.copyfile(HERE / "programs" / program, source)
        command = ["node", str(source)]
    else:
        source, command = None, [str(path), "-I", str(HERE / "programs" / program)]
    try:
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=timeout)
    finally:
        if source is not None:
            source.unlink(missing_ok=True)
    assert done.returncode == 0, f"{program} failed in {name}:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])

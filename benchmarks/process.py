"""A candidate's own process: it opens the model, then answers as often as it is asked, and tells times and memory.

One JSON object a line. From `run.py`: `{"case": 0}`, or an empty line to end. To it: `{"load_s"}` once, then
`{"seconds", "tokens", "peak_mb"}` for each answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Process:
    """A candidate in a process of its own, seen from outside.

    Args:
        name: One of `CANDIDATES`.
        shape: One of `SHAPES`.
        folder: The shape's.
        threads: CPU threads.

    Raises:
        RuntimeError: it ended before it had answered.
    """

    def __init__(self, name: str, shape: str, folder: Path, threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.process", name, shape, str(folder), str(threads)]
        self.name = name
        self.log = (folder / f"{name}.log").open("w")
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=quiet_environment()
        )
        self.load_s: float = self._read()["load_s"]

    def answer(self, case: int) -> dict[str, Any]:
        """One answer, measured inside."""
        self._write(json.dumps({"case": case}))
        return self._read()

    def close(self) -> None:
        """Ends it."""
        if self._child.poll() is None:
            self._write("")
        self._child.wait()
        self.log.close()

    def _write(self, line: str) -> None:
        if self._child.stdin is None:
            raise RuntimeError("The process has no standard input")
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def _read(self) -> dict[str, Any]:
        line = self._child.stdout.readline() if self._child.stdout else ""
        if not line:
            raise RuntimeError(f"{self.name} ended early; see {self.log.name}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def quiet_environment() -> dict[str, str]:
    """For a process that uses Keras on TensorFlow, or PyTorch."""
    # PyTorch's threads spin while they wait for each other: where one core is busy, ten times slower than asleep.
    wait = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    keras = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return {**os.environ, **wait, **keras}


def peak_mb() -> float:
    """Most memory that this process has had resident, files mapped into it included, in MB (Linux)."""
    # Not getrusage: its figure begins with that of the parent process.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1000
    raise RuntimeError("/proc/self/status has no VmHWM")


def forget_peak() -> None:
    """Lets `peak_mb` begin anew from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def main() -> None:
    """Serves until standard input ends."""
    name, shape_name, folder, threads = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print, too
    begin = time.perf_counter()
    from benchmarks.candidates import CANDIDATES
    from benchmarks.shapes import SHAPES

    shape = SHAPES[shape_name]
    kind, subfolder = CANDIDATES[name]
    candidate = kind(shape, Path(folder) / subfolder, int(threads))
    print(json.dumps({"load_s": time.perf_counter() - begin}), file=replies, flush=True)
    for line in sys.stdin:
        if not line.strip():
            break
        case = shape.cases[json.loads(line)["case"]]
        begin = time.perf_counter()
        tokens = candidate.answer(case)
        reply = {"seconds": time.perf_counter() - begin, "tokens": tokens, "peak_mb": peak_mb()}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()

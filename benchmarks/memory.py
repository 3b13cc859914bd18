"""Memory and time of a process that opens a bundle and gives its first answer: `python -m benchmarks.memory BUNDLE`.

Every measurement is a process of its own: without a weight cache, with one that is still empty, and with a full one,
on one thread and on two. The memory is the greatest resident size minus that of the same process once the runtime is
imported; the file of the model, as a share of which it is given, lies in it as far as it is read.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNTIMES = {
    "tflite": ("ai_edge_litert.compiled_model", "ai_edge_litert.options", "ai_edge_litert.environment"),
    "onnx": ("onnxruntime",),
}


def peak() -> int:
    """Greatest resident size of this process so far, in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measure(folder: Path, threads: int, cache_dir: str | None, rows: int) -> dict[str, float]:
    """Times in seconds, memory in bytes, of this process.

    Args:
        folder: A bundle.
        threads: Of the runtime.
        cache_dir: Of the weight cache, or `None`.
        rows: Prompts of 32 tokens, or texts of as many, that are answered.
    """
    begin = time.perf_counter()
    import numpy as np

    from kerasformer import bundle, runtime
    from kerasformer.decoding import Step

    form = json.loads((folder / "kerasformer.json").read_text())["format"]
    for module in RUNTIMES[form]:
        importlib.import_module(module)
    imported, before = time.perf_counter(), peak()
    manifest = bundle.read(folder)
    read = time.perf_counter()
    engine = runtime.open_engine(folder, manifest, threads, cache_dir=cache_dir)
    loaded = time.perf_counter()
    ids = np.arange(10, 10 + 32, dtype="int32")[None].repeat(rows, 0)
    if isinstance(engine, Step):
        state = engine.start(ids, np.ones_like(ids))
        engine.step(ids[:, -1:], state)
    else:
        engine.run({"input_ids": ids})
    answered = time.perf_counter()
    return {
        "import": imported - begin,
        "read and check the files": read - imported,
        "load": loaded - read,
        "first answer": answered - loaded,
        "all but the import": answered - imported,
        "memory": peak() - before,
    }


def weight_bytes(folder: Path) -> int:
    """Size of the model files of a bundle."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in (".tflite", ".onnx", ".data"))


def report(folder: Path, rounds: int, rows: int) -> None:
    """Measures in fresh processes and prints the best of each time, and the greatest memory."""
    size = weight_bytes(folder)
    print(f"{folder}: {size:,} bytes of model files, {rows} rows; best of {rounds}, seconds")
    with tempfile.TemporaryDirectory() as temporary:
        for cache in ("none", "empty", "full"):
            for threads in (1, 2):
                found = []
                for turn in range(rounds):
                    place = {"none": "-", "empty": f"{temporary}/{threads}-{turn}", "full": f"{temporary}/1-0"}[cache]
                    command = [sys.executable, "-m", __spec__.name, str(folder), "--measure", place]
                    command += ["--threads", str(threads), "--rows", str(rows)]
                    done = subprocess.run(command, capture_output=True, text=True, check=True)
                    found.append(json.loads(done.stdout))
                times = ", ".join(f"{key} {min(run[key] for run in found):.2f}" for key in found[0] if key != "memory")
                memory = max(run["memory"] for run in found)
                share = f"{memory / 1e6:.0f} MB = {memory / size:.2f} of the files"
                print(f"cache {cache:5} threads {threads}: {times}; memory {share}", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", help="measures this process, with this weight cache; - is none")
    given = parser.parse_args()
    if given.measure is None:
        report(given.folder, given.rounds, given.rows)
    else:
        cache = None if given.measure == "-" else given.measure
        print(json.dumps(measure(given.folder, given.threads, cache, given.rows)))


if __name__ == "__main__":
    main()

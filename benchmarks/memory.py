"""Memory and time of a process that opens a bundle and computes an output: `python -m benchmarks.memory BUNDLE`.

An encoder answers one text of each of the lengths that `--lengths` lists. Each measurement runs in a separate process:
without a weight cache, with an empty one and with a full one, on one thread and on two. The memory is the increase of
the peak resident size after the import of the runtime. It is also printed relative to the size of the model files,
whose mapped pages are included.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

RUNTIMES = {
    "tflite": (
        "ai_edge_litert.compiled_model",
        "ai_edge_litert.options",
        "ai_edge_litert.environment",
        "ai_edge_litert.interpreter",
        "kerasformer.runtime.litert",
    ),
    "onnx": ("onnxruntime", "kerasformer.runtime.onnx"),
}


def peak() -> int:
    """Returns the peak resident size of this process in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measure(folder: Path, threads: int, cache_dir: str | None, rows: int, lengths: Sequence[int]) -> dict[str, float]:
    """Measures times in seconds and memory in bytes of this process.

    Args:
        folder: Folder of a bundle.
        threads: Number of threads of the runtime.
        cache_dir: Folder of the weight cache, or `None`.
        rows: Number of prompts or texts.
        lengths: Numbers of tokens of the texts of an encoder, one after another; that of a prompt is the first one.
    """
    start = time.perf_counter()
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
    texts = [np.arange(10, 10 + length, dtype="int32")[None].repeat(rows, 0) for length in lengths]
    ids = texts[0]
    if isinstance(engine, Step):
        state = engine.start(ids, np.ones_like(ids))
        engine.step(ids[:, -1:], state)
    else:
        engine.run({"input_ids": ids})
    answered = time.perf_counter()
    if not isinstance(engine, Step):
        for ids in texts[1:]:
            engine.run({"input_ids": ids})
    return {
        "import": imported - start,
        "read and check the files": read - imported,
        "load": loaded - read,
        "first answer": answered - loaded,
        "all but the import": answered - imported,
        "memory": peak() - before,
    }


def weight_bytes(folder: Path) -> int:
    """Returns the size of the model files of a bundle in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in (".tflite", ".onnx", ".onnx_data"))


def report(folder: Path, rounds: int, rows: int, lengths: Sequence[int]) -> None:
    """Measures in new processes and prints the minimum of each time and the maximum of the memory."""
    size = weight_bytes(folder)
    print(f"{folder}: {size:,} bytes of model files, {rows} rows; best of {rounds}, seconds")
    with tempfile.TemporaryDirectory() as temporary:
        for cache in ("none", "empty", "full"):
            for threads in (1, 2):
                runs = []
                for turn in range(rounds):
                    path = {"none": "-", "empty": f"{temporary}/{threads}-{turn}", "full": f"{temporary}/1-0"}[cache]
                    command = [sys.executable, "-m", __spec__.name, str(folder), "--measure", path]
                    command += ["--threads", str(threads), "--rows", str(rows), "--lengths", *map(str, lengths)]
                    process = subprocess.run(command, capture_output=True, text=True, check=True)
                    runs.append(json.loads(process.stdout))
                times = ", ".join(f"{key} {min(run[key] for run in runs):.2f}" for key in runs[0] if key != "memory")
                memory = max(run["memory"] for run in runs)
                share = f"{memory / 1e6:.0f} MB = {memory / size:.2f} of the files"
                print(f"cache {cache:5} threads {threads}: {times}; memory {share}", flush=True)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32])
    parser.add_argument("--measure", help="measure this process, with this weight cache (-: none)")
    arguments = parser.parse_args()
    if arguments.measure is None:
        report(arguments.folder, arguments.rounds, arguments.rows, arguments.lengths)
    else:
        cache = None if arguments.measure == "-" else arguments.measure
        print(json.dumps(measure(arguments.folder, arguments.threads, cache, arguments.rows, arguments.lengths)))


if __name__ == "__main__":
    main()

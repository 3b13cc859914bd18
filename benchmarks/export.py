"""Time and memory of an export, in a process of its own: `python -m benchmarks.export CHECKPOINT OUT FORMAT QUANTIZE`.

The last line of its output is a JSON object: seconds of all (the checkpoint is loaded already), peak memory in MB with
the loading, and both by stage.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.quiet import quiet_environment
from kerasformer.bench.process_memory import forget_peak, peak_mb

LOOSE = 0.5
"""Least agreement at int8: the best of fifty thousand random logits is hardly better than the next."""


def export_apart(checkpoint: Path, destination: Path, format: str, quantize: str) -> dict[str, Any]:
    """Exports in a process of its own; returns the figures.

    Raises:
        subprocess.CalledProcessError: the export failed; its message is on standard error.
    """
    command = [sys.executable, "-m", "benchmarks.export", str(checkpoint), str(destination), format, quantize]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=quiet_environment())
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Loads, exports, tells."""
    checkpoint, destination, format, quantize = sys.argv[1:]
    from kerasformer import zoo
    from kerasformer.export import export
    from kerasformer.export.quantization.recipes import recipe

    model = zoo.load(checkpoint)
    stages = {"load": {"seconds": 0.0, "peak_mb": peak_mb()}}
    begin = last = time.perf_counter()
    current = ""

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal current, last
        now = time.perf_counter()
        if current:
            figures = stages.setdefault(current, {"seconds": 0.0, "peak_mb": 0.0})
            figures["seconds"] += now - last
            figures["peak_mb"] = max(figures["peak_mb"], peak_mb())
        forget_peak()
        current, last = stage, now

    wanted = recipe(quantize)
    if not wanted.exact:
        wanted = dataclasses.replace(wanted, min_agreement=LOOSE)
    export(model, destination, format, wanted, overwrite=True, progress=progress)
    seconds = time.perf_counter() - begin
    progress("", 0, 0)
    print(json.dumps({"seconds": seconds, "peak_mb": max(s["peak_mb"] for s in stages.values()), "stages": stages}))


if __name__ == "__main__":
    main()

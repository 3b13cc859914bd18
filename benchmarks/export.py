"""Time and memory of an export, in a process of its own: `python -m benchmarks.export CHECKPOINT OUT FORMAT QUANTIZE`.

The last line of its output is a JSON object: seconds of all (the checkpoint is loaded already), seconds by stage, peak
memory in MB.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.process import peak_mb, quiet_environment

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
    from kerasformer.export.recipes import recipe

    model = zoo.load(checkpoint)
    loaded_mb = peak_mb()
    begin = last = time.perf_counter()
    stages: dict[str, float] = {}
    current = ""

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal current, last
        now = time.perf_counter()
        if current:
            stages[current] = stages.get(current, 0.0) + now - last
        current, last = stage, now

    wanted = recipe(quantize)
    if wanted.weight_bits < 32:
        wanted = dataclasses.replace(wanted, min_agreement=LOOSE)
    export(model, destination, format, wanted, overwrite=True, progress=progress)
    progress("", 0, 0)
    figures = {
        "seconds": time.perf_counter() - begin,
        "stages": stages,
        "peak_mb": peak_mb(),
        "loaded_mb": loaded_mb,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

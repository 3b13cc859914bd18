"""Time and memory of an export in a separate process.

`python -m benchmarks.export CHECKPOINT OUT FORMAT QUANTIZE [LENGTH…]`; the lengths are those of a TFLite file.

The last line of the output is a JSON object with the total time in seconds (without loading the checkpoint), the peak
memory in MB (including loading), and both for each stage.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.quiet import quiet_environment
from kerasformer.bench.process_memory import peak_mb, reset_peak

MIN_AGREEMENT = 0.1
"""Minimum agreement of quantized models: with random weights, the best logit is hardly larger than the next."""

TOLERANCE = 1.0
"""Largest error of quantized models, relative to the scale of the logits: random logits are small."""

MIN_COSINE = 0.98
"""Minimum similarity of embeddings, below that of the recipes: these exports are for measurements of speed."""


def export_in_subprocess(
    checkpoint: Path, destination: Path, format: str, quantize: str, lengths: Sequence[int] = ()
) -> dict[str, Any]:
    """Exports in a separate process and returns its time and memory.

    Raises:
        subprocess.CalledProcessError: the export failed; its message is on standard error.
    """
    command = [sys.executable, "-m", "benchmarks.export", str(checkpoint), str(destination), format, quantize]
    command += [str(length) for length in lengths if format == "tflite"]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=quiet_environment())
    figures: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Exports a checkpoint and prints time and memory."""
    checkpoint, destination, format, quantize, *lengths = sys.argv[1:]
    from kerasformer import zoo
    from kerasformer.export import TFLite, export
    from kerasformer.export.quantization.recipes import recipe

    model = zoo.load(checkpoint)
    stages = {"load": {"seconds": 0.0, "peak_mb": peak_mb()}}
    start = last = time.perf_counter()
    current = ""

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal current, last
        now = time.perf_counter()
        if current:
            figures = stages.setdefault(current, {"seconds": 0.0, "peak_mb": 0.0})
            figures["seconds"] += now - last
            figures["peak_mb"] = max(figures["peak_mb"], peak_mb())
        reset_peak()
        current, last = stage, now

    settings = recipe(quantize)
    if not settings.exact:
        tolerance, cosine = max(TOLERANCE, settings.tolerance), min(MIN_COSINE, settings.min_cosine)
        settings = dataclasses.replace(settings, tolerance=tolerance, min_agreement=MIN_AGREEMENT, min_cosine=cosine)
    chosen = TFLite(lengths=[int(length) for length in lengths]) if lengths else format
    export(model, destination, chosen, settings, overwrite=True, progress=progress)
    seconds = time.perf_counter() - start
    progress("", 0, 0)
    print(json.dumps({"seconds": seconds, "peak_mb": max(s["peak_mb"] for s in stages.values()), "stages": stages}))


if __name__ == "__main__":
    main()

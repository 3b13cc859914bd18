"""Time and memory of an export in a separate process.

`python -m benchmarks.export CHECKPOINT OUT FORMAT QUANTIZE [LENGTH…]`; the lengths are those of a TFLite file.
With `--strict`, the recipe has its own limits, so that the export may be refused: `refused` is then true.

The last line of the output is a JSON object with the total time in seconds (without loading the checkpoint), the
processor time of all threads (which hardly depends on other programs), the peak memory in MB (including loading), and
all three for each stage. The checkpoint is passed as a path, as on the command line, so that its weights are freed.
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
from kerasformer.errors import ExportMismatchError
from kerasformer.process import free_tensors

LOAD = "load"
"""First stage: the import of Keras and loading the checkpoint."""

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
    strict = "--strict" in sys.argv
    checkpoint, destination, format, quantize, *lengths = (word for word in sys.argv[1:] if word != "--strict")
    free_tensors()  # as `kerasformer export` does
    from kerasformer.export import export
    from kerasformer.export.quantization.recipes import recipe

    stages: dict[str, dict[str, float]] = {}
    current, last = LOAD, (time.perf_counter(), time.process_time())

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal current, last
        now = time.perf_counter(), time.process_time()
        figures = stages.setdefault(current, {"seconds": 0.0, "processor_seconds": 0.0, "peak_mb": 0.0})
        figures["seconds"] += now[0] - last[0]
        figures["processor_seconds"] += now[1] - last[1]
        figures["peak_mb"] = max(figures["peak_mb"], peak_mb())
        reset_peak()
        current, last = stage, now

    settings = recipe(quantize)
    if not (settings.exact or strict):
        tolerance, cosine = max(TOLERANCE, settings.tolerance), min(MIN_COSINE, settings.min_cosine)
        settings = dataclasses.replace(settings, tolerance=tolerance, min_agreement=MIN_AGREEMENT, min_cosine=cosine)
    sizes = [int(length) for length in lengths] or None
    refused = False
    try:
        export(checkpoint, destination, format, settings, lengths=sizes, overwrite=True, progress=progress)
    except ExportMismatchError as error:
        if not strict:
            raise
        refused = True
        print(error, file=sys.stderr)
    progress("", 0, 0)
    after = [figures for stage, figures in stages.items() if stage != LOAD]
    totals = {name: sum(figures[name] for figures in after) for name in ("seconds", "processor_seconds")}
    totals["peak_mb"] = max(figures["peak_mb"] for figures in stages.values())
    print(json.dumps({**totals, "refused": refused, "stages": stages}))


if __name__ == "__main__":
    main()

"""Memory that exports leave in a process: `python -m benchmarks.repeated_exports`.

    python -m benchmarks.repeated_exports                                   # ten exports in each format
    python -m benchmarks.repeated_exports tflite-none --layers 2 --count 3  # to try the script

The model has the sizes of SmolLM2-135M and random weights. One process for each case exports it again and again from
the same checkpoint, opens a pipeline of the bundle, generates a few tokens, and drops both. After each, the resident
memory is printed in GB, after garbage collection and with freed memory returned to the system, and its peak so far. The
last line of a case is the ratio of the memory after the last export to that after the first, which must be at most 1.2.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.quiet import quiet_environment
from kerasformer.bench.process_memory import peak_mb, resident_mb
from kerasformer.process import return_memory

CASES = ("tflite-none", "onnx-none", "tflite-int8", "onnx-int8")
LIMIT = 1.2
"""Largest ratio of the resident memory after the last export to that after the first."""
PROMPT = "Once upon a time"

SIZES: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_dim": 576,
    "intermediate_dim": 1536,
    "num_layers": 30,
    "num_heads": 9,
    "num_key_value_heads": 3,
    "max_length": 8192,
    "tied": True,
}


def write(folder: Path, num_layers: int) -> None:
    """Writes a checkpoint with random weights and the tokenizer of a preset."""
    from kerasformer import zoo

    model = zoo.build("llama", "text-generation", **{**SIZES, "num_layers": num_layers})
    model.tokenizer = zoo.load("story-gpt2").tokenizer
    model.save_pretrained(folder)


def measure(source: str, destination: str, case: str, count: int, capacity: int) -> None:
    """Exports in this process; prints the seconds of each export, and the memory after it, as JSON."""
    import kerasformer as kf
    from kerasformer.export import export, recipe

    format, quantize = case.split("-")
    settings = recipe(quantize)
    if not settings.exact:  # with random weights, the best logit is hardly larger than the next
        settings = dataclasses.replace(settings, min_agreement=0.0, tolerance=10.0)
    for _ in range(count):
        start = time.perf_counter()
        bundle = export(source, destination, format, settings, capacity=capacity, overwrite=True, progress=False)
        seconds = time.perf_counter() - start
        kf.pipeline(bundle)(PROMPT, max_new_tokens=8)
        del bundle
        gc.collect()
        return_memory()
        figures = {"seconds": seconds, "resident_mb": resident_mb(), "peak_mb": peak_mb()}
        print(json.dumps(figures), flush=True)


def report(cases: list[str], num_layers: int, count: int, capacity: int) -> bool:
    """Measures each case in a process of its own; returns whether all of them are within the limit."""
    within = True
    with tempfile.TemporaryDirectory() as name:
        checkpoint = str(Path(name) / "checkpoint")
        command = [sys.executable, "-m", __spec__.name, "--layers", str(num_layers), "--write", checkpoint]
        subprocess.run(command, check=True, env=quiet_environment(), stderr=subprocess.DEVNULL)
        for case in cases:
            print(f"{case}: export, s; resident after it, GB; peak, GB", flush=True)
            command = [sys.executable, "-m", __spec__.name, case, "--count", str(count), "--capacity", str(capacity)]
            command += ["--measure", checkpoint, str(Path(name) / case)]
            resident = []
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=quiet_environment()
            ) as process:
                for line in process.stdout or ():
                    figures = json.loads(line)
                    resident.append(figures["resident_mb"])
                    seconds, peak = figures["seconds"], figures["peak_mb"] / 1e3
                    print(f"{len(resident):4} {seconds:6.0f} {resident[-1] / 1e3:6.2f} {peak:6.2f}", flush=True)
            ratio = resident[-1] / resident[0] if len(resident) == count else float("nan")
            within &= ratio <= LIMIT
            print(f"{case}: {ratio:.2f} of the memory after the first export; at most {LIMIT}", flush=True)
    return within


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="FORMAT-RECIPE", help=f"by default {', '.join(CASES)}")
    parser.add_argument("--layers", type=int, default=SIZES["num_layers"])
    parser.add_argument("--count", type=int, default=10, help="number of exports")
    parser.add_argument("--capacity", type=int, default=1024)
    parser.add_argument("--write", metavar="FOLDER", help="write the checkpoint in this process")
    parser.add_argument("--measure", nargs=2, metavar=("SOURCE", "DESTINATION"), help="export in this process")
    options = parser.parse_args()
    cases = options.cases or list(CASES)
    if options.write:
        write(Path(options.write), options.layers)
    elif options.measure:
        measure(*options.measure, cases[0], options.count, options.capacity)
    elif not report(cases, options.layers, options.count, options.capacity):
        sys.exit("an export keeps memory")


if __name__ == "__main__":
    main()

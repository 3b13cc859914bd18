"""Measures candidates in turn: `python -m benchmarks.run [SHAPE…] [--only CANDIDATE…] [--rounds N] [--out FILE]`.

Every candidate has a process of its own and answers once in each round, so that a busy moment of the machine meets all
alike: compare figures of one run only. The first answer, which compiles, is a figure of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.candidates import CANDIDATES, CHECKPOINT
from benchmarks.export import export_apart
from benchmarks.process import Process
from benchmarks.shapes import SHAPES, Shape, write_checkpoint


def prepare(shape: Shape, folder: Path, names: list[str]) -> dict[str, Any]:
    """Makes what the candidates open and is not there yet; returns what each export took."""
    if not (folder / CHECKPOINT).exists():
        write_checkpoint(shape, folder / CHECKPOINT)
    exports = {}
    for name in names:
        target = folder / CANDIDATES[name][1]
        figures = folder / f"{name}.json"
        if target.name == CHECKPOINT:
            continue
        if not (target.exists() and figures.exists()):
            _say(f"export {shape.title} {name}")
            figures.write_text(json.dumps(export_apart(folder / CHECKPOINT, target, *name.split("-"))))
        exports[name] = json.loads(figures.read_text())
    return exports


def measure(shape: str, folder: Path, names: list[str], rounds: int, threads: int) -> dict[str, Any]:
    """Load time, first answers, answers and memory of each candidate."""
    processes: dict[str, Process] = {}
    results: dict[str, Any] = {}
    cases = SHAPES[shape].cases
    try:
        for name in names:
            _say(f"open {shape} {name}")
            processes[name] = Process(name, shape, folder, threads)
            results[name] = {"load_s": processes[name].load_s, "size_mb": _size_mb(folder / CANDIDATES[name][1])}
            results[name]["first_s"] = [processes[name].answer(case)["seconds"] for case in range(len(cases))]
            results[name]["cases"] = [{"seconds": []} for _ in cases]
        for index, case in enumerate(cases):
            for number in range(rounds):
                _say(f"{shape}, {case}: round {number + 1} of {rounds}")
                for name, process in processes.items():
                    answer = process.answer(index)
                    if answer["tokens"] != case.write:
                        raise RuntimeError(f"{name} wrote {answer['tokens']} tokens instead of {case.write}")
                    results[name]["cases"][index]["seconds"].append(answer["seconds"])
                    results[name]["peak_mb"] = answer["peak_mb"]
                    time.sleep(0.1)  # threads that still spin would take time from the next one
    finally:
        for process in processes.values():
            process.close()
    for result in results.values():
        for case in result["cases"]:
            case["min_s"], case["median_s"] = min(case["seconds"]), statistics.median(case["seconds"])
    return results


def _size_mb(folder: Path) -> float:
    """Of the files with weights."""
    kinds = (".safetensors", ".tflite", ".onnx", ".onnx_data")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.name.endswith(kinds)) / 1e6


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures kerasformer beside transformers and KerasHub.")
    parser.add_argument("shapes", nargs="*", default=["gpt2", "t5", "bert"], help=", ".join(SHAPES))
    parser.add_argument("--only", nargs="+", default=list(CANDIDATES), metavar="CANDIDATE", help=", ".join(CANDIDATES))
    parser.add_argument("--rounds", type=int, default=5, help="answers of each candidate")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="CPU threads")
    parser.add_argument("--folder", type=Path, help="keeps checkpoints and bundles, 2.5 GB, for the next run")
    parser.add_argument("--out", type=Path, help="writes the table to FILE.md and all figures to FILE.json")
    return parser.parse_args()


def main() -> None:
    """Prepares, measures, reports."""
    wanted = _arguments()
    results: dict[str, Any] = {"machine": report.machine(wanted.threads), "rounds": wanted.rounds, "shapes": {}}
    with tempfile.TemporaryDirectory() as temporary:
        root = (wanted.folder or Path(temporary)).resolve()
        for name in wanted.shapes:
            folder = root / name
            folder.mkdir(parents=True, exist_ok=True)
            exports = prepare(SHAPES[name], folder, wanted.only)
            measured = measure(name, folder, wanted.only, wanted.rounds, wanted.threads)
            results["shapes"][name] = {"exports": exports, "candidates": measured}
            table = report.markdown(results)
            if wanted.out:  # after each shape: what was measured is not lost
                wanted.out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
                wanted.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()

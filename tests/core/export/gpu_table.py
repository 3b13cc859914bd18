"""Prints the table of docs/phones.md: what LiteRT's GPU delegate computes of each architecture's file.

python -m tests.core.export.gpu_table [--half] [NAME …]      all architectures without a name; --half in 16-bit floats
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kerasformer.export.formats.tflite import flatbuffer
from kerasformer.tools.gpu import check_gpu
from tests.core.export.formats.test_gpu_graph import FIRST, FURTHER, INTEGERS, bundle_of, lowered
from tests.core.export.text_models import CAPACITY, shared_bundle

MAX_ERROR_IN_HALVES = 2e-2


def rows(names: list[str], half: bool) -> Iterator[list[str]]:
    """Yields the cells of each architecture: its row, and the largest error of each recipe."""
    for name in names or sorted([*FIRST, *FURTHER]):
        cells = [name]
        recipes = ["none", *(recipe for row, recipe in INTEGERS if row == name)]
        for recipe in ("none", "int8", "int4"):
            folder = None
            if recipe in recipes:
                folder = bundle_of(name) if recipe == "none" else shared_bundle(name, "tflite", recipe)
            cells.append("" if folder is None else error_of(folder / "model.tflite", half))
        yield cells


def error_of(path: Path, half: bool) -> str:
    """Returns the largest error of a file that is rewritten for a GPU, or why there is none."""
    limit = MAX_ERROR_IN_HALVES if half else None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.tflite"
        file.write_bytes(bytes(flatbuffer._pack(lowered(path).model)))
        report = check_gpu(file, half, window=CAPACITY, timeout=1200)
    if report.failure is not None:
        return report.failure
    worst = max(report.outputs, key=lambda output: (output.not_finite, output.error))
    wrong = "" if report.is_right(*([limit] if limit else [])) else " **wrong**"
    left = f", {report.on_cpu} operators on the CPU" if report.on_cpu else ""
    return f"{worst.error:.0e}{f', {worst.not_finite} not finite' if worst.not_finite else ''}{left}{wrong}"


if __name__ == "__main__":
    chosen = [argument for argument in sys.argv[1:] if argument != "--half"]
    print("|model|float32|int8|int4|\n|---|--:|--:|--:|", flush=True)
    for cells in rows(chosen, "--half" in sys.argv):
        print(f"|{'|'.join(cells)}|", flush=True)

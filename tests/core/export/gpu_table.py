"""Prints the table of docs/phones.md: what LiteRT's GPU delegate computes of each architecture's file.

python -m tests.core.export.gpu_table [NAME …]      all architectures without a name

The last column needs Mesa's driver: `tests/foreign/setup.sh lavapipe`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from kerasformer.export.formats.tflite import flatbuffer
from kerasformer.tools.gpu import check_gpu
from tests.core.export.formats.test_gpu_graph import FIRST, FURTHER, INTEGERS, bundle_of, lowered
from tests.core.export.gpu import use_halves
from tests.core.export.text_models import CAPACITY, shared_bundle


def cells(name: str) -> list[str]:
    """Returns the row of an architecture: its name, and the largest error of each recipe and in 16-bit floats."""
    plain = bundle_of(name)
    folders = [
        plain,
        *(shared_bundle(name, "tflite", recipe) if (name, recipe) in INTEGERS else None for recipe in ("int8", "int4")),
    ]
    errors = ["" if folder is None else error_of(folder / "model.tflite") for folder in folders]
    with pytest.MonkeyPatch.context() as patch:
        use_halves(patch)
        return [name, *errors, error_of(plain / "model.tflite", half=True)]


def error_of(path: Path, half: bool = False) -> str:
    """Returns the largest error of a file that is rewritten for a GPU, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.tflite"
        file.write_bytes(bytes(flatbuffer._pack(lowered(path).model)))
        report = check_gpu(file, half, window=CAPACITY, timeout=1200)
    if report.failure is not None:
        return report.failure
    worst = max(report.outputs, key=lambda output: (output.not_finite, output.error))
    left = f", {report.on_cpu} operators on the CPU" if report.on_cpu else ""
    return f"{worst.error:.0e}{f', {worst.not_finite} not finite' if worst.not_finite else ''}{left}"


if __name__ == "__main__":
    print("|model|float32|int8|int4|16-bit floats|\n|---|--:|--:|--:|--:|", flush=True)
    for name in sys.argv[1:] or sorted([*FIRST, *FURTHER]):
        print(f"|{'|'.join(cells(name))}|", flush=True)

"""The same model gives the same bundle, byte for byte, whatever the process did before and however it hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerasformer import bundle
from kerasformer.export import export
from tests.export.text_models import ROWS, size_options

CASES = {  # no byte-pair tokenizers, which the tokenizers library trains differently in every process
    "distilbert-text-classification": "tflite",
    "t5-text2text-generation": "onnx",
}
REST = {"albert-fill-mask": "onnx", "t5-text2text-generation": "tflite"}


def write(folder: Path, cases: dict[str, str]) -> None:
    """Writes a bundle for each case."""
    for name, format in cases.items():
        row = ROWS[name]
        model = row.model()
        sizes = size_options(model, format, (64,), 64)
        export(model, folder / f"{name}-{format}", format, row.recipe("int8"), **sizes)


@pytest.mark.parametrize("cases", [CASES, pytest.param(REST, marks=pytest.mark.release)], ids=["cases", "rest"])
def test_the_same_bytes(cases, tmp_path):
    """Bundles from this process, after other models, equal those from a new process."""
    here, there = tmp_path / "here", tmp_path / "there"
    for name in cases:
        ROWS[name].model()  # Keras numbers the next model of the same class
    write(here, cases)
    script = f"import sys; from tests.export.test_reproducible import *; write(Path(sys.argv[1]), {cases!r})"
    subprocess.run(
        [sys.executable, "-c", script, str(there)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        check=True,
        capture_output=True,
    )
    for name, format in cases.items():
        first, second = (bundle.read(folder / f"{name}-{format}").files for folder in (here, there))
        assert first == second, f"a checksum of {name} differs"

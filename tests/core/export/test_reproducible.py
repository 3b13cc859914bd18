"""The same model gives the same bundle, byte for byte, whatever the process did before and however it hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerasformer import bundle
from kerasformer.export import export
from tests.core.export.text_models import ROWS, size_options

CASES = {  # no byte-pair tokenizers, which the tokenizers library trains differently in every process
    "distilbert-text-classification": "tflite",
    "albert-fill-mask": "onnx",
}


def write(folder: Path) -> None:
    """Writes a bundle for each case."""
    for name, format in CASES.items():
        row = ROWS[name]
        model = row.model()
        sizes = size_options(model, format, (64,), 64)
        export(model, folder / f"{name}-{format}", format, row.recipe("int8"), **sizes)


@pytest.mark.grid
def test_the_same_bytes(tmp_path):
    """Bundles from this process, after other models, equal those from a new process."""
    here, there = tmp_path / "here", tmp_path / "there"
    for name in CASES:
        ROWS[name].model()  # Keras numbers the next model of the same class
    write(here)
    script = "import sys; from tests.core.export.test_reproducible import *; write(Path(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", script, str(there)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        check=True,
        capture_output=True,
    )
    for name, format in CASES.items():
        first, second = (bundle.read(folder / f"{name}-{format}").files for folder in (here, there))
        assert first == second, f"a checksum of {name} differs"

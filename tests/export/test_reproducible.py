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

CASES = (  # byte pairs are left out: the tokenizers library learns other ones in every process
    ("distilbert-text-classification", "tflite"),
    ("albert-fill-mask", "onnx"),
    ("t5-text2text-generation", "tflite"),
    ("t5-text2text-generation", "onnx"),
)


def write(folder: Path) -> None:
    """A bundle of each case."""
    for name, format in CASES:
        row = ROWS[name]
        model = row.model()
        sizes = size_options(model, format, (64,), 64)
        export(model, folder / f"{name}-{format}", format, row.recipe("int8"), **sizes)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> tuple[Path, Path]:
    """All of them from this process, after other models, and from a new one."""
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    for name, _ in CASES:
        ROWS[name].model()  # Keras numbers the next one
    write(here)
    script = "import sys; from tests.export.test_reproducible import *; write(Path(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", script, str(there)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        check=True,
        capture_output=True,
    )
    return here, there


@pytest.mark.parametrize(("name", "format"), CASES)
def test_the_same_bytes(name, format, bundles):
    here, there = (bundle.read(folder / f"{name}-{format}").files for folder in bundles)
    assert here == there, "a checksum differs"

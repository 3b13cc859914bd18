"""The files that a newcomer reads first, listed in `docs/architecture.md`: few, short, and passed by every model."""

from __future__ import annotations

import ast
import re
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import kerasformer as kf
from tests.core.export.text_models import ROWS

ROOT = Path(__file__).parents[2]
SPINE = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \|", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.M)


def test_an_evening_is_enough():
    assert 20 <= len(SPINE) <= 30
    assert sum(len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in SPINE) <= 7000


@pytest.mark.parametrize("name", [name for name in SPINE if not name.startswith("zoo/")])
def test_a_file_says_what_calls_it(name):
    text = ast.get_docstring(ast.parse((ROOT / name).read_text(encoding="utf-8")))
    assert "Called by" in str(text)


@pytest.mark.parametrize("format", ["litert", pytest.param("onnx", marks=pytest.mark.grid)])
def test_a_model_passes_every_file(format, tmp_path):
    """From a folder to the text of a bundle. The files that its functions are in are recorded by the interpreter."""
    ROWS["gpt2-text-generation"].model().save_pretrained(tmp_path / "checkpoint")
    passed = set()

    def record(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_name != "<module>":  # which an import runs
            passed.add(frame.f_code.co_filename)

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        model = kf.load(tmp_path / "checkpoint")
        expected = kf.pipeline(model)("The museum", max_new_tokens=4)
        model.export(tmp_path / "bundle", format=format)
        received = kf.pipeline(tmp_path / "bundle")("The museum", max_new_tokens=4)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert received == expected
    assert [name for name in SPINE if str(ROOT / name) not in passed] == []

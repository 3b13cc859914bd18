"""The code in docs/training.md runs from top to bottom."""

from __future__ import annotations

from pathlib import Path

import keras
import pytest

from tests.code_blocks import blocks

PAGE = Path(__file__).parents[3] / "docs" / "training.md"


# A model that is loaded again does not know its `compile`, which the test has replaced.
@pytest.mark.filterwarnings("ignore:`compile\\(\\)` was not called as part of model loading:UserWarning")
@pytest.mark.grid
def test_the_code_runs_from_top_to_bottom(tmp_path, monkeypatch):
    compile_model = keras.Model.compile
    # For six models with one step each, tracing a graph takes much longer than the step.
    monkeypatch.setattr(
        keras.Model, "compile", lambda *given, **named: compile_model(*given, run_eagerly=True, **named)
    )
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, block in enumerate(blocks(PAGE, "python"), 1):
        exec(compile(block, f"<docs/training.md, block {number}>", "exec"), names)
    assert names["out"] == tmp_path / "bundle"
    assert "accuracy" in (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")

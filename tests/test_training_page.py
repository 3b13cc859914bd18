"""docs/training.md: its code runs from top to bottom."""

from __future__ import annotations

from pathlib import Path

from tests.code_blocks import blocks

PAGE = Path(__file__).parents[1] / "docs" / "training.md"


def test_the_code_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, block in enumerate(blocks(PAGE, "python"), 1):
        exec(compile(block, f"<docs/training.md, block {number}>", "exec"), names)
    quality = names["kf"].pipeline(None, names["out"]), (tmp_path / "bundle" / "README.md").read_text()
    assert "accuracy" in quality[1]

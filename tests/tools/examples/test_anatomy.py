"""The code of docs/anatomy.md runs, and its pictures are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples import anatomy
from tests.code_blocks import blocks

PAGE = Path(__file__).parents[3] / "docs" / "anatomy.md"
PICTURES = PAGE.parent / "pictures"


def test_every_picture_is_shown_and_small() -> None:
    shown = set(re.findall(r"\]\(pictures/([^)]+)\)", PAGE.read_text(encoding="utf-8")))
    files = {path.name for path in PICTURES.glob("anatomy-*")}
    assert shown == files and max((PICTURES / name).stat().st_size for name in files) < 80_000


@pytest.mark.grid
def test_the_code_runs_and_the_drawings_are_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anatomy.draw(tmp_path)
    for path in PICTURES.glob("anatomy-*"):
        new = tmp_path / path.name
        assert new.exists()
        if "sweep" not in path.name and path.suffix == ".svg" and "positions" not in path.name:  # fonts may differ
            assert new.read_text() == path.read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in enumerate(blocks(PAGE, "python")):
        exec(compile(block, f"<docs/anatomy.md, block {number}>", "exec"), names)  # noqa: S102
    assert {"t5.svg", "masks.png", "positions.svg", "temperatures.png", "sweep.png"} <= {
        path.name for path in tmp_path.iterdir()
    }

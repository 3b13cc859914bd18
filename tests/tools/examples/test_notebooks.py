"""The notebooks about tasks, small models and what happens inside run from top to bottom."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.extras import need

nbformat = need("nbformat")
need("nbclient")
from examples.quickstart import printed

FOLDER = Path(__file__).parents[3] / "examples" / "notebooks"
# Those about attention, classifiers, decoding and the family tree have a test that also compares what they print.
NOTEBOOKS = sorted(path for path in FOLDER.glob("*.ipynb") if not re.match(r"0[1-4]_", path.name))
_PATH = re.compile(r"/(home|root|tmp|usr|work|Users)/")
_LIMIT = 60_000
"""Bytes of a notebook with its outputs."""


def run(source: str, name: str, names: dict[str, Any]) -> None:
    """Runs a cell as a notebook does: the last expression is shown, if it has a form for notebooks."""
    tree = ast.parse(source)
    shown = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)  # noqa: S102
    if shown is not None:
        value = eval(compile(ast.Expression(shown.value), name, "eval"), names)
        if hasattr(value, "_repr_html_"):
            assert "<" in value._repr_html_()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_can_be_read_on_its_own(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = notebook.cells
    assert len(path.read_bytes()) < _LIMIT and not _PATH.search("".join(map(printed, cells)))
    assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# ")
    assert [cell.id for cell in cells] == [f"cell-{index:02}" for index in range(len(cells))]
    lines = [line for cell in cells if cell.cell_type == "code" for line in cell.source.splitlines()]
    assert any(line.startswith("NAME = ") for line in lines), "The model of a notebook is one name."
    assert not any(output.output_type == "error" for cell in cells for output in cell.get("outputs", ()))


@pytest.mark.grid
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells run in this process, where Keras is imported already; what they claim stands in their assertions."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type == "code":
            run(cell.source, f"<{path.name}, cell {number}>", names)

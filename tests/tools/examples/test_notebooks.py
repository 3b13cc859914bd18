"""The notebooks run from top to bottom; those that teach print what the repository has."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.extras import need
from tests.tools.examples.stand_in import stand_in

nbformat = need("nbformat")
need("nbclient")
from examples.quickstart import printed

FOLDER = Path(__file__).parents[3] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PRINTING = re.compile("0[124]_")
"""Names of the notebooks about attention, classifiers and the family tree, whose outputs are compared."""
_NUMBER = re.compile(r"-?[\d.,]*\d")
_PATH = re.compile(r"/(home|root|tmp|usr|work|Users)/")
_LIMIT = 80_000
"""Bytes of a notebook with its outputs."""


def cells(path: Path) -> list[Any]:
    return list(nbformat.read(path, as_version=4).cells)


def words(text: str) -> str:
    """Returns a text without numbers, whose last digits differ from one processor to the next, and without spaces."""
    return "".join(_NUMBER.sub("#", text).split())


def numbers(text: str) -> list[float]:
    """Returns the numbers of a text."""
    return [float(found.replace(",", "")) for found in _NUMBER.findall(text) if found.count(".") < 2]


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
def test_a_notebook_is_small_and_can_be_read_on_its_own(path: Path) -> None:
    nbformat.validate(nbformat.read(path, as_version=4))
    found = cells(path)
    assert len(path.read_bytes()) < _LIMIT and not _PATH.search("".join(map(printed, found)))
    assert found[0].cell_type == "markdown" and found[0].source.startswith("# ")
    assert not any(output.output_type == "error" for cell in found for output in cell.get("outputs", ()))


@pytest.mark.grid
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells run in this process, where Keras is imported already; a kernel of each notebook would take longer."""
    monkeypatch.chdir(tmp_path)
    stand_in(tmp_path)
    names: dict[str, Any] = {}
    hint = f"run: python examples/quickstart.py {path.relative_to(FOLDER.parents[1])}"
    for number, cell in enumerate(cells(path)):
        if cell.cell_type != "code":
            continue
        with contextlib.redirect_stdout(io.StringIO()) as output:
            run(cell.source, f"<{path.name}, cell {number}>", names)
        if not PRINTING.match(path.name):
            continue  # what it claims stands in its assertions
        kept = "".join(each.get("text", "") for each in cell.outputs if each.output_type == "stream")
        assert words(output.getvalue()) == words(kept), f"{cell.source}\n{hint}"
        # Last digits differ between processors; an error that is printed has no digit that is the same.
        expected, tolerance = numbers(kept), 0.02 if "e-0" not in kept else np.inf
        np.testing.assert_allclose(numbers(output.getvalue()), expected, tolerance, 0.02, err_msg=hint)

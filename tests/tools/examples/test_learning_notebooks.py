"""The notebooks about attention, classifiers, decoding and the family tree run, and print what the repository has."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.extras import need

nbformat = need("nbformat")
need("nbclient")
from examples.quickstart import printed

FOLDER = Path(__file__).parents[3] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("0[1-4]_*.ipynb"))
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_its_outputs(path: Path) -> None:
    found = cells(path)
    assert len(path.read_bytes()) < _LIMIT and not _PATH.search("".join(map(printed, found)))
    assert found[0].cell_type == "markdown" and found[0].source.startswith("# ")
    assert all(cell.outputs for cell in found if cell.cell_type == "code" and "print(" in cell.source)
    shared = {line for cell in found if cell.cell_type == "code" for line in cell.source.splitlines()}
    assert any(line.startswith("NAME = ") for line in shared)


@pytest.mark.grid
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells run in this process, where Keras is imported already; a kernel of each notebook would take longer."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, cell in enumerate(cells(path)):
        if cell.cell_type != "code":
            continue
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(cell.source, f"<{path.name}, cell {number}>", "exec"), names)  # noqa: S102
        kept = "".join(each.get("text", "") for each in cell.outputs if each.output_type == "stream")
        hint = f"run: python examples/quickstart.py {path.relative_to(FOLDER.parents[1])}"
        assert words(output.getvalue()) == words(kept), f"{cell.source}\n{hint}"
        # Last digits differ between processors; an error that is printed has no digit that is the same.
        expected, tolerance = numbers(kept), 0.02 if "e-0" not in kept else np.inf
        np.testing.assert_allclose(numbers(output.getvalue()), expected, tolerance, 0.02, err_msg=hint)

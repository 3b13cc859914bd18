"""Workers receive long files first, and parts of the longest."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tests.schedule import SECONDS, seconds, units

FOLDER = Path(__file__).parent


def test_long_files_exist():
    assert not [file for file in SECONDS if not (FOLDER / file).exists()]


def test_the_longest_files_are_divided(monkeypatch):
    monkeypatch.setitem(SECONDS, "long.py", 1000)
    monkeypatch.setitem(SECONDS, "middle.py", 290)
    tests = [f"tests/{file}.py::test_it[{index}]" for file in ("short", "long", "middle") for index in range(10)]
    assigned = units(tests)
    assert list(assigned) == tests
    assert [unit for unit, _ in groupby(assigned.values())] == [
        "tests/short.py",
        *(f"tests/long.py#{index}" for index in range(7)),
        "tests/middle.py",
    ]
    assert seconds("tests/short.py") < seconds("tests/long.py#6") < seconds("tests/middle.py") == 290

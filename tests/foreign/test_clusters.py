"""Bundles on Apache Beam and Apache Spark, each in its own environment: their requirements conflict with ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kerasformer.tools.integrations.columns import ColumnModel
from tests.foreign.environments import run
from tests.tools.integrations import models

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path):
    """A folder with the package as it is installed: links to its parts."""
    folder = tmp_path / "package" / "kerasformer"
    folder.mkdir(parents=True)
    for part in [*(ROOT / "kerasformer").iterdir(), ROOT / "zoo", ROOT / "export"]:
        (folder / part.name).symlink_to(part)
    return str(folder.parent)


def expected(rows):
    columns = ColumnModel(models.classifier())({name: [row[name] for row in rows] for name in ("id", "text")})
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def check(rows, answered):
    for row, right in zip(sorted(answered, key=lambda row: row["id"]), expected(rows), strict=True):
        assert row.pop("result_score") == pytest.approx(right.pop("result_score"), abs=1e-5) and row == right


@pytest.fixture
def rows():
    return [*models.rows(11), {"id": 11, "text": None}]


def test_beam(rows, package, tmp_path):
    request = {"package": package, "rows": rows, "bundle": str(models.classifier()), "output": str(tmp_path / "rows")}
    assert run("beam", "beam_rows.py", request) == {"imported": []}
    check(rows, map(json.loads, (tmp_path / "rows").read_text().splitlines()))


def test_spark(rows, package):
    request = {"package": package, "rows": rows, "bundle": str(models.classifier())}
    check(rows, run("spark", "spark_rows.py", request)["rows"])

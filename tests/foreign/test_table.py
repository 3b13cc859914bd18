"""The tables of tested runtimes match the acceptance tests: there is no tick without a test."""

from __future__ import annotations

import json
import types
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from kerasformer.bundle import tested
from kerasformer.cli import app
from kerasformer.export.targets import TARGETS
from tests.core.export import test_export
from tests.core.export.text_models import ROWS
from tests.core.zoo.cases import OPERATORS
from tests.foreign import table, ticks
from tests.foreign.cases import Case, cases, kind, tiny


def test_the_page_and_the_list_are_up_to_date(capsys):
    assert table.main([]) == 0, "run: python -m tests.foreign.table --write"


def test_a_tick_without_a_test_is_detected(monkeypatch):
    collected = ticks.collect({})
    extra = replace(collected[0], bundles={**collected[0].bundles, "translation": {"bert": ["none"]}})
    monkeypatch.setattr(table, "collect", lambda refused: [extra, *collected[1:]])
    assert table.main([]) == 2


def module(**tests):
    """Creates a module whose tests have these marks."""
    created = types.ModuleType("acceptance")
    for name, marks in tests.items():

        def test(case): ...

        for mark in marks:
            test = mark(test)
        setattr(created, f"test_{name}", test)
    return created


FOREIGN, BERT = pytest.mark.foreign("genai"), cases(tiny("bert", "fill-mask"), Case("sentiment-bert"))
TWO = cases(*(tiny(name, "fill-mask") for name in ("bert", "mpnet")))


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ((FOREIGN, BERT), [("genai", "bert", True)]),
        ((FOREIGN, TWO), [("genai", "bert", True), ("genai", "mpnet", False)]),
        ((FOREIGN, BERT, pytest.mark.release), [("genai", "bert", False)]),
        ((FOREIGN, BERT, pytest.mark.slow), [("genai", "bert", True)]),
        ((FOREIGN, BERT, pytest.mark.skip), []),
        ((FOREIGN, BERT, pytest.mark.xfail), []),
        ((FOREIGN,), []),
        ((BERT,), []),
    ],
)
def test_only_tests_of_tiny_models_that_run_count(marks, expected, monkeypatch):
    claims = ticks.claims(module(one=marks))
    assert [(runtime, case.model_type, in_ci) for runtime, case, in_ci in claims] == expected


def test_cells_show_what_ci_runs():
    assert table._cell([], []) == ""
    assert table._cell(["int8", "none"], ["none"]) == "✓ (int8)"
    assert table._cell(["int8", "none"], ["int8", "none"]) == "✓ int8"
    assert table._cell(["none"], []) == "(✓)"


PIPELINES = ("onnxruntime", "transformers.js", "optimum")
"""Runtimes with code for each task; that of ONNX Runtime is the program of the tests, which also runs in LiteRT."""


def test_ci_runs_one_model_of_each_kind_in_each_runtime():
    """As docs/runtimes.md says; other layers and most recipes run before a release."""
    for name, row in tested.runtimes().items():
        assert {kind(task) for task in row.in_ci} == {kind(task) for task in row.bundles}, name
        assert row.in_ci.keys() == row.bundles.keys() or name not in PIPELINES, name
        assert [models for models in row.in_ci.values() if len(models) > 1] == [], name


def test_ci_exports_every_architecture_with_operators_of_its_own():
    """In all formats and recipes, in turn; in all combinations before a release."""
    in_ci = {
        (*each.values, *recipe)
        for rows, recipe in ((test_export.FLOAT32, ["none"]), (test_export.IN_EIGHT_OR_FOUR_BITS, []))
        for each in rows
        if not any(mark.name == "release" for mark in each.marks)
    }
    architectures = {row.model_type for row in ROWS.values()} - OPERATORS.keys()
    assert {ROWS[name].model_type for name, *_ in in_ci} >= architectures
    combinations = {each[1:] for each in in_ci}
    assert combinations >= {(format, recipe) for format in ("onnx", "tflite") for recipe in ("none", "int8")}


def test_every_runtime_is_listed_with_its_tested_version():
    listed = tested.runtimes()
    assert list(listed) == [*ticks.OWN, *TARGETS]
    for runtime in listed.values():
        assert any(character.isdigit() for character in runtime.version), runtime
    assert not listed["mediapipe"].covers("translation", "t5")


def test_the_command_lists_every_target_and_runtime():
    shown = CliRunner().invoke(app, ["export", "--list-targets", "--json"])
    assert shown.exit_code == 0
    rows = json.loads(shown.stdout)
    assert [row["name"] for row in rows] == list(tested.runtimes())
    plain = CliRunner().invoke(app, ["export", "--list-targets"])
    assert plain.exit_code == 0 and [name for name in TARGETS if name not in plain.stdout] == []


def test_without_the_list_a_source_is_required():
    result = CliRunner().invoke(app, ["export"])
    assert result.exit_code == 2 and "SOURCE" in result.output.upper()

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
from tests.foreign import table, ticks
from tests.foreign.cases import cases, kind, tiny


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


FOREIGN, BERT = pytest.mark.foreign("genai"), cases(tiny("bert", "fill-mask"))
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


PIPELINES = ("transformers.js", "optimum")
"""Runtimes with code for each task."""


def test_ci_runs_one_model_of_each_kind_in_each_runtime():
    """As docs/runtimes.md says; other layers and most recipes run before a release."""
    for name, row in tested.runtimes().items():
        if not row.is_target:
            continue  # test_export.py has all architectures in turn
        assert {kind(task) for task in row.in_ci} == {kind(task) for task in row.bundles}, name
        assert row.in_ci.keys() == row.bundles.keys() or name not in PIPELINES, name
        assert [models for models in row.in_ci.values() if len(models) > 1] == [], name


def test_the_command_lists_every_target_and_runtime():
    shown = CliRunner().invoke(app, ["export", "--list-targets", "--json"])
    assert shown.exit_code == 0
    rows = json.loads(shown.stdout)
    assert [row["name"] for row in rows] == list(tested.runtimes())
    plain = CliRunner().invoke(app, ["export", "--list-targets"])
    assert plain.exit_code == 0 and [name for name in TARGETS if name not in plain.stdout] == []

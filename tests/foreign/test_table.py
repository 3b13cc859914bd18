"""What is said of runtimes is what tests claim: no tick without a test that runs."""

from __future__ import annotations

import json
import types
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from kerasformer import tested
from kerasformer.cli import app
from kerasformer.cli import export_command as cli_export
from kerasformer.export.targets import TARGETS
from tests.foreign import table, ticks
from tests.foreign.cases import Case, cases, tiny


def test_the_page_and_the_list_are_what_the_tests_claim(capsys):
    assert table.main([]) == 0, "run: python -m tests.foreign.table --write"


def test_a_tick_that_no_test_claims_is_noticed(monkeypatch):
    claimed = ticks.collect()
    extra = replace(claimed[0], bundles={**claimed[0].bundles, "translation": {"bert": ["none"]}})
    monkeypatch.setattr(table, "collect", lambda: [extra, *claimed[1:]])
    assert table.main([]) == 2


def module(**tests):
    """A module with these marks on its tests."""
    made = types.ModuleType("acceptance")
    for name, marks in tests.items():

        def test(case): ...

        for mark in marks:
            test = mark(test)
        setattr(made, f"test_{name}", test)
    return made


FOREIGN, BERT = pytest.mark.foreign("genai"), cases(tiny("bert", "fill-mask"), Case("sentiment-bert"))


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ((FOREIGN, BERT), [("genai", "bert", "fill-mask")]),
        ((FOREIGN, BERT, pytest.mark.slow), [("genai", "bert", "fill-mask")]),
        ((FOREIGN, BERT, pytest.mark.skip), []),
        ((FOREIGN, BERT, pytest.mark.xfail), []),
        ((FOREIGN,), []),
        ((BERT,), []),
    ],
)
def test_claims_are_of_tests_that_run_on_tiny_models(marks, expected, monkeypatch):
    found = ticks.claims(module(one=marks))
    assert [(runtime, case.model_type, case.task) for runtime, case in found] == expected


def test_every_runtime_is_listed_with_the_version_that_was_tested():
    listed = tested.runtimes()
    assert list(listed) == [*ticks.OWN, *TARGETS]
    for runtime in listed.values():
        assert any(character.isdigit() for character in runtime.version), runtime
    assert not listed["mediapipe"].covers("translation", "t5")


def test_the_command_names_every_target_and_lists_what_was_tested():
    assert [name for name in TARGETS if name not in cli_export.TARGETS] == []
    shown = CliRunner().invoke(app, ["export", "--list-targets", "--json"])
    assert shown.exit_code == 0
    rows = json.loads(shown.stdout)
    assert [row["name"] for row in rows] == list(tested.runtimes())
    plain = CliRunner().invoke(app, ["export", "--list-targets"])
    assert plain.exit_code == 0 and [name for name in TARGETS if name not in plain.stdout] == []


def test_without_the_list_a_source_is_asked_for():
    asked = CliRunner().invoke(app, ["export"])
    assert asked.exit_code == 2 and "SOURCE" in asked.output.upper()

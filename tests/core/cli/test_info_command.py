"""`kerasformer info` of several models: a row for each, with what its configuration and its files tell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kerasformer.cli import app
from kerasformer.tools.bench import own_models
from kerasformer.tools.interpretability.costs import costs
from tests.core.export.text_models import shared_bundle

pytestmark = pytest.mark.grid

CLASSIFIER, DECODER = "bert-text-classification", "gpt2-text-generation"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["info", *map(str, arguments)])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "gpt2-xl").mkdir()
    path = tmp_path / "gpt2-xl" / "config.json"
    path.write_text('{"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "dtype": "float16"}')
    return path


def test_configurations_and_bundles_are_counted(config: Path) -> None:
    bundle = shared_bundle(DECODER, "onnx")
    done = run(config, config.parent, bundle, "--json")
    assert done.exit_code == 0, done.output
    alone, folder, exported = json.loads(done.stdout)
    assert alone["parameters"] == 1_557_611_200 and alone["bytes"] == 2 * 1_557_611_200
    assert alone["cache_bytes_per_token"] == 4 * 2 * 48 * 1600
    assert {**folder, "name": ""} == {**alone, "name": ""}
    found = costs(bundle)
    assert exported["bytes"] == round(1e6 * own_models.size_mb(bundle))
    assert (exported["parameters"], exported["macs_per_token"]) == (found.parameters, found.macs)
    assert exported["cache_bytes_per_token"] == found.cache_bytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("CONFIG", "CONFIG"), "Each source may be given only once"),
        (("CONFIG", "CONFIG", "--anatomy"), "--anatomy and --out need one source"),
        (("CONFIG", "nowhere"), "no model of that name"),
        (("CONFIG", "--clear-cache"), "--clear-cache clears the cache of all models"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], message: str, config: Path) -> None:
    done = run(*(config if argument == "CONFIG" else argument for argument in arguments))
    assert done.exit_code == 1
    assert message in done.stderr and done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


def test_a_bundle_without_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are measured; what Keras counts is unknown."""
    bundles = [shared_bundle(name, "onnx") for name in (CLASSIFIER, DECODER)]
    monkeypatch.setitem(sys.modules, "keras", None)
    rows = json.loads(run(*bundles, "--json").stdout)
    assert [row["parameters"] for row in rows] == [None, None]
    assert [row["bytes"] for row in rows] == [round(1e6 * own_models.size_mb(bundle)) for bundle in bundles]

"""`kerasformer compare`: a row for each model, with what its configuration, its files and its answers tell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kerasformer as kf
from kerasformer.bench import own_models
from kerasformer.cli import app
from kerasformer.models.costs import costs
from tests.core.export.text_models import shared_bundle

pytestmark = pytest.mark.grid

CLASSIFIER, DECODER = "bert-text-classification", "gpt2-text-generation"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "gpt2-xl").mkdir()
    path = tmp_path / "gpt2-xl" / "config.json"
    path.write_text('{"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "dtype": "float16"}')
    return path


def test_configurations_and_bundles_are_counted(config: Path) -> None:
    bundle = shared_bundle(DECODER, "onnx")
    done = run("compare", config, config.parent, bundle, "--no-speed", "--json")
    assert done.exit_code == 0, done.output
    alone, folder, exported = json.loads(done.stdout)
    assert alone["parameters"] == 1_557_611_200 and alone["bytes"] == 2 * 1_557_611_200
    assert alone["cache_bytes_per_token"] == 4 * 2 * 48 * 1600 and alone["tokens_per_s"] is None
    assert {**folder, "name": ""} == {**alone, "name": ""}
    found = costs(bundle)
    assert exported["bytes"] == round(1e6 * own_models.size_mb(bundle))
    assert (exported["parameters"], exported["macs_per_token"]) == (found.parameters, found.macs)
    assert exported["cache_bytes_per_token"] == found.cache_bytes


def test_speed_quality_and_a_picture(config: Path, tmp_path: Path) -> None:
    bundle = shared_bundle(CLASSIFIER, "onnx")
    (tmp_path / "dev.tsv").write_text("text\tlabel\nIt rains.\t1\nShe left.\t2\n")
    picture = tmp_path / "compared.png"
    done = run("compare", bundle, config, "--data", tmp_path / "dev.tsv", "--picture", picture)
    assert done.exit_code == 0, done.output
    title, heads, *rows, note = [line.split("\t") for line in done.stdout.splitlines()]
    assert title == ["Comparison"] and note[0].startswith("Speed:")
    assert heads == [
        "model", "engine", "parameters (M)", "weights (MB)", "multiply-adds (M/token)", "cache (KB/token)",
        "speed (tokens/s)", "memory (MB)", "accuracy", "f1", "matthews",
    ]  # fmt: skip
    measured, alone = rows
    assert measured[1] == "onnx" and float(measured[6].replace(",", "")) > 0 and float(measured[7]) > 0
    assert measured[8:] == [f"{value:.2%}" for value in kf.evaluate(bundle, tmp_path / "dev.tsv").values()]
    assert alone[0] == "gpt2-xl" and alone[2] == "1,557.61" and alone[6:] == ["–"] * 5
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("CONFIG", "CONFIG"), "Each source may be given only once"),
        (("CONFIG", "--data", "DATA"), "--data needs a model with weights"),
        (("CONFIG", "--picture", "compared.gif"), "must end in .png or .svg"),
        (("CLASSIFIER", "DECODER", "--no-speed", "--data", "DATA"), "Models of one task were expected"),
        (("nowhere", "--no-speed"), "no model of that name"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], message: str, config: Path, tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("text\tlabel\nIt rains.\t1\n")
    paths = {"CONFIG": config, "DATA": tmp_path / "dev.tsv"}
    paths |= {"CLASSIFIER": shared_bundle(CLASSIFIER, "onnx"), "DECODER": shared_bundle(DECODER, "onnx")}
    done = run("compare", *(paths.get(argument, argument) for argument in arguments))
    assert done.exit_code == 1
    assert message in done.stderr and done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


def test_a_bundle_without_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are measured; what Keras counts is unknown."""
    bundle = shared_bundle(CLASSIFIER, "onnx")
    monkeypatch.setitem(sys.modules, "keras", None)
    done = run("compare", bundle, "--no-speed", "--json")
    (row,) = json.loads(done.stdout)
    assert row["parameters"] is None and row["bytes"] == round(1e6 * own_models.size_mb(bundle))

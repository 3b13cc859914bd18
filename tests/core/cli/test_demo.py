"""The demo on the shipped presets."""

from __future__ import annotations

import json

import pytest

from kerasformer.cli import demo_command
from tests.core.cli.test_cli import main


@pytest.mark.grid
def test_the_demo_compares_three_engines_on_presets(tmp_path, capsys, monkeypatch):
    """On the two presets of which one classifies and one generates."""
    monkeypatch.setattr(demo_command, "WORKS", demo_command.WORKS[:2])
    folder = tmp_path / "bundles"
    assert main("demo", "--folder", str(folder), "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["preset"] for row in rows] == [work.preset for work in demo_command.WORKS for _ in range(3)]
    assert {row["engine"] for row in rows} == {"Keras f32", "LiteRT int8", "ONNX int8"}
    assert all(row["seconds"] > 0 and row["megabytes"] > 0 for row in rows)
    assert all(row["agreement"] == 1.0 for row in rows if row["preset"] == "sentiment-bert" and row["agreement"])
    assert {row["preset"] for row in rows if row["generated"]} == {"story-gpt2"}
    assert {path.name for path in folder.iterdir()} == {
        f"{work.preset}-{format}" for work in demo_command.WORKS for format in ("tflite", "onnx")
    }

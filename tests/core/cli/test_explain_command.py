"""`kerasformer explain` writes a page or a picture, of presets and of bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kerasformer.cli import app
from kerasformer.errors import BundleError, InputError
from tests.core.export.text_models import shared_bundle
from tests.tools.interpretability.bundles import attention_bundle

pytestmark = pytest.mark.grid


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_page_of_a_preset(tmp_path: Path) -> None:
    done = run("explain", "sentiment-bert", "time flies", "fruit flies", "--out", tmp_path / "view.html")
    assert done.exit_code == 0, done.output
    assert "encoder: 4 layers of 12 heads" in done.stdout.replace("\n", " ")
    page = (tmp_path / "view.html").read_text(encoding="utf-8")
    assert page.index("raises the score") < page.index('id="view"')  # what the answer is due to comes first
    assert (
        "“time flies” · “fruit flies”" in page and '"views":["heads","model","neurons","rollout","statistics"]' in page
    )


def test_a_picture_of_a_bundle(tmp_path: Path) -> None:
    bundle = attention_bundle("bert-text-classification", "tflite")
    done = run(
        "explain", bundle, "the cat", "--view", "heads", "--layer", 1, "--head", 2, "--out", tmp_path / "view.png"
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "view.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_wrong_is_named_before_a_model_is_loaded(tmp_path: Path) -> None:
    done = run("explain", "sentiment-bert", "time", "--out", tmp_path / "view.pdf")
    assert isinstance(done.exception, InputError) or "must end in .html" in done.output
    done = run(
        "explain", shared_bundle("bert-text-classification", "tflite"), "the cat", "--out", tmp_path / "view.html"
    )
    assert isinstance(done.exception, BundleError) or "--outputs attentions" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("--view", "alignment"), ("--layer", 9), ("--head", 12), ("--kind", "cross")])
def test_what_the_model_does_not_have_is_named(arguments: tuple[object, ...], tmp_path: Path) -> None:
    done = run("explain", "sentiment-bert", "time", "--out", tmp_path / "view.html", *arguments)
    assert done.exit_code != 0 and (isinstance(done.exception, InputError) or "Received" in done.output)
    assert not list(tmp_path.iterdir())

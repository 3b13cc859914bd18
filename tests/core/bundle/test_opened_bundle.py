"""The `Bundle` class: summary, use as a path, and opening."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
import shutil
from pathlib import Path

import pytest
import rich.console

import kerasformer as kf
from kerasformer import bundle, cli
from kerasformer.bundle import Bundle
from kerasformer.errors import BundleError
from kerasformer.files import sources
from tests.core.export.text_models import shared_bundle


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Bundle:
    folder = tmp_path_factory.mktemp("opened") / "out"
    return Bundle(shutil.copytree(shared_bundle("bert-text-classification", "onnx"), folder))


def test_an_exported_bundle_has_the_manifest_and_files(exported):
    assert exported.manifest == bundle.read(exported.path)
    assert (exported.task, exported.manifest.format) == ("text-classification", "onnx")
    assert exported.fidelity["agreement"] == 1.0
    assert exported.files == {name: (exported.path / name).stat().st_size for name in exported.manifest.files}
    assert exported.model_bytes == exported.files["onnx/model.onnx"]


def test_a_bundle_is_accepted_as_a_path(exported, tmp_path):
    path = exported.path
    assert isinstance(path, Path) and path.is_absolute()
    assert exported == path and path == exported and exported == Bundle(str(path)) and exported != path.parent
    assert {exported: 1}[Bundle(path)] == {exported: 1}[path] == 1
    assert str(exported) == f"{exported}" == str(path) and Path(exported) == path
    assert exported / "README.md" == path / "README.md" and path.parent / exported == path
    assert exported.exists() and exported.name == "out" and sorted(exported.iterdir()) == sorted(path.iterdir())
    assert shutil.copytree(exported, tmp_path / "copy") == tmp_path / "copy"
    assert sources.resolve(exported) == path and bundle.read(exported) == exported.manifest
    assert copy.deepcopy(exported) == pickle.loads(pickle.dumps(exported)) == exported
    with pytest.raises(AttributeError):
        exported.no_such_thing  # noqa: B018
    with pytest.raises(TypeError):
        exported / 3


def test_the_pipeline_of_a_bundle(exported):
    text = "What a waste!"
    expected = kf.pipeline(exported.path, "text-classification")(text)
    for pipe in (exported.pipeline(), exported.pipeline("text-classification", num_threads=1), kf.pipeline(exported)):
        assert pipe.engine == "onnx" and pipe(text) == expected


def test_summary_of_a_bundle(exported, capsys):
    size = exported.model_bytes / 1e6
    assert repr(exported) == (
        f"Bundle('{exported.path}': BertTextClassification for text-classification, onnx none, {size:.1f} MB, "
        "agreement 100.00% of 32 answers)"
    )
    console = rich.console.Console(file=io.StringIO(), width=160)
    console.print(exported)
    shown = console.file.getvalue()
    for row in exported.rows():
        assert all(line in shown for cell in row for line in cell.split("\n") if len(line) < 80)
    assert "│ format " in shown and "agreement 100.00% of 32 answers; " in shown and str(exported.path) in shown
    with pytest.raises(SystemExit):
        cli.app(["info", str(exported)])
    printed = capsys.readouterr().out
    assert "recipe\tnone\n" in printed and bundle.figure_line(exported.fidelity) in printed


@pytest.mark.parametrize(
    ("changes", "line", "short"),
    [
        (
            {"generated": 0.9446},
            "agreement 99.63% of 271 next tokens of given texts; agreement of freely generated tokens 94.46%; largest",
            ", agreement 99.63% of 271 next tokens of given texts)",
        ),
        (
            {"near_ties": 30, "decided_agreement": 1.0},
            "agreement 99.63% of 271 answers; near ties 30 of 271, which rounding alone may change; "
            "agreement without near ties 100.00%; largest",
            ", agreement 99.63% of 271 answers)",
        ),
    ],
    ids=["generating", "near-ties"],
)
def test_an_agreement_names_what_agrees(exported, changes, line, short):
    figures = {"agreement": 0.9963, "answers": 271, "max_error": 0.011, **changes}
    assert line in bundle.figure_line(figures)
    shown = copy.copy(exported)
    object.__setattr__(shown, "manifest", dataclasses.replace(exported.manifest, fidelity=figures))
    assert short in repr(shown)


def test_a_folder_that_is_not_a_bundle_raises(tmp_path, exported):
    with pytest.raises(BundleError, match="A bundle folder was expected"):
        Bundle(tmp_path)
    folder = shutil.copytree(exported, tmp_path / "out")
    (folder / "README.md").unlink()
    with pytest.raises(BundleError, match=r"README\.md is missing"):
        Bundle(folder)

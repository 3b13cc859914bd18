"""The `Bundle` class: summary, use as a path, and opening."""

from __future__ import annotations

import copy
import pickle
import shutil
from pathlib import Path

import pytest

from kerasformer import bundle
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


def test_a_folder_that_is_not_a_bundle_raises(tmp_path, exported):
    with pytest.raises(BundleError, match="A bundle folder was expected"):
        Bundle(tmp_path)
    folder = shutil.copytree(exported, tmp_path / "out")
    (folder / "README.md").unlink()
    with pytest.raises(BundleError, match=r"README\.md is missing"):
        Bundle(folder)

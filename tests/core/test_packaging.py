"""The wheel contains the whole tree and runs a bundle without TensorFlow and Keras."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import kerasformer as kf
from tests.extras import need

ROOT = Path(__file__).parents[2]
MAPPING = {"kerasformer": "kerasformer", "zoo": "kerasformer/zoo", "export": "kerasformer/export"}
TEXT = "A warm and funny film, and one to see twice."

RUN_BUNDLE = """
import importlib.util, json, sys
present = [name for name in ("tensorflow", "keras", "torch", "transformers") if importlib.util.find_spec(name)]
if present:
    sys.exit(f"this environment must not hold {present}")
import kerasformer as kf
print(json.dumps(kf.pipeline(sys.argv[1], "text-classification")(sys.argv[2])))
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from the source distribution in a copy of the tree without files of earlier builds."""
    need("build")
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for folder in MAPPING:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tree / "dist"), str(tree), cwd=tree)
    return next((tree / "dist").glob("*.whl"))


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> Path:
    """An exported bundle of the shipped classifier."""
    folder = tmp_path_factory.mktemp("export") / "bundle"
    kf.export.export("sentiment-bert", folder, format="tflite", quantize="int8")
    return folder


@pytest.mark.grid
def test_the_wheel_contains_every_file_of_the_tree(wheel):
    root = wheel.parents[1]
    tree = {
        f"{package}/{path.relative_to(root / folder).as_posix()}"
        for folder, package in MAPPING.items()
        for path in (root / folder).rglob("*")
        if path.is_file()
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == tree
    assert any(name.startswith("kerasformer/zoo/presets/") for name in packed)


@pytest.mark.grid
def test_the_metadata_names_the_licence_the_command_and_the_extras(wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = {name.split(".dist-info/")[1]: name for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(files["METADATA"]).decode()
        entry_points = archive.read(files["entry_points.txt"]).decode()
    assert "License-Expression: Apache-2.0" in metadata and "licenses/LICENSE" in files
    assert f"\nVersion: {kf.__version__}\n" in metadata
    assert "kerasformer = kerasformer.cli:main" in entry_points
    for extra in ("tensorflow", "jax", "litert", "onnx", "export", "keras-hub", "train", "all", "test", "test-tools"):
        assert f"Provides-Extra: {extra}\n" in metadata


@pytest.mark.grid
@pytest.mark.slow
def test_a_bundle_runs_where_only_the_litert_extra_is_installed(wheel, bundle, tmp_path):
    python = empty_environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[litert]", cwd=tmp_path)
    received = json.loads(run(python, "-I", "-c", RUN_BUNDLE, str(bundle), TEXT, cwd=tmp_path))
    expected = kf.pipeline(bundle, "text-classification")(TEXT)
    assert [row["label"] for row in received] == [row["label"] for row in expected]
    assert [row["score"] for row in received] == pytest.approx([row["score"] for row in expected], abs=1e-6)
    listed = run(str(Path(python).with_name("kerasformer")), "run", str(bundle), TEXT, cwd=tmp_path)
    assert expected[0]["label"] in listed


def empty_environment(folder: Path) -> str:
    venv.create(folder, with_pip=True, system_site_packages=False)
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    return str(folder / scripts / "python")


def run(*command: str, cwd: Path) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout

"""The page's library as an npm package: packed, installed into a folder, and imported in Node."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kerasformer as kf
from kerasformer.export.card import in_apps
from kerasformer.tools.web.site import PAGE
from kerasformer.tools.web.vendor import PINS
from tests.code_blocks import blocks
from tests.core.export.text_models import shared_bundle
from tests.foreign.environments import need
from tests.mobile.cards import shipped

LIBRARY = PAGE / "library"
PROGRAM = """
import * as jinja from "@huggingface/jinja";
import * as tokenizers from "@huggingface/tokenizers";
import { openBundle } from "kerasformer";
import { InputError } from "kerasformer/errors";
import { Tokenizer } from "kerasformer/tokenizer";
import * as ort from "onnxruntime-web/wasm";

const [base, calls] = JSON.parse(process.argv[2]);
const onnxruntime = {
  module: ort,
  loader: import.meta.resolve("onnxruntime-web/ort-wasm-simd-threaded.mjs"),
  wasm: import.meta.resolve("onnxruntime-web/ort-wasm-simd-threaded.wasm"),
};
const bundle = await openBundle(base, { runtimes: { tokenizers, jinja, onnxruntime } });
const answers = [];
for (const [inputs, options] of calls) {
  try {
    answers.push((await bundle.run(inputs, options)).result);
  } catch (error) {
    answers.push([error.name, error instanceof InputError]);
  }
}
bundle.close();
console.log(JSON.stringify([answers, bundle.info.checked, bundle.tokenizer instanceof Tokenizer]));
"""


def manifest() -> dict[str, Any]:
    return json.loads((LIBRARY / "package.json").read_text())


def test_version_licence_and_runtimes_are_those_of_the_python_package() -> None:
    about = manifest()
    assert about["version"] == kf.__version__
    assert (LIBRARY / "LICENSE").read_bytes() == Path("LICENSE").read_bytes()
    assert about["peerDependencies"] == in_apps.NPM
    pinned = json.loads(PINS.read_text())["dependencies"]
    assert about["peerDependencies"].items() <= pinned.items()
    assert pinned.keys() - about["peerDependencies"].keys() == {"@litertjs/wasm-utils"}  # a dependency of LiteRT.js


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the packed library, and links to the runtimes."""
    packages, folder = need("web"), tmp_path_factory.mktemp("project")
    packed = subprocess.run(
        ["npm", "pack", "--json", "--pack-destination", str(folder), str(LIBRARY)],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    (about,) = json.loads(packed.stdout)
    modules = {path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("*.js")}
    assert {each["path"] for each in about["files"]} == {*modules, "LICENSE", "README.md", "package.json"}
    (folder / "package.json").write_text('{"type": "module"}')
    install = ["npm", "install", "--offline", "--no-audit", "--no-fund", "--legacy-peer-deps", about["filename"]]
    subprocess.run(install, cwd=folder, capture_output=True, check=True)
    for path in packages.iterdir():
        if not path.name.startswith("."):
            (folder / "node_modules" / path.name).symlink_to(path)
    return folder


@pytest.mark.foreign("web")
@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("bert-text-classification", [("A fine film.", {"top_k": 2}), ("x", {"top_k": 0})]),
        ("gpt2-text-generation", [("The cat", {"max_new_tokens": 6, "seed": 3}), ("The cat", {"num_beams": 2})]),
    ],
)
def test_the_package_runs_bundles_in_node(name: str, calls: list[Any], project: Path, tmp_path: Path) -> None:
    """With the files that an app ships."""
    folder = shipped(shared_bundle(name, "onnx"), tmp_path)
    (project / "run.js").write_text(PROGRAM)
    command = ["node", "run.js", json.dumps([f"{folder.absolute().as_uri()}/", calls])]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answers, checked, is_tokenizer = json.loads(done.stdout)
    assert checked and is_tokenizer
    pipe = kf.pipeline(shared_bundle(name, "onnx"))
    for (inputs, options), answer in zip(calls, answers, strict=True):
        if options.get("top_k") == 0:
            assert answer == ["InputError", True]
            continue
        for expected, received in zip(pipe(inputs, **options), answer, strict=True):
            assert received == pytest.approx(expected, abs=1e-5)


@pytest.mark.foreign("web")
@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_the_code_of_a_card_runs_in_node(relative: bool, project: Path) -> None:
    """Unchanged, except for the path of the bundle."""
    folder = shared_bundle("bert-text-classification", "onnx").absolute()
    (code,) = blocks(folder / "README.md", "javascript")
    path = os.path.relpath(folder, project) if relative else str(folder)
    assert code.count('"path/to/this/folder"') == 1
    (project / "card.mjs").write_text(code.replace('"path/to/this/folder"', json.dumps(path)))
    done = subprocess.run(["node", "card.mjs"], cwd=project, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (expected,) = kf.pipeline(folder)("Not bad at all!")
    assert f"label: '{expected['label']}'" in done.stdout

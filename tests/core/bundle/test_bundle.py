from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer import bundle
from kerasformer.bundle import Manifest, ModelInfo, Signature, TensorInfo
from kerasformer.errors import BundleError
from kerasformer.files import publishing


def write_bundle(folder: Path, content: bytes = b"graph") -> Manifest:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.tflite").write_bytes(content)
    (folder / "card").mkdir(exist_ok=True)
    (folder / "card" / "README.md").write_text("a card")
    ids = TensorInfo(("batch_size", 16), "int32")
    manifest = Manifest(
        format="tflite",
        info=ModelInfo(
            task="text-classification",
            labels=("no", "yes"),
            eos_token_id=(1, 2),
            generation={"top_p": 0.9, "stop": None},
        ),
        signatures={
            "forward_16": Signature("model.tflite", {"input_ids": ids}, {"logits": TensorInfo((1, 2), "float32")})
        },
        files=bundle.checksums(folder),
        fidelity={"top1": 1.0},
    )
    bundle.write(folder, manifest)
    return manifest


def edit(folder: Path, **changes: object) -> None:
    path = folder / bundle.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def forward(**outputs: Any) -> dict[str, Any]:
    """A change to the signature of a text classifier with these outputs."""
    infos = {name: {"dtype": "float32", **info} for name, info in outputs.items()}
    return {"signatures": {"forward_16": {"file": "model.tflite", "inputs": {}, "outputs": infos}}}


def cache(**changes: Any) -> dict[str, Any]:
    """A change to a signature with one cache."""
    info = {"shape": [1, 2, 8, 4], "dtype": "float32", **changes}
    return {"signatures": {"decode": {"file": "model.tflite", "inputs": {"kv_cache_k_0": info}, "outputs": {}}}}


def content(folder: Path) -> bytes:
    bundle.read(folder)
    return (folder / "model.tflite").read_bytes()


def test_round_trip_of_a_manifest(tmp_path):
    manifest = write_bundle(tmp_path)
    assert bundle.read(tmp_path) == manifest
    assert set(manifest.files) == {"model.tflite", "card/README.md"}
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize(
    ("name", "is_model"),
    [("model.tflite", True), ("model.onnx_data", True), ("variables/variables.index", True), ("README.md", False)],
)
def test_the_digest_of_a_model_depends_on_its_files_with_weights(tmp_path, name, is_model):
    manifest = write_bundle(tmp_path)
    one, other = (dataclasses.replace(manifest, files={**manifest.files, name: digit * 64}) for digit in "01")
    assert (one.model_digest != other.model_digest) == is_model


def test_a_folder_without_manifest_raises(tmp_path):
    with pytest.raises(BundleError, match="kerasformer.json is missing.*A bundle folder was expected"):
        bundle.read(tmp_path)
    (tmp_path / bundle.MANIFEST).write_text("{")
    with pytest.raises(BundleError, match="not valid JSON: line 1"):
        bundle.read(tmp_path)


def test_a_newer_format_version_raises(tmp_path):
    write_bundle(tmp_path)
    edit(tmp_path, format_version=3, something_new=[])
    with pytest.raises(BundleError, match="written by a newer kerasformer: it has format version 3.*up to 2"):
        bundle.read(tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link"])
def test_a_file_outside_the_folder_raises(tmp_path, name):
    folder = tmp_path / "bundle"
    manifest = write_bundle(folder)
    (tmp_path / "secret").write_text("x")
    (folder / "link").symlink_to("../secret")
    edit(folder, files={**manifest.files, name: "0" * 64})
    with pytest.raises(BundleError, match="files: a file"):
        bundle.read(folder)


def test_a_manifest_outside_the_folder_raises(tmp_path):
    write_bundle(tmp_path / "bundle")
    (tmp_path / "bundle" / bundle.MANIFEST).rename(tmp_path / "elsewhere.json")
    (tmp_path / "bundle" / bundle.MANIFEST).symlink_to("../elsewhere.json")
    with pytest.raises(BundleError, match="must be inside its folder. Received: 'kerasformer.json'"):
        bundle.read(tmp_path / "bundle")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "coreml"}, r"format must be .*'tflite', 'onnx'.*Received: format='coreml'"),
        ({"format_version": "1"}, "format_version must be a positive integer. Received: '1'"),
        ({"capacity": True}, "capacity must be an integer.*Received: capacity=True"),
        ({"info": []}, r"info must be an object. Received: info=\[\]"),
        ({"info": {"task": "t", "labels": ["a", 1]}}, r"info.labels\[1\] must be a string. Received: 1"),
        ({"info": {"task": "t", "task_settings": {"s": 1}}}, "info.task_settings.s must be an object.*Received: 1"),
        ({"info": {"task": "t", "colour": 1}}, r"info.colour must be left out: the fields are task, model_type"),
        ({"signatures": {"a": {"file": "x", "inputs": {}}}}, r"signatures.a.outputs must be present"),
        ({"signatures": {"a": {"file": "x", "inputs": {}, "outputs": {}}}}, "signatures.a.file must be one of files"),
        (
            {"signatures": {"a": {"file": "x", "inputs": {"i": {"shape": [1.5], "dtype": "int32"}}, "outputs": {}}}},
            r"signatures.a.inputs.i.shape\[0\] must be an integer or a string. Received: 1.5",
        ),
        ({"info": {"task": "ner", "labels": ["O"]}}, "info.labels must have a name for each of the 2 classes.*1 names"),
        (forward(probabilities={"shape": [1, 3]}), "each of the 3 classes in signatures.forward_16.outputs.probab"),
        (cache(shape=[1, "heads", 8, 4]), r"shape must be that of a cache.*Received: \[1, 'heads', 8, 4\]"),
        (cache(kind="key", layer=None), "layer must be the index of a layer. Received: None"),
        (forward(logits={"shape": [1, "classes"]}), r"logits.shape must be that of scores.*'classes'"),
        (cache(kind="ids", shape=[4]), r"shape must be that of token ids.*Received: \[4\]"),
        (cache(dtype="float33"), "dtype must be one of float32.*Received: 'float33'"),
    ],
)
def test_a_malformed_field_is_named(tmp_path, changes, message):
    write_bundle(tmp_path)
    edit(tmp_path, **changes)
    with pytest.raises(BundleError, match=message):
        bundle.read(tmp_path)


def test_references_round_trip_without_pickle(tmp_path):
    arrays = {"ids": np.arange(6, dtype=np.int32).reshape(2, 3), "texts": np.array(["é", "b"])}
    bundle.write_references(tmp_path, arrays)
    received = bundle.read_references(tmp_path)
    assert received.keys() == arrays.keys()
    assert all(np.array_equal(received[name], arrays[name]) for name in arrays)
    with pytest.raises(BundleError, match=r"arrays of objects in \['bad'\]"):
        bundle.write_references(tmp_path, {"bad": np.array([{}])})


def test_damaged_references_raise(tmp_path):
    with pytest.raises(BundleError, match="cannot be read"):
        bundle.read_references(tmp_path)
    np.savez(tmp_path / "references.npz", pickled=np.array([{}], dtype=object))
    with pytest.raises(BundleError, match="cannot be read.*allow_pickle=False"):
        bundle.read_references(tmp_path)
    path = bundle.write_references(tmp_path, {"ids": np.arange(1000)})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BundleError, match="cannot be read"):
        bundle.read_references(tmp_path)


# Publishing.


def publish_new(destination: Path, content: bytes = b"new") -> None:
    with bundle.staging(destination) as folder:
        write_bundle(folder, content)
        bundle.publish(folder, destination, overwrite=True)


def test_unlisted_files_are_kept_by_an_overwrite(tmp_path):
    out = tmp_path / "out"
    publish_new(out, b"old")
    kept = {"notes.txt": "mine", "card/sketch.svg": "<svg/>", ".git/objects/ab": "blob"}
    for name, text in kept.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    (out / ".git" / "objects" / "ab").chmod(0o444)
    (out / "latest").symlink_to("notes.txt")
    (out / "elsewhere").symlink_to("/tmp")
    for new in (b"new", b"newer"):
        publish_new(out, new)
        assert content(out) == new
        assert {name: (out / name).read_text() for name in kept} == kept
        assert (out / "latest").readlink() == Path("notes.txt")
        assert (out / "elsewhere").is_symlink()


def test_an_unlisted_file_is_not_replaced(tmp_path):
    out = tmp_path / "out"
    publish_new(out, b"old")
    (out / "labels.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"did not write: labels.txt in .*Nothing was changed"):
        with bundle.staging(out) as folder:
            (folder / "labels.txt").write_text("of the export")
            write_bundle(folder)
            bundle.publish(folder, out, overwrite=True)
    assert (content(out), (out / "labels.txt").read_text()) == (b"old", "mine")
    (out / bundle.MANIFEST).write_text("damaged")  # the list of files cannot be read
    publish_new(out)
    assert (content(out), (out / "labels.txt").read_text()) == (b"new", "mine")


def test_only_bundles_and_empty_folders_are_replaced(tmp_path):
    out = tmp_path / "out"
    assert bundle.check_destination(out) == out
    out.mkdir()
    assert bundle.check_destination(out) == out
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match="only a bundle or an empty folder may be replaced"):
        bundle.check_destination(out, overwrite=True)
    with pytest.raises(BundleError, match="only a bundle"):
        publish_new(out)
    assert (out / "thesis.txt").read_text() == "years of work"


KILLED = """
import os, shutil, sys
from pathlib import Path
from kerasformer import bundle

nth, after, calls = int(sys.argv[1]), sys.argv[2] == "after", 0

def dying(real):  # wraps every function by which publish changes the file system
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == nth and not after:
            os._exit(9)
        result = real(*args, **kwargs)
        if calls == nth:
            os._exit(9)
        return result
    return call

Path.rename, shutil.rmtree = dying(Path.rename), dying(shutil.rmtree)
bundle.publish(Path("staged"), "out", overwrite=True)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_at_any_moment_loses_neither_bundle(tmp_path, nth, moment):
    out = tmp_path / "out"
    write_bundle(out, b"old")
    write_bundle(tmp_path / "staged", b"new")
    process = subprocess.run([sys.executable, "-c", KILLED, str(nth), moment], cwd=tmp_path, timeout=60)
    assert process.returncode == 9, "publish made fewer changes than this test kills it at"
    assert content(out) == (b"new" if (nth, moment) in [(2, "after"), (3, "before"), (3, "after")] else b"old")
    assert not list(tmp_path.glob(".out.kerasformer-old-*"))
    publish_new(out, b"third")
    assert content(out) == b"third"


def test_a_partly_removed_old_bundle_is_removed_by_repair(tmp_path):
    write_bundle(tmp_path / "out", b"new")
    (tmp_path / ".out.kerasformer-old-1").mkdir()
    (tmp_path / ".out.kerasformer-old-1" / "model.tflite").write_bytes(b"old")
    assert content(tmp_path / "out") == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_bundle_that_is_being_removed_is_not_restored(tmp_path, monkeypatch):
    """Else a reader would put a part of it between the two renames of the next replacement."""
    write_bundle(tmp_path / "out", b"old")
    with monkeypatch.context() as stopped:
        stopped.setattr(publishing.shutil, "rmtree", lambda *_, **__: None)
        publish_new(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "moved")
    publishing.repair(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]


def test_an_empty_destination_does_not_prevent_repair(tmp_path):
    write_bundle(tmp_path / ".out.kerasformer-old-1", b"older")
    write_bundle(tmp_path / ".out.kerasformer-old-2", b"old")
    (tmp_path / "out").mkdir()
    assert content(tmp_path / "out") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failed_move_restores_the_old_bundle(tmp_path, monkeypatch):
    write_bundle(tmp_path / "out", b"old")
    rename = Path.rename

    def fail(self, target):
        if "kerasformer-new" in self.name:
            raise OSError("disk full")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(BundleError, match="could not be moved into place: disk full"):
        publish_new(tmp_path / "out")
    assert content(tmp_path / "out") == b"old"


def test_an_edited_manifest_raises(tmp_path):
    write_bundle(tmp_path)
    edit(tmp_path, capacity=64)
    with pytest.raises(BundleError, match="kerasformer.json was changed after its export.*Export the model again"):
        bundle.read(tmp_path)


def test_a_manifest_without_checksum_raises(tmp_path):
    write_bundle(tmp_path)
    path = tmp_path / bundle.MANIFEST
    fields = json.loads(path.read_text())
    del fields["manifest_sha256"]
    path.write_text(json.dumps({**fields, "capacity": 64}))
    with pytest.raises(BundleError, match="lacks the manifest_sha256.*Export the model again"):
        bundle.read(tmp_path)


def test_the_order_and_indent_of_a_manifest_do_not_matter(tmp_path):
    manifest = write_bundle(tmp_path)
    path = tmp_path / bundle.MANIFEST
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items()))))
    assert bundle.read(tmp_path) == manifest

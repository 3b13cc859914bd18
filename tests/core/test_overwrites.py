"""A bundle that is replaced while it is opened: the result is always a single export, old or new."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from kerasformer import bundle, pipeline
from kerasformer.bundle import Manifest, ModelInfo, Signature, TensorInfo
from kerasformer.bundle import manifest as manifest_module
from kerasformer.engines import weight_cache
from kerasformer.errors import BundleError
from tests.core.bundle.test_bundle import publish_new
from tests.tiny_text import wordpiece

SECONDS = 3

# Replaces a folder by copies of two bundles in turn, with pauses between the two renames. It waits now and then until
# the bundle was opened, which needs a moment without a replacement.
WRITER = """
import itertools, random, shutil, time
from pathlib import Path
from kerasformer.files import publishing

rename, out, opened = Path.rename, Path("out"), Path("opened")
Path.rename = lambda self, target: (rename(self, target), time.sleep(random.choice([0, 0.001])))[0]
for name in itertools.cycle(["first", "second"]):
    with publishing.staging(out) as folder:
        shutil.copytree(name, folder, dirs_exist_ok=True)
        publishing.publish(folder, out, overwrite=True)
    if random.random() < 0.1:
        opened.unlink(missing_ok=True)
        while not opened.exists():
            time.sleep(0.001)
"""


def write_classifier(folder: Path, best: int) -> None:
    """An ONNX bundle whose model assigns the same class to every text, and whose labels match it."""
    (folder / "onnx").mkdir(parents=True)
    scores = np.zeros((1, 2), np.float32)
    scores[0, best] = 9
    helper = onnx.helper
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "one"], ["batch"]),
        helper.make_node("Concat", ["batch", "one"], ["sizes"], axis=0),
        helper.make_node("Expand", ["scores", "sizes"], ["logits"]),
    ]
    arrays = {"scores": scores, "zero": np.array([0]), "one": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "constant",
        [helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch_size", "length"])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch_size", 2])],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "onnx" / "model.onnx")
    wordpiece().save(folder)
    ids, logits = TensorInfo(("batch_size", "length"), "int64"), TensorInfo(("batch_size", 2), "float32")
    info = ModelInfo("text-classification", labels=("right", "wrong")[:: 1 - 2 * best], input_names=("input_ids",))
    signatures = {"model": Signature("onnx/model.onnx", {"input_ids": ids}, {"logits": logits})}
    bundle.write(folder, Manifest("onnx", info, signatures, profile="ort", files=bundle.checksums(folder)))


def test_an_overwrite_never_mixes_two_exports(tmp_path):
    """Labels, tokenizer and weights are from the same export, or an error says that the bundle is being replaced."""
    for index, name in enumerate(("first", "second")):
        write_classifier(tmp_path / name, index)
    shutil.copytree(tmp_path / "first", tmp_path / "out")
    writer = subprocess.Popen([sys.executable, "-c", WRITER], cwd=tmp_path, stderr=subprocess.PIPE)
    answers, end = [], time.monotonic() + SECONDS
    try:
        while time.monotonic() < end or len(answers) < 10:
            try:
                answers.append(pipeline(tmp_path / "out", "text-classification")("text")[0]["label"])
                (tmp_path / "opened").touch()
            except BundleError:
                pass
        assert writer.poll() is None, writer.stderr.read().decode()
    finally:
        writer.kill()
        writer.communicate()
    assert set(answers) == {"right"}, f"{answers.count('wrong')} of {len(answers)} openings mixed two exports"


def test_a_bundle_that_changes_during_loading_is_reloaded(tmp_path):
    out, seen = tmp_path / "out", []
    publish_new(out, b"old")

    def make(folder: Path, manifest: Manifest) -> bytes:
        seen.append(manifest)
        if len(seen) == 1:
            publish_new(out, b"new")
        return (folder / "model.tflite").read_bytes()

    assert bundle.load(out, make) == b"new"
    assert len(seen) == 2


def test_an_error_during_a_replacement_is_tried_again(tmp_path, monkeypatch):
    out, seen = tmp_path / "out", []
    publish_new(out, b"old")

    def make(folder: Path, manifest: Manifest) -> str:
        seen.append(manifest)
        if len(seen) == 1:
            publish_new(out)
            raise FileNotFoundError("of the old bundle")
        return "opened"

    assert bundle.load(out, make) == "opened"
    shutil.rmtree(out)
    with pytest.raises(BundleError, match="kerasformer.json is missing"):
        bundle.load(out, make)


def test_a_folder_between_the_two_renames_is_not_taken_for_missing(tmp_path, monkeypatch):
    out, aside, read = tmp_path / "out", tmp_path / "aside", manifest_module.read
    publish_new(aside)

    def between_the_renames(folder: Path, check: bool = True) -> Manifest:
        monkeypatch.setattr(manifest_module, "read", read)
        try:
            return read(folder, check=check)
        finally:
            aside.rename(out)

    monkeypatch.setattr(manifest_module, "read", between_the_renames)
    assert bundle.load(out, lambda folder, manifest: "opened") == "opened"


def test_a_bundle_that_keeps_changing_raises(tmp_path):
    publish_new(tmp_path / "out")
    with pytest.raises(BundleError, match="replaced while it was opened, and again"):
        bundle.load(tmp_path / "out", lambda folder, manifest: publish_new(folder))


def test_weights_of_a_replaced_file_are_not_cached(tmp_path, monkeypatch):
    from kerasformer.engines.litert import signatures as litert_signatures

    publish_new(tmp_path / "out", b"old")
    manifest = bundle.read(tmp_path / "out")

    def replace_then_open(path, threads, cache_file, accelerator):
        publish_new(tmp_path / "out", b"new")
        cache_file.write_bytes(b"packed from the new file")

    monkeypatch.setattr(litert_signatures, "open_engine", replace_then_open)
    monkeypatch.setattr(litert_signatures, "runtime_version", lambda: "2")
    with pytest.raises(BundleError, match="was replaced while it was opened"):
        litert_signatures.open_file(tmp_path / "out", manifest, None, tmp_path / "cache", None)
    assert not weight_cache.entries(tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())

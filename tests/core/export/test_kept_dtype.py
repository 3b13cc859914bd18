"""Models whose matrices keep the 16 bits of their checkpoint are exported to the files of models in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kerasformer import zoo
from kerasformer.bundle import recipes
from kerasformer.export import export
from kerasformer.export.builder import BundleBuilder
from kerasformer.export.formats.registry import FORMATS, find_format
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.options import resolve_options
from kerasformer.export.targets import find_target
from kerasformer.models import weights
from kerasformer.models.variables import release_weights
from tests.core.export import onnx_bundles, tflite_bundles
from tests.grids import grid

pytestmark = pytest.mark.grid


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Path:
    return onnx_bundles.tiny("llama", tied=True).save_pretrained(tmp_path_factory.mktemp("llama"), dtype="bfloat16")


def content(folder: Path, format: str, quantize: str, model: Any) -> dict[str, bytes]:
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "MIN_QUANTIZED", 0)
        if format == "onnx":
            onnx_bundles.write(folder, model, quantize)
        else:
            tflite_bundles.write(folder, model, tflite_functions(model, 32, None, ()), quantize)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("format", "quantize"),
    grid(
        ["onnx", "tflite"],
        ["none", "int8", "int4"],
        always={("onnx", "none"), ("tflite", "int8"), ("onnx", "int4")},
        release=lambda format, quantize: True,
    ),
)
def test_the_files_are_those_of_float32(format, quantize, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "_LARGE_MATRIX", 0)
    kept, wide = zoo.load(checkpoint, keep_dtype=True), zoo.load(checkpoint)
    assert kept.backbone.tokens.embeddings.dtype == "bfloat16"
    files = content(tmp_path / "kept", format, quantize, kept)
    assert files and files == content(tmp_path / "wide", format, quantize, wide)
    if quantize == "int4":
        release_weights(kept)
        assert files == content(tmp_path / "released", format, quantize, kept)


class Stopped(Exception):
    """Raised instead of writing files."""


@pytest.mark.parametrize(("format", "released"), [("onnx", True), ("saved-model", False)])
def test_weights_are_released_before_files_are_written_unless_the_caller_passed_the_model(
    format, released, checkpoint, tmp_path, monkeypatch
):
    """The files of TensorFlow contain the variables themselves."""
    in_memory = []

    def write(builder: BundleBuilder, recipe: Any) -> int:
        in_memory.append([variable._value is not None for variable in builder.job.model.trainable_variables])
        raise Stopped

    monkeypatch.setattr(BundleBuilder, "write", write)
    for source in (checkpoint, zoo.load(checkpoint)):
        with pytest.raises(Stopped):
            export(source, tmp_path / "out", format, capacity=16)
    assert [set(each) for each in in_memory] == [{not released}, {True}]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", FORMATS)
def test_a_checkpoint_keeps_its_bits_where_they_are_converted_as_they_are_written(format, checkpoint, monkeypatch):
    monkeypatch.setattr(weights, "_LARGE_MATRIX", 0)
    job = resolve_options(checkpoint, {}, find_format(format), find_target(None))
    assert job.model.backbone.tokens.embeddings.dtype == ("float32" if format == "saved-model" else "bfloat16")

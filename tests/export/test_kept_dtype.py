"""Models whose matrices keep the 16 bits of their checkpoint are exported to the files of models in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kerasformer import zoo
from kerasformer.export.formats.registry import FORMATS, find_format
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.options import ExportOptions, resolve_options
from kerasformer.export.quantization import recipes
from kerasformer.models import weight_table
from tests.export import onnx_bundles, tflite_bundles

pytest.importorskip("ai_edge_litert")


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


@pytest.mark.parametrize("quantize", ["none", "int8", "int4"])
@pytest.mark.parametrize("format", ["onnx", "tflite"])
def test_the_files_are_those_of_float32(format, quantize, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(weight_table, "_LARGE_MATRIX", 0)
    kept, wide = zoo.load(checkpoint, keep_dtype=True), zoo.load(checkpoint)
    assert kept.backbone.tokens.embeddings.dtype == "bfloat16"
    files = content(tmp_path / "kept", format, quantize, kept)
    assert files and files == content(tmp_path / "wide", format, quantize, wide)


@pytest.mark.parametrize("format", FORMATS)
def test_a_checkpoint_keeps_its_bits_where_they_are_converted_as_they_are_written(format, checkpoint, monkeypatch):
    monkeypatch.setattr(weight_table, "_LARGE_MATRIX", 0)
    kind = find_format(format)
    job = resolve_options(
        checkpoint, ExportOptions(format=format), kind.profiles, kind.static, keeps_dtype=kind.keeps_dtype
    )
    assert job.model.backbone.tokens.embeddings.dtype == ("float32" if format == "saved-model" else "bfloat16")

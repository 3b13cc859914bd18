"""The check of agreement: near ties in the answers of Keras are excluded, but a wrong scale in a file is refused."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import numpy_helper

import kerasformer as kf
from kerasformer import bundle
from kerasformer.bundle import Rounding
from kerasformer.bundle.recipes import RECIPES
from kerasformer.engines import open_engine
from kerasformer.engines.fidelity import verification
from kerasformer.errors import ExportMismatchError
from kerasformer.export.verify import verify
from tests.core.cli.test_cli import main

pytestmark = pytest.mark.grid

CASES = {"tflite": "int8", "onnx": "int4"}
SIZES = {"hidden_dim": 64, "num_layers": 2, "num_heads": 2, "intermediate_dim": 128, "max_length": 24}


@pytest.fixture(scope="module")
def model() -> Any:
    """Returns a model with random weights, for which many of 8000 tokens are near ties."""
    keras.utils.set_random_seed(1)
    return kf.zoo.build("bert", "fill-mask", vocab_size=8000, **SIZES)


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory) -> dict[str, Path]:
    """Returns a bundle of the model in each format."""
    lengths: dict[str, dict[str, Any]] = {"tflite": {"lengths": (SIZES["max_length"],)}, "onnx": {}}
    return {
        format: kf.export.export(model, tmp_path_factory.mktemp(format) / "out", format, quantize, **lengths[format])
        for format, quantize in CASES.items()
    }


def scale_in_tflite(path: Path, factor: float) -> int:
    """Multiplies the scales of the token table in a file and returns the number of changed tensors."""
    content = bytearray(path.read_bytes())
    model, found = schema.Model.GetRootAs(content, 0), 0
    for graph in map(model.Subgraphs, range(model.SubgraphsLength())):
        for tensor in map(graph.Tensors, range(graph.TensorsLength())):
            levels = tensor.Quantization()
            if b"token" in tensor.Name() and levels is not None and levels.ScaleLength():
                levels.ScaleAsNumpy()[:] *= factor
                found += 1
    path.write_bytes(content)
    return found


def scale_in_onnx(path: Path, factor: float) -> int:
    """Multiplies the scales of the token table in a file and returns the number of changed tensors."""
    model, found = onnx.load(path), 0
    for tensor in model.graph.initializer:
        if "token" in tensor.name and tensor.data_type == onnx.TensorProto.FLOAT:
            scales = numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(numpy_helper.from_array(scales, tensor.name))
            found += 1
    onnx.save(model, path)
    return found


SCALE: dict[str, Callable[[Path, float], int]] = {"tflite": scale_in_tflite, "onnx": scale_in_onnx}


@pytest.mark.parametrize("format", CASES)
def test_near_ties_are_reported_and_not_refused(folders, format, capsys):
    folder, recipe = folders[format], RECIPES[CASES[format]]
    figures = bundle.read(folder).fidelity
    assert figures["agreement"] < recipe.min_agreement <= figures["decided_agreement"]
    assert 100 < figures["near_ties"] < figures["answers"]
    assert figures["divergence"] < 1e-5
    assert 0.7 < figures["divergence"] / figures["rounding"]["divergence"] < 1.4
    ties, decided = f"{figures['near_ties']} of {figures['answers']}", f"{figures['decided_agreement']:.2%}"
    assert main("verify", str(folder)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"near ties {ties}" in printed and f"agreement without near ties {decided}" in printed
    assert f"except for near ties ({ties} answers)" in printed
    assert main("info", str(folder)) == 0
    assert f"near ties {ties}, " in capsys.readouterr().out
    assert "near ties" in (folder / "README.md").read_text()


def test_rounding_is_measured_after_weights_were_released(folders, model, tmp_path):
    """The figures of a checkpoint are those of the loaded model."""
    source = model.save_pretrained(tmp_path / "source")
    figures = bundle.read(kf.export.export(source, tmp_path / "out", "onnx", CASES["onnx"])).fidelity
    expected = bundle.read(folders["onnx"]).fidelity
    measured, before = ({k: v for k, v in each["rounding"].items() if v is not None} for each in (figures, expected))
    assert measured and measured == pytest.approx(before, rel=1e-3)
    assert (figures["near_ties"], figures["agreement"]) == (expected["near_ties"], expected["agreement"])


@pytest.mark.parametrize("factor", [1.05, 2.0])
@pytest.mark.parametrize("format", CASES)
def test_a_wrong_scale_is_no_near_tie(folders, format, factor, tmp_path):
    folder = shutil.copytree(folders[format], tmp_path / "out")
    manifest, references, recipe = bundle.read(folder), bundle.read_references(folder), RECIPES[CASES[format]]
    files = [path for path in folder.rglob("*") if path.suffix in (".tflite", ".onnx")]
    assert sum(SCALE[format](path, factor) for path in files)
    found = verification.verify(open_engine(folder, manifest), manifest, references)
    assert found.failed(manifest.promise)
    rounding = Rounding.of(manifest.fidelity)
    unmeasured = dataclasses.replace(manifest, fidelity={})
    message = "by rounding alone.*please report it" if factor < 2 else "a Recipe with a higher tolerance"
    with pytest.raises(ExportMismatchError, match=message):
        verify(folder, unmeasured, recipe, rounding=lambda references: rounding)

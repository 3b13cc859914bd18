"""Simulated storage in Keras: its values are those of the files, and its figures those of the runtimes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer.bundle import Manifest
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.export import export
from kerasformer.export.formats.onnx.layout import OnnxLayout
from kerasformer.export.formats.tflite.layout import TfliteLayout
from kerasformer.export.quantization.layouts import num_bytes
from kerasformer.export.quantization.model_matrices import matrices
from kerasformer.export.quantization.sample_inputs import single_pass_references
from kerasformer.export.quantization.simulation import Simulation
from kerasformer.export.references import record
from tests.core.export.text_models import ROWS, SEVERAL, size_options
from tests.grids import grid

pytestmark = pytest.mark.grid

LAYOUTS = {"tflite": TfliteLayout(), "onnx": OnnxLayout(), "portable": OnnxLayout("portable", 21)}
LOOSE = {"tolerance": 10.0, "min_agreement": 0.0}


@pytest.fixture(scope="module")
def references(models) -> Callable[[str], dict[str, np.ndarray]]:
    @cache
    def recorded(name: str) -> dict[str, np.ndarray]:
        model = models(name)
        capacity = 64 if model.generates else None
        manifest = Manifest("tflite", model.info(), {}, capacity, 64 if model.is_encoder_decoder else None)
        return record(model, manifest, None)

    return recorded


@pytest.fixture(scope="module")
def simulations(models) -> Callable[..., Simulation]:
    return cache(lambda name, layout="tflite": Simulation(models(name), matrices(models(name)), LAYOUTS[layout]))


@pytest.mark.parametrize("name", grid(SEVERAL, always=("gpt2-text-generation", "bert-text-classification")))
def test_float32_is_the_model_itself(name, references, models, simulations):
    """A model answers the same in a single pass without a cache as step by step."""
    found = simulations(name).fidelity(RECIPES["none"], single_pass_references(models(name), references(name)))
    assert found.agreement == 1.0 and found.max_error < 1e-4
    assert found.answers >= 20


@pytest.mark.parametrize("name", SEVERAL)
def test_coarser_is_worse(name, references, models, simulations):
    read = single_pass_references(models(name), references(name))
    found = [simulations(name).fidelity(RECIPES[recipe], read) for recipe in ("fp16", "int8", "int4")]
    errors = [fidelity.mean_error**2 if fidelity.divergence is None else fidelity.divergence for fidelity in found]
    assert 0 < errors[0] < errors[1] / 10 and errors[1] < errors[2] / 3


def test_a_trial_leaves_nothing_behind(references, models, simulations):
    name = "gpt2-text-generation"
    before = [np.array(variable) for variable in models(name).variables]
    read = single_pass_references(models(name), references(name))
    simulations(name).fidelity(RECIPES["int4"], read)
    assert simulations(name).fidelity(RECIPES["none"], read).agreement == 1.0
    assert all(np.array_equal(old, new) for old, new in zip(before, models(name).variables, strict=True))


# Against the files and their runtimes.


def exported(model: Any, folder: Path, format: str, recipe: Recipe, **options: Any) -> Path:
    return export(model, folder, format, recipe, **size_options(model, format, (64,), 64), **options)


def model_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".tflite", ".onnx") or path.suffix == ".onnx_data"]


@pytest.mark.parametrize(
    ("quantize", "format"),
    grid(
        ["none", "fp16", "int8", "int4", "mix"],
        ["tflite", "onnx"],
        always={("int8", "tflite"), ("mix", "tflite"), ("int4", "onnx"), ("mix", "onnx")},
        release=lambda quantize, format: True,
    ),
)
def test_sizes_are_those_of_files(quantize, format, tmp_path):
    """The model is so large that the size of its graph is negligible."""
    row = replace(ROWS["distilbert-text-classification"], settings={**_LARGER, "num_labels": 5})
    model = row.model()
    layers: Any = (("*/layer_0/attention/*", "float16"), ("*/layer_1/feed_forward/*", "int4"))
    recipe = replace(RECIPES["int8" if quantize == "mix" else quantize], **LOOSE)
    recipe = replace(recipe, layers=layers) if quantize == "mix" else recipe
    folder = exported(model, tmp_path / "bundle", format, recipe)
    size = sum(path.stat().st_size for path in model_files(folder))
    assert size == pytest.approx(num_bytes(model, matrices(model), recipe, LAYOUTS[format]), rel=0.02)


_LARGER = {"hidden_dim": 512, "num_layers": 2, "num_heads": 4, "intermediate_dim": 1024, "max_length": 64}

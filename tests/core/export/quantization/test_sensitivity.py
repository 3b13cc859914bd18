"""Simulated storage in Keras: its values are those of the files, and its figures those of the runtimes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer import bundle
from kerasformer.bundle import Manifest
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.export import export
from kerasformer.export.formats.onnx.layout import OnnxLayout
from kerasformer.export.formats.tflite.layout import TfliteLayout
from kerasformer.export.quantization.layouts import num_bytes
from kerasformer.export.quantization.model_matrices import groups, matrices, mixed
from kerasformer.export.quantization.sample_inputs import single_pass_references
from kerasformer.export.quantization.sensitivity import Simulation, cost, sensitivities
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


@pytest.mark.parametrize("name", SEVERAL)
def test_every_large_matrix_is_in_one_group(name, models):
    model = models(name)
    parts = matrices(model)
    large = {v.path for v in model.variables if len(v.shape) == 2 and np.prod(v.shape) >= 4096}
    assert {part.path for part in parts} == large
    found = groups(parts)
    assert sorted(part.path for group in found for part in group.parts) == sorted(large)
    for group in found:  # its patterns match only its matrices
        layers = tuple((pattern, "int4") for pattern in group.patterns)
        recipe = Recipe("r", "float32", "float32", "float", 1.0, 0.0, layers=layers)
        matched = {part.path for part in parts if recipe.storage(part.path, part.rows, part.table) == "int4"}
        assert matched == {part.path for part in group.parts}


@pytest.mark.parametrize("name", grid(SEVERAL, always=("gpt2-text-generation", "bert-text-classification")))
def test_float32_is_the_model_itself(name, references, models, simulations):
    """A model answers the same in a single pass without a cache as step by step."""
    found = simulations(name).fidelity(RECIPES["none"], single_pass_references(models(name), references(name)))
    assert found.agreement == 1.0 and found.max_error < 1e-4
    assert found.answers >= 20


@pytest.mark.parametrize("name", SEVERAL)
def test_coarser_is_worse(name, references, models, simulations):
    read = single_pass_references(models(name), references(name))
    costs = [cost(simulations(name).fidelity(RECIPES[recipe], read)) for recipe in ("fp16", "int8", "int4")]
    assert 0 < costs[0] < costs[1] / 10 and costs[1] < costs[2] / 3


def test_a_trial_leaves_nothing_behind(references, models, simulations):
    name = "gpt2-text-generation"
    before = [np.array(variable) for variable in models(name).variables]
    read = single_pass_references(models(name), references(name))
    simulations(name).fidelity(RECIPES["int4"], read)
    assert simulations(name).fidelity(RECIPES["none"], read).agreement == 1.0
    assert all(np.array_equal(old, new) for old, new in zip(before, models(name).variables, strict=True))


@pytest.mark.grid
def test_sensitivities_are_those_of_single_groups(references, models, simulations):
    name = "t5-text2text-generation"
    simulation, members = simulations(name), groups(matrices(models(name)))
    read = single_pass_references(models(name), references(name), tokens=8)
    calls: list[tuple[int, int]] = []
    found = sensitivities(
        simulation,
        members,
        lambda group: ("int8",) if group.table else ("int8", "int4"),
        read,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert len(found) == 2 * len(members) - sum(group.table for group in members)
    assert calls == [(done, len(found)) for done in range(1, len(found) + 1)]
    for each in found:
        group = next(group for group in members if group.name == each.group)
        chosen = {member.name: each.storage if member is group else "float32" for member in members}
        alone = simulation.fidelity(mixed("r", chosen, members, activations="dynamic", **LOOSE), read)
        assert each.divergence == pytest.approx(cost(alone), rel=1e-6)
    again = sensitivities(simulation, members[:1], lambda group: ("int8",), read)
    assert again[0] == found[0]


# Against the files and their runtimes.


def exported(model: Any, folder: Path, format: str, recipe: Recipe, **options: Any) -> Path:
    return export(model, folder, format, recipe, **size_options(model, format, (64,), 64), **options)


@pytest.mark.parametrize(
    ("name", "format"),
    grid(
        ["distilbert-text-classification", "gpt2-text-generation"],
        ["tflite", "onnx"],
        always={("distilbert-text-classification", "tflite"), ("gpt2-text-generation", "onnx")},
    ),
)
def test_a_mix_in_its_runtime(name, format, models, simulations, tmp_path):
    """The simulated fidelity is that of the file."""
    model = models(name)
    parts = matrices(model)
    members = groups(parts)
    chosen: dict[str, Any] = {
        group.name: ("float16", "int8", "int4", "float32")[place % 4] if not group.table else "int8"
        for place, group in enumerate(members)
    }
    mix = mixed("mix", chosen, members, activations="dynamic", **LOOSE)
    assert {mix.storage(part.path, part.rows, part.table) for part in parts} == {"float32", "float16", "int8", "int4"}
    folder = exported(model, tmp_path / "mix", format, mix)
    figures = bundle.read(folder).fidelity
    expected = simulations(name, format).fidelity(mix, single_pass_references(model, bundle.read_references(folder)))
    assert expected.agreement == pytest.approx(figures["agreement"], abs=0.06)
    assert 0.6 < expected.max_error / figures["max_error"] < 1.7


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

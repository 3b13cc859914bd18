"""Which matrices of a decoder have eight bits: what rounding each one costs, and what fits into the size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.errors import ExportError
from kerasformer.export.formats.onnx.layout import OnnxLayout
from kerasformer.export.formats.tflite.layout import TfliteLayout
from kerasformer.export.quantization.calibration import Ranges
from kerasformer.export.quantization.compensation import nearest
from kerasformer.export.quantization.mixed_bits import four_bits, mixed, mixes, rounding_losses
from kerasformer.export.quantization.model_matrices import matrices
from tests import tiny_text
from tests.core.export.quantization.test_learned_rounding import decoder

LAYOUTS = {"litert": TfliteLayout(), "onnx": OnnxLayout(), "portable": OnnxLayout("portable", 21)}
IDS = np.random.default_rng(0).integers(5, 90, (3, 128)).astype("int32")


def answers(model: Any) -> np.ndarray:
    return np.asarray(keras.ops.log_softmax(model({"input_ids": IDS}, training=False)), "float64")


def size(parts: Any, recipe: Recipe, layout: Any) -> int:
    return sum(layout.num_bytes(part, recipe) for part in parts)


def calibrated(model: Any, layout: Any) -> dict[str, Ranges]:
    """Returns matrices that are rounded to four bits, a tied table included."""
    parts = matrices(model)
    recipe = replace(four_bits(RECIPES["int4"], parts, layout), rounding="nearest")
    found = {}
    for part in parts:
        levels = layout.levels(part, recipe)
        if part.product and levels is not None and levels.high == 7:
            found[part.path] = Ranges((-1, 1), (-1, 1), rounded=nearest(part.value(), layout.grid(part, recipe)))
    return found


def test_losses_are_the_slopes_of_the_divergence() -> None:
    """Measured in the model itself: its variables have rounded values, and one moves a little towards its own."""
    model = decoder()
    calibration = calibrated(model, LAYOUTS["litert"])
    read = {"input_ids": IDS, "attention_mask": np.ones_like(IDS)}
    seen: list[tuple[int, int]] = []
    losses = rounding_losses(model, calibration, read, lambda *done: seen.append(done))
    assert seen[-1][0] == seen[-1][1] and losses.keys() == calibration.keys()
    expected = answers(model)
    parts = {part.path: part for part in matrices(model, calibration) if part.rounded is not None}
    exact = {path: np.asarray(part.variable) for path, part in parts.items()}
    rounded = {path: part.in_keras(part.rounded.values()) for path, part in parts.items()}
    for path, part in parts.items():
        part.variable.assign(rounded[path])

    def divergence() -> float:
        return float((np.exp(expected) * (expected - answers(model))).sum(axis=-1).mean())

    slopes = {}
    for path, part in parts.items():
        moved = []
        for share in (-0.02, 0.02):
            part.variable.assign(rounded[path] + share * (exact[path] - rounded[path]))
            moved.append(divergence())
        part.variable.assign(rounded[path])
        slopes[path] = (moved[0] - moved[1]) / 0.04
    largest = max(slopes.values())
    assert largest > 1e-4
    for path, slope in slopes.items():
        assert losses[path] == pytest.approx(max(slope, 0.0), abs=0.01 * largest), path


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("budget", [1.0, 1.2])
def test_the_costliest_matrices_fit_into_the_budget(layout: str, budget: float) -> None:
    model, stored = decoder(), LAYOUTS[layout]
    recipe, parts = replace(RECIPES["int4"], budget=budget), matrices(model, calibrated(model, stored))
    measured = {part.path: part for part in parts if part.rounded is not None}
    losses = dict.fromkeys(measured, 1e-6)
    costly = next(path for path in losses if path.endswith("layer_1/attention/value/kernel"))
    losses[costly] = 1.0
    chosen = mixed(recipe, parts, stored, losses)
    kinds = {path: chosen.storage(path, part.rows, part.table) for path, part in measured.items()}
    assert size(parts, chosen, stored) <= budget * size(parts, recipe, stored)
    table = next((path for path, part in measured.items() if part.table), None)
    assert (table is None) == (layout == "portable"), "standard operators look up no table of four bits"
    if layout == "portable" and budget == 1.0:
        assert set(kinds.values()) == {"int4"}, "there is no room"
        return
    assert kinds[costly] == "int8"
    for path in (path for path, kind in kinds.items() if kind == "int4"):
        more = replace(chosen, layers=((f"*{path.split('/', 1)[1]}", "int8"), *chosen.layers))
        assert size(parts, more, stored) > budget * size(parts, recipe, stored), "there is room"
    if table is not None:
        losses = dict.fromkeys(measured, 1e-6) | {table: 1.0}
        chosen = mixed(recipe, parts, stored, losses)
        assert chosen.storage(table, measured[table].rows, True) == "int8"
    own = replace(recipe, layers=(("*/layer_1/attention/value/*", "float16"),))
    assert mixed(own, parts, stored, losses).storage(costly, (64, 64)) == "float16", "the caller's exceptions count"


def test_a_budget_that_cannot_be_kept() -> None:
    model, layout = decoder(), LAYOUTS["onnx"]
    parts = matrices(model, calibrated(model, layout))
    losses = {part.path: 1.0 for part in parts if part.rounded is not None}
    with pytest.raises(ExportError, match=r"must be at least 0\.\d{3} for this model.*Received: budget=0\.5"):
        mixed(replace(RECIPES["int4"], budget=0.5), parts, layout, losses)
    for budget in (0.0, -1.0, float("nan")):
        with pytest.raises(ExportError, match="budget must be a positive number, or None. Received: "):
            replace(RECIPES["int4"], budget=budget)


def test_which_models_and_recipes() -> None:
    encoder = zoo.build("bert", "text-classification", hidden_dim=64, num_layers=1, num_heads=4, vocab_size=99)
    model = decoder()
    assert [name for name, recipe in RECIPES.items() if mixes(model, recipe)] == ["int4", "int4_distilled"]
    assert not any(mixes(encoder, recipe) for recipe in RECIPES.values())


def test_the_files_have_the_chosen_bits(tmp_path: Any) -> None:
    model = decoder()
    loose = replace(RECIPES["int4"], tolerance=9.0, max_divergence=9.0, max_divergence_p99=9.0)
    options: dict[str, Any] = {"texts": tiny_text.CORPUS[:2], "calibration": tiny_text.CORPUS, "capacity": 32}
    plain, chosen, larger = (
        model.export(tmp_path / str(budget), "onnx", replace(loose, budget=budget), **options)
        for budget in (None, 1.0, 1.2)
    )
    further_nodes = 4000  # in bytes, of products that are no longer computed together
    assert chosen.model_bytes < plain.model_bytes + further_nodes < larger.model_bytes
    layers = [dict(bundle.manifest.recipe["layers"]) for bundle in (plain, chosen, larger)]
    assert not layers[0] and "int8" in layers[2].values()
    # The budget is spent on what costs most, so that the answers come closer.
    divergences = [bundle.fidelity["divergence"] for bundle in (plain, chosen, larger)]
    assert divergences[2] < 0.8 * divergences[0] and divergences[1] < 1.1 * divergences[0]

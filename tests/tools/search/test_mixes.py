"""Groups of matrices, what each storage type costs them, and mixes of storage types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kerasformer import bundle
from kerasformer.bundle import Manifest
from kerasformer.bundle.recipes import Recipe
from kerasformer.export import (
    Simulation,
    TfliteLayout,
    export,
    find_format,
    matrices,
    single_pass_references,
)
from kerasformer.export.references import record
from kerasformer.tools.search.mixes import _hull, cost, groups, recipe_of, sensitivities
from tests.core.export.text_models import ROWS, shared_model, size_options
from tests.grids import grid

pytestmark = pytest.mark.grid


@pytest.mark.parametrize(
    "name",
    [
        "bert-text-classification",
        "distilbert-text-classification",
        "albert-fill-mask",
        "gpt2-text-generation",
        "t5-text2text-generation",
    ],
)
def test_every_large_matrix_is_in_one_group(name):
    model = shared_model(name)
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


def test_sensitivities_are_those_of_single_groups():
    model = ROWS["t5-text2text-generation"].model()
    parts = matrices(model)
    simulation, members = Simulation(model, parts, TfliteLayout()), groups(parts)
    answers = record(model, Manifest("tflite", model.info(), {}, 64, 64), None)
    read = single_pass_references(model, answers, tokens=8)
    calls: list[tuple[int, int]] = []
    found = sensitivities(simulation, members, read, lambda done, total: calls.append((done, total)))
    assert list(found) == [group.name for group in members]
    assert calls == [(done, len(found)) for done in range(1, len(found) + 1)]
    for group in members:
        assert found[group.name]["float16"][1] == 0.0
        for storage in ("int8", "int4"):
            chosen: Any = {member.name: storage if member is group else "float32" for member in members}
            if storage in found[group.name]:  # LiteRT has no look-ups in four bits
                alone = simulation.fidelity(recipe_of(chosen, members, 0.0), read)
                assert found[group.name][storage][1] == pytest.approx(cost(alone), rel=1e-6)
    assert sensitivities(simulation, members[:1], read) == {members[0].name: found[members[0].name]}


@pytest.mark.parametrize(
    ("name", "format"),
    grid(
        ["distilbert-text-classification", "gpt2-text-generation"],
        ["tflite", "onnx"],
        always={("distilbert-text-classification", "tflite"), ("gpt2-text-generation", "onnx")},
    ),
)
def test_a_mix_in_its_runtime(name, format, tmp_path):
    """The simulated fidelity is that of the file."""
    model = ROWS[name].model()
    parts = matrices(model)
    members = groups(parts)
    chosen: dict[str, Any] = {
        group.name: ("float16", "int8", "int4", "float32")[place % 4] if not group.table else "int8"
        for place, group in enumerate(members)
    }
    mix = replace(recipe_of(chosen, members, 0.0), tolerance=10.0, min_cosine=0.0)
    assert {mix.storage(part.path, part.rows, part.table) for part in parts} == {"float32", "float16", "int8", "int4"}
    folder = export(model, tmp_path / "mix", format, mix, **size_options(model, format, (64,), 64)).path
    figures = bundle.read(folder).fidelity
    references = single_pass_references(model, bundle.read_references(folder))
    expected = Simulation(model, parts, find_format(format).layout(None, None)).fidelity(mix, references)
    assert expected.agreement == pytest.approx(figures["agreement"], abs=0.06)
    assert 0.6 < expected.max_error / figures["max_error"] < 1.7


# Bytes and divergence of a group's storage types.


@pytest.mark.parametrize(
    ("int8", "int4", "expected"),
    [
        ((100, 0.1), (50, 0.5), ["float16", "int8", "int4"]),
        ((100, 0.1), (50, 0.12), ["float16", "int4"]),  # int8 costs more per byte saved than int4
        ((100, 0.0), (50, 0.0), ["float16", "int8", "int4"]),
        ((100, 0.2), (50, 0.1), ["float16", "int4"]),  # noise must not give a negative cost
    ],
)
def test_the_hull_of_storage_types(int8, int4, expected):
    steps = _hull({"float32": (400, 0.0), "float16": (200, 0.0), "int8": int8, "int4": int4})
    assert [storage for _, storage in steps] == expected
    slopes = [slope for slope, _ in steps]
    assert slopes == sorted(slopes) and slopes[0] == 0.0

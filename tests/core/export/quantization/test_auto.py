"""quantize="auto": the search with simulated files, and whole exports within budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kerasformer.bundle import Fidelity
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.errors import ExportError, ExportMismatchError, InputError
from kerasformer.export import export
from kerasformer.export.quantization.auto import _hull
from kerasformer.export.quantization.search import Auto, Search
from tests.core.export.text_models import ROWS, SEVERAL, size_options
from tests.grids import grid

pytestmark = pytest.mark.grid

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


class FakeBuilder:
    """Simulated files: mix `k` of `n` takes `n - k` MB and half as many milliseconds."""

    def __init__(self, agreements: list[float], verified: list[float] | None = None, graph: float = 0.0):
        self.agreements, self.verified, self.graph = agreements, verified or agreements, graph
        self.recipes = [replace(RECIPES["int8"], name=str(place)) for place in range(len(agreements))]
        self.written: list[int] = []

    def size(self, recipe: Recipe) -> int:
        return round((len(self.recipes) - int(recipe.name)) * 1e6)

    def simulate(self, recipe: Recipe) -> Fidelity:
        return Fidelity(0.0, 0.0, self.agreements[int(recipe.name)], 100)

    def write(self, recipe: Recipe) -> int:
        self.written.append(int(recipe.name))
        return self.size(recipe) + round(self.graph * 1e6)

    def latency(self) -> float:
        return (len(self.recipes) - self.written[-1]) / 2

    def verify(self, recipe: Recipe) -> Fidelity:
        agreement = self.verified[int(recipe.name)]
        if agreement < self.budget.min_agreement:
            raise ExportMismatchError(f"agreement {agreement}")
        return Fidelity(0.0, 0.0, agreement, 100)

    def search(self, **limits: float) -> tuple[int, Any]:
        self.budget = Auto(**limits)
        search = Search(
            self.budget,
            self.recipes,
            self,
            lambda *stage: None,
            size=self.size,
            simulate=self.simulate,
            count=lambda recipe: {"int8": int(recipe.name)},
        )
        recipe, _ = search.run()
        assert self.written[-1] == int(recipe.name), "the files are those of another mix"
        return int(recipe.name), search.measured()


FALLING = [1.0, 1.0, 0.999, 0.995, 0.99, 0.985, 0.981, 0.97, 0.9, 0.5]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 6),  # the smallest with 0.98
        ({"min_agreement": 0.995}, 3),
        ({"min_agreement": 1.0}, 1),
        ({"min_agreement": 0.0}, 9),
        ({"max_size": 7.0}, 3),  # the most faithful that fits
        ({"max_size": 100.0}, 0),
        ({"max_latency": 3.0}, 4),  # the most faithful that is fast enough
        ({"max_latency": 3.0, "max_size": 5.0}, 5),
        ({"max_latency": 2.0}, 6),
        ({"max_size": 4.0, "min_agreement": 0.981}, 6),
    ],
    ids=str,
)
def test_budgets(limits, expected):
    place, tried = FakeBuilder(FALLING).search(**limits)
    assert place == expected
    assert [each.chosen for each in tried].count(True) == 1
    assert next(each for each in tried if each.chosen).parts == {"int8": expected}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"max_size": 3.5},
            r"agreement of at least 0.98, at most 3.5 MB.*4.00 MB.*best agreement within 3.5 MB is 0.9700",
        ),
        ({"max_size": 0.5}, r"the smallest of all mixes takes 1.00 MB"),
        ({"max_latency": 1.5}, r"at most 1.5 ms.*2 ms, with 4.00 MB"),
        ({"min_agreement": 1.0, "max_size": 8.0}, r"at least 1, at most 8 MB.*9.00 MB"),
    ],
    ids=str,
)
def test_limits_that_no_mix_satisfies(limits, message):
    with pytest.raises(ExportError, match=message):
        FakeBuilder(FALLING).search(**limits)


def test_the_search_goes_back_after_a_failed_verification():
    shop = FakeBuilder(FALLING, verified=[1.0, 1.0, 0.99, 0.985, 0.97, 0.97, 0.97, 0.9, 0.9, 0.9])
    place, tried = shop.search()
    assert (place, shop.written) == (3, [6, 5, 3])
    assert [each.verified for each in tried if each.chosen] == [0.985]
    assert [each.refused for each in tried if each.refused] == ["agreement 0.97", "agreement 0.97"]


def test_no_mix_within_the_limits_is_faithful_in_the_runtime():
    with pytest.raises(ExportError, match=r"at most 6 MB, in the runtime. agreement 0.9"):
        FakeBuilder(FALLING, verified=[0.9] * 10).search(max_size=6.0)
    with pytest.raises(ExportError, match="in the runtime"):
        FakeBuilder(FALLING, verified=[0.9] * 10).search()


def test_files_are_larger_than_their_weights():
    place, tried = FakeBuilder(FALLING, graph=2.0).search(max_size=7.0)
    assert place == 5
    assert all(each.megabytes == 12 - each.parts["int8"] for each in tried)


@pytest.mark.parametrize(
    "limits",
    [
        {"min_agreement": 1.1},
        {"max_size": 0},
        {"max_size": 30_000_000},
        {"max_latency": -1},
        {"max_size": float("nan")},
    ],
    ids=str,
)
def test_invalid_budgets(limits, tmp_path):
    with pytest.raises(InputError, match=next(iter(limits))):
        export("nowhere", tmp_path / "bundle", quantize="auto", **limits)


# Whole exports.


def automatic(name: str, folder: Path, format: str, **limits: float) -> Any:
    model = ROWS[name].model()
    return export(model, folder, format, "auto", **size_options(model, format, (64,), 64), **limits).manifest


@pytest.mark.parametrize(
    ("name", "format"),
    grid(
        SEVERAL,
        ["tflite", "onnx"],
        always={
            ("albert-fill-mask", "onnx"),
            ("gpt2-text-generation", "tflite"),
        },
        release=lambda name, format: "bert" in name or (name, format) == ("albert-fill-mask", "tflite"),
        others="release",
    ),
)
def test_every_model_in_every_format(name, format, tmp_path):
    manifest = automatic(name, tmp_path / "bundle", format, min_agreement=0.9)
    record = manifest.recipe["auto"]
    assert manifest.recipe["name"] == "auto" and manifest.recipe["min_agreement"] == 0.9
    assert manifest.fidelity["agreement"] >= 0.9
    chosen = [tried for tried in record["tried"] if tried["chosen"]]
    files = [path for path in (tmp_path / "bundle").rglob("*") if path.suffix in (".tflite", ".onnx", ".onnx_data")]
    assert [tried["megabytes"] for tried in chosen] == [sum(path.stat().st_size for path in files) / 1e6]
    assert chosen[0]["verified"] == manifest.fidelity["agreement"]
    assert sum(chosen[0]["parts"].values()) == len({each["group"] for each in record["sensitivities"]})
    assert len(record["sensitivities"]) >= 6
    sizes = [tried["megabytes"] for tried in record["tried"]]
    assert sizes == sorted(sizes, reverse=True)

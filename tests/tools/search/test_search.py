"""The search for a recipe: with simulated files, and with exports within limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

import kerasformer as kf
from kerasformer import bundle
from kerasformer.bundle.recipes import RECIPES
from kerasformer.cli import app
from kerasformer.errors import ExportError, InputError
from kerasformer.export import export, matrices
from kerasformer.tools.search import Candidate, candidates
from kerasformer.tools.search.candidates import Search
from kerasformer.tools.search.mixes import groups
from tests.core.export.text_models import ROWS, shared_model, size_options
from tests.grids import grid

pytestmark = pytest.mark.grid


class FakeFiles:
    """Simulated files: mix `k` of `n` takes `n - k` MB and half as many milliseconds."""

    def __init__(self, agreements: list[float], verified: list[float] | None = None, graph: float = 0.0):
        self.agreements, self.verified, self.graph = agreements, verified or agreements, graph
        self.written: list[int] = []

    def measure(self, candidate: Candidate) -> Candidate:
        place = int(candidate.recipe.name)
        self.written.append(place)
        if self.verified[place] < self.min_agreement:
            return replace(candidate, refused=f"agreement {self.verified[place]}")
        size = len(self.agreements) - place
        return replace(candidate, megabytes=size + self.graph, verified=self.verified[place], latency=size / 2)

    def search(self, **limits: Any) -> tuple[int, list[Candidate]]:
        self.min_agreement = limits.setdefault("min_agreement", 0.98)
        candidates = [
            Candidate(replace(RECIPES["int8"], name=str(place)), {"int8": place}, float(len(self.agreements) - place))
            for place in range(len(self.agreements))
        ]
        search = Search(limits, candidates, lambda recipe: self.agreements[int(recipe.name)], self.measure)
        tried = search.run()
        (chosen,) = [candidate for candidate in tried if candidate.chosen]
        assert all(candidate.agreement is not None for candidate in tried)
        return int(chosen.recipe.name), tried


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
    place, tried = FakeFiles(FALLING).search(**limits)
    assert place == expected
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
        FakeFiles(FALLING).search(**limits)


def test_the_search_goes_back_after_a_failed_verification():
    shop = FakeFiles(FALLING, verified=[1.0, 1.0, 0.99, 0.985, 0.97, 0.97, 0.97, 0.9, 0.9, 0.9])
    place, tried = shop.search()
    assert (place, shop.written) == (3, [6, 5, 3])
    assert [each.verified for each in tried if each.chosen] == [0.985]
    assert [each.refused for each in tried if each.refused] == ["agreement 0.97", "agreement 0.97"]


def test_no_mix_within_the_limits_is_faithful_in_the_runtime():
    with pytest.raises(ExportError, match=r"at most 6 MB, in the runtime. agreement 0.9"):
        FakeFiles(FALLING, verified=[0.9] * 10).search(max_size=6.0)
    with pytest.raises(ExportError, match="in the runtime"):
        FakeFiles(FALLING, verified=[0.9] * 10).search()


def test_files_are_larger_than_their_weights():
    place, tried = FakeFiles(FALLING, graph=2.0).search(max_size=7.0)
    assert place == 5
    assert all(each.megabytes == 12 - each.parts["int8"] for each in tried)


@pytest.mark.parametrize(
    "limits",
    [
        {"min_agreement": 1.1},
        {"max_size": "5"},
        {"max_size": 0},
        {"max_size": 30_000_000},
        {"max_latency": -1},
        {"max_size": float("nan")},
    ],
    ids=str,
)
def test_invalid_limits(limits):
    with pytest.raises(InputError, match=next(iter(limits))):
        kf.search("nowhere", **limits)


# Whole exports.


def found(name: str, format: str, **limits: Any) -> tuple[Any, list[Candidate], Any]:
    """Returns a model, the candidates for it, and the options of the exports."""
    model = ROWS[name].model()
    options = size_options(model, format, (64,), 64)
    return model, candidates(model, format, **options, **limits), options


@pytest.mark.parametrize(
    ("name", "format"),
    grid(
        [
            "bert-text-classification",
            "distilbert-text-classification",
            "albert-fill-mask",
            "gpt2-text-generation",
            "llama-text-generation",
            "t5-text2text-generation",
        ],
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
    model, tried, options = found(name, format, min_agreement=0.9)
    (chosen,) = [candidate for candidate in tried if candidate.chosen]
    written = export(model, tmp_path / "bundle", format, chosen.recipe, **options)
    recipe = written.manifest.recipe
    assert recipe["name"] == "auto" and recipe["min_agreement"] == 0.9
    assert written.fidelity["agreement"] == chosen.verified >= 0.9
    assert written.model_bytes / 1e6 == chosen.megabytes
    assert sum(chosen.parts.values()) == len(groups(matrices(model)))
    sizes = [candidate.megabytes for candidate in tried]
    assert sizes == sorted(sizes, reverse=True)


def test_the_search_is_deterministic():
    first, second = (found("distilbert-text-classification", "onnx", min_agreement=0.95)[1] for _ in "ab")
    assert first == second


def test_a_limit_of_size_and_speed():
    name = "gpt2-text-generation"
    smallest = next(each.megabytes for each in found(name, "onnx", min_agreement=0.8)[1] if each.chosen)
    limits = {"max_size": smallest * 1.15, "min_agreement": 0.8, "max_latency": 1000.0}
    chosen = next(each for each in found(name, "onnx", **limits)[1] if each.chosen)
    assert smallest < chosen.megabytes <= limits["max_size"] and 0 < chosen.latency < 1000
    with pytest.raises(ExportError, match="The best possible"):
        found(name, "onnx", max_size=smallest / 2, min_agreement=0.8)


def test_a_format_without_recipes():
    with pytest.raises(ExportError, match="stores its weights in float32"):
        kf.search(shared_model("bert-text-classification"), "saved_model")


def test_the_command_line(tmp_path):
    """The command shows the candidates and exports with the recipe."""
    shared_model("bert-text-classification").save_pretrained(tmp_path / "model")
    arguments = ["export", str(tmp_path / "model"), str(tmp_path / "out"), "--lengths", "64", "--quantize"]
    outcome = CliRunner().invoke(app, [*arguments, "auto", "--set", "min_agreement=0.9"])
    assert outcome.exit_code == 0, outcome.output
    assert "Candidates of the search" in outcome.output and "chosen" in outcome.output
    assert bundle.read(tmp_path / "out").recipe["name"] == "auto"
    outcome = CliRunner().invoke(app, [*arguments, "int8", "--overwrite", "--max-size", "5"])
    assert "max_size is only for --quantize auto" in outcome.output

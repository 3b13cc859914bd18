"""Collects which runtime, task, model and recipe the acceptance tests cover, from their marks."""

from __future__ import annotations

import importlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kerasformer.bundle.tested import Bundles, Tested
from kerasformer.export.targets import TARGETS
from tests.core.export import ticks as exports
from tests.foreign.cases import Case
from tests.foreign.environments import HERE

OWN = {
    "litert": ("--format tflite", "LiteRT (`ai-edge-litert`): Python, and the C library that all other languages use"),
    "onnxruntime": ("--format onnx", "ONNX Runtime: Python, and C++ with the same library"),
}
"""Runtimes that need no target, in which tests/core/export runs all bundles: the option and their description."""

# Packages whose versions are the version of a runtime.
_PACKAGES = {
    "litert": ["ai-edge-litert"],
    "onnxruntime": ["onnxruntime"],
    "mediapipe": ["mediapipe"],
    "litert-lm": ["litert-lm-api"],
    "litert-web": ["@litertjs/core"],
    "transformers.js": ["@huggingface/transformers"],
    "optimum": ["optimum-onnx", "transformers"],
    "genai": ["onnxruntime-genai"],
    "saved-model": ["tensorflow"],
    "triton": ["tritonclient"],
}
_NOT_RUN = ("skip", "skipif", "xfail")


def claims(module: ModuleType) -> Iterator[tuple[str, Case, bool]]:
    """Yields for each acceptance test of a module that is not skipped: a runtime, a case, and whether CI runs it."""
    shared = _marks(module)
    for test in [each for name, each in vars(module).items() if name.startswith("test_")]:
        marks = [*_marks(test), *shared]
        if any(mark.name in _NOT_RUN for mark in marks):
            continue
        for runtime in [mark.args[0] for mark in marks if mark.name == "foreign"]:
            for mark in marks:
                if mark.name == "parametrize" and mark.args[0] == "case":
                    for each in mark.args[1]:
                        (case,), in_ci = each.values, "release" not in {own.name for own in (*each.marks, *marks)}
                        yield runtime, case, in_ci


def _marks(owner: Any) -> list[Any]:
    """Returns the marks of a function or module."""
    marks = getattr(owner, "pytestmark", [])
    return marks if isinstance(marks, list) else [marks]


def collect(refused: Mapping[str, dict[str, dict[str, list[str]]]]) -> list[Tested]:
    """Returns all runtimes with their tested bundles.

    Args:
        refused: Model types that each target refuses, by reason and task.
    """
    from tests.core.export import test_export

    covered, in_ci = _by_runtime(), _by_runtime()
    own = {option.split()[-1]: name for name, (option, _) in OWN.items()}
    for found, module in ((covered, test_export), (in_ci, _in_ci(test_export))):
        for format, row, recipe in exports.claims(module):
            if format in own:
                found[own[format]][row.task][row.model_type].append(recipe)
    for path in sorted(HERE.glob("test_*.py")):
        for runtime, case, runs_in_ci in claims(importlib.import_module(f"tests.foreign.{path.stem}")):
            for found in (covered, in_ci) if runs_in_ci else (covered,):
                found[runtime][case.task][case.model_type].append(case.quantize)
    known = {**OWN, **{name: (f"--target {name}", target.summary) for name, target in TARGETS.items()}}
    if unknown := covered.keys() - known.keys():
        raise ValueError(f"the argument of a mark foreign(…) must be the name of a target. Received: {sorted(unknown)}")
    return [
        Tested(name, *about, version(name), in_order(covered[name]), in_order(in_ci[name]), refused.get(name, {}))
        for name, about in known.items()
    ]


def _in_ci(module: ModuleType) -> ModuleType:
    """Returns a module whose tests have the parameters that CI runs."""
    shown = ModuleType(module.__name__)
    for name, test in vars(module).items():
        marks = getattr(test, "pytestmark", []) if name.startswith("test_") else []
        if any(mark.name == "bundles" for mark in marks) and "release" not in {mark.name for mark in marks}:
            setattr(shown, name, SimpleNamespace(pytestmark=[_without_release(mark) for mark in marks]))
    return shown


def _without_release(mark: pytest.Mark) -> pytest.Mark:
    if mark.name != "parametrize":
        return mark
    names, rows = mark.args
    kept = [row for row in rows if "release" not in {each.name for each in getattr(row, "marks", ())}]
    return pytest.Mark("parametrize", (names, kept), {}, _ispytest=True)


def _by_runtime() -> dict[str, dict[str, dict[str, list[str]]]]:
    return defaultdict(lambda: defaultdict(lambda: defaultdict(list)))


def in_order(bundles: Bundles) -> Bundles:
    """Returns the same bundles, sorted and each once."""
    return {
        task: {name: sorted(set(recipes)) for name, recipes in sorted(models.items())}
        for task, models in sorted(bundles.items())
    }


def version(runtime: str) -> str:
    """Returns the pinned packages of a runtime, or the minimum version that this package requires."""
    return ", ".join(f"{name} {_versions()[name]}" for name in _PACKAGES[runtime])


def _versions() -> dict[str, str]:
    project = (HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    versions = {name: f">= {minimum}" for name, minimum in re.findall(r'"([a-z0-9-]+)>=([0-9.]+)"', project)}
    versions |= re.findall(r"([a-z0-9-]+)(?:\[[a-z]+\])?==([0-9.]+)", (HERE / "setup.sh").read_text(encoding="utf-8"))
    node = json.loads((HERE / "node" / "package.json").read_text(encoding="utf-8"))
    return versions | node["dependencies"]

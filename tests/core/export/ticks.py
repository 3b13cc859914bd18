"""Collects which formats, tasks, models and recipes the tests of whole exports cover, from their marks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from _pytest.mark.structures import ParameterSet

from kerasformer.bundle.tested import Bundles
from tests.core.export.text_models import OTHERS, ROWS, Row

ALL = {**ROWS, **OTHERS}
_NOT_RUN = ("skip", "skipif", "xfail")

Claim = tuple[str, Row, str]
"""A format, a small model and a recipe."""


def claims(module: ModuleType) -> Iterator[Claim]:
    """Yields the bundles that the tests of a module compare with Keras.

    Such a test has the mark `bundles`, and as parameters the `name` of a small model, the `format` and `quantize`, the
    recipe. Arguments of the mark are the values of those that are no parameters.
    """
    for test in [each for name, each in vars(module).items() if name.startswith("test_")]:
        marks = getattr(test, "pytestmark", [])
        if any(mark.name in _NOT_RUN for mark in marks):
            continue
        for fixed in [mark.kwargs for mark in marks if mark.name == "bundles"]:
            for values in _parameters(marks):
                given = {**fixed, **values}
                formats = [given["format"]] if isinstance(given["format"], str) else given["format"]
                yield from ((format, ALL[given["name"]], given["quantize"]) for format in formats)


def _parameters(marks: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yields the values of the parameters of each test that runs, by name."""
    for mark in marks:
        if mark.name == "parametrize":
            names = [mark.args[0]] if isinstance(mark.args[0], str) else list(mark.args[0])
            if "name" in names:
                for each in mark.args[1]:
                    parameters = ParameterSet.extract_from(each, force_tuple=len(names) == 1)
                    if not any(own.name in _NOT_RUN for own in parameters.marks):
                        yield dict(zip(names, parameters.values, strict=True))


def collect(found: Iterable[Claim]) -> dict[str, Bundles]:
    """Returns the tested recipes by format, task and model type."""
    covered: dict[str, Bundles] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for format, row, recipe in found:
        covered[format][row.task][row.model_type].append(recipe)
    return covered

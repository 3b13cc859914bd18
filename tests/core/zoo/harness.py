"""Shared by the tests of this folder: parameters of tests, made of the cases and their tasks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import pytest

from kerasformer.tools.testing import Case
from tests.core.zoo.cases import CASES, DISTINCT, FIRST, RELATIVES

HEADS = ("bert", "gpt2", "bart", "t5")
"""Architectures that are tested with every head without marks."""


def rows(cases: Iterable[Case] = CASES, tasks: Iterable[str] | None = None, on_jax: bool = True) -> list[Any]:
    """Returns parameters `(case, task)`; `on_jax` marks those of the group for the second backend.

    These are one head of each case with layers of another kind; before a release, all heads of one architecture.
    """

    def second_backend(case: Case, task: str) -> Any:
        if not (on_jax and case.on_jax):
            return ()
        if task == case.tasks[0]:
            return pytest.mark.jax
        return pytest.mark.jax_release if case.model_type == HEADS[0] else ()

    return [
        pytest.param((case, task), id=f"{case}-{task}", marks=second_backend(case, task))
        for case in cases
        for task in case.tasks
        if tasks is None or task in tasks
    ]


def with_entry(settings: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Returns settings with another value of an entry, whose name has dots inside of nested settings.

    All nested settings that have it get the value, since the stacks of a model may have to agree.
    """
    *parents, last = name.split(".")
    if not parents:
        return {**settings, name: value}

    def changed(inner: Any) -> Any:
        if not isinstance(inner, Mapping):
            return inner
        return {key: value if key == last else changed(entry) for key, entry in inner.items()}

    return {key: changed(inner) for key, inner in settings.items()}


def first_of_each(parameters: Iterable[Any]) -> list[Any]:
    """Gives all but the first configuration of each architecture the mark `grid`."""
    return _always(FIRST, parameters)


def distinct(parameters: Iterable[Any]) -> list[Any]:
    """Gives all but the first configuration of each architecture that has layers of its own the mark `grid`."""
    return _always(DISTINCT, parameters)


def before_a_release(parameters: Iterable[Any]) -> list[Any]:
    """Gives what has the mark `grid` the mark `release` instead, where other tests of CI show the same."""
    return [
        pytest.param(
            *each.values,
            id=each.id,
            marks=[pytest.mark.release if mark.name == "grid" else mark for mark in each.marks],
        )
        for each in parameters
    ]


def less_on_jax(parameters: Iterable[Any], names: Container[str] = ()) -> list[Any]:
    """Leaves the second backend to releases, except for the cases of these names: their layers are compared there."""

    def mark(mark: Any, case: Case) -> Any:
        return pytest.mark.jax_release if mark.name == "jax" and case.name not in names else mark

    return [
        pytest.param(*each.values, id=each.id, marks=[mark(own, each.values[0][0]) for own in each.marks])
        for each in parameters
    ]


def first_tasks(parameters: Iterable[Any]) -> list[Any]:
    """Returns the first head of each case, for what the layers decide alone."""
    return [each for each in parameters if each.values[0][1] == each.values[0][0].tasks[0]]


def of_heads(parameters: Iterable[Any]) -> list[Any]:
    """Gives all architectures but `HEADS` the mark `grid`, for what has one implementation."""
    return [each if each.values[0][0].model_type in HEADS else marked(each, pytest.mark.grid) for each in parameters]


def main_tasks(parameters: Iterable[Any]) -> list[Any]:
    """Leaves the heads after the first to CI, and those of relatives and of further configurations to releases.

    Without marks, all heads of `HEADS` are tested, and one of every other architecture.
    """

    def mark(case: Case, task: str) -> list[Any]:
        if task == case.tasks[0]:
            return []
        if case not in FIRST or case.model_type in RELATIVES:
            return [pytest.mark.release]
        return [] if case.model_type in HEADS else [pytest.mark.grid]

    return [marked(each, *mark(case, task)) for each in parameters for case, task in each.values]


def marked(parameter: Any, *marks: Any) -> Any:
    """Returns the parameter with further marks."""
    return pytest.param(*parameter.values, id=parameter.id, marks=(*parameter.marks, *marks))


def _always(cases: tuple[Case, ...], parameters: Iterable[Any]) -> list[Any]:
    return [each if each.values[0][0] in cases else marked(each, pytest.mark.grid) for each in parameters]

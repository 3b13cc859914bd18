"""Full grids of parameters: a part of each always runs, more in CI, and the rest before a release.

The mark `grid` is for what CI runs in addition to `pytest`. The mark `release` is for combinations of parts of which CI
runs each: they repeat layers, a head and a recipe that other tests show. Single tests that cost seconds for such a
repetition are listed in release.txt; those that cost seconds in a first run and show another row of what it has, in
grid.txt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable
from itertools import product
from typing import Any

import pytest


def grid(
    *axes: Iterable[Any],
    always: Container[Any] | Callable[..., bool],
    release: Container[Any] | Callable[..., bool] = (),
    others: str = "grid",
) -> list[Any]:
    """All combinations of the axes, as parameters; those outside `always` have the mark `others` or `release`.

    Args:
        axes: Values of each parameter.
        always: The combinations, or a function that picks them; of a single axis, the values themselves.
        release: Those that run only before a release, likewise, unless they are in `always`.
        others: Mark of what is in neither; `"release"` in a file that CI alone runs.
    """

    def mark(*values: Any) -> Any:
        if _picked(always, values):
            return ()
        return pytest.mark.release if _picked(release, values) else getattr(pytest.mark, others)

    return [pytest.param(*values, marks=mark(*values)) for values in product(*axes)]


UNUSED = pytest.StashKey[list[str]]()
"""Lines of grid.txt and release.txt that are no test of a whole run."""


def mark_listed(items: Iterable[pytest.Item], lines: Iterable[str], mark: pytest.MarkDecorator) -> list[str]:
    """Marks the tests of a list.

    Args:
        items: Tests.
        lines: Lines of the list: a comment, or the path of a file, a function or a row in the folder tests.
        mark: What they get.

    Returns:
        Lines to which no test belongs.
    """
    unused = {line for line in map(str.strip, lines) if line and not line.startswith("#")}
    listed = frozenset(unused)
    for item in items:
        row = item.nodeid.removeprefix("tests/")
        function = row.partition("[")[0]
        for found in listed & {row, function, function.partition("::")[0]}:
            item.add_marker(mark)
            unused.discard(found)
    return sorted(unused)


def on_jax(*axes: Iterable[Any], chosen: Container[Any] | Callable[..., bool]) -> list[Any]:
    """All combinations of the axes, as parameters of a test that also runs on the second backend.

    Args:
        axes: Values of each parameter.
        chosen: Those that CI runs there, as `always` of `grid`; the others have the mark `jax_release`.
    """

    def mark(*values: Any) -> Any:
        return pytest.mark.jax if _picked(chosen, values) else pytest.mark.jax_release

    return [pytest.param(*values, marks=mark(*values)) for values in product(*axes)]


def _picked(which: Container[Any] | Callable[..., bool], values: tuple[Any, ...]) -> bool:
    if callable(which):
        return which(*values)
    return (values if len(values) > 1 else values[0]) in which


def repeats(parts: Iterable[Collection[Hashable]]) -> list[bool]:
    """Returns for each combination whether all of its parts appear in earlier ones."""
    seen: set[Hashable] = set()
    found = []
    for each in parts:
        found.append(seen.issuperset(each))
        seen.update(each)
    return found

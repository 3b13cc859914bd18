"""Full grids of parameters: a part of each always runs, the rest with `pytest -m grid`."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import product
from typing import Any

import pytest


def grid(*axes: Iterable[Any], always: Container[Any] | Callable[..., bool]) -> list[Any]:
    """All combinations of the axes, as parameters; those outside `always` have the mark `grid`.

    Args:
        axes: Values of each parameter.
        always: The combinations, or a function that picks them; of a single axis, the values themselves.
    """

    def picked(*values: Any) -> bool:
        return always(*values) if callable(always) else (values if len(values) > 1 else values[0]) in always

    return [pytest.param(*values, marks=() if picked(*values) else pytest.mark.grid) for values in product(*axes)]

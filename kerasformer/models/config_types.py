"""Kinds of values that a configuration may have, as types: what a value must be is written where its field is declared.

vocab_size: Size = hf("vocab_size", 30522)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included unless `above` leaves `low` out."""

    low: float
    high: float
    above: bool = False

    def holds(self, value: Any) -> bool:
        """Whether a number is within; NaN is not."""
        return bool(self.low <= value <= self.high and not (self.above and value == self.low))

    def __str__(self) -> str:
        return f"{'above' if self.above else 'from'} {self.low:.10g} to {self.high:.10g}"


@dataclass(frozen=True)
class Pattern:
    """Texts that a regular expression matches as a whole; `meaning` describes them."""

    expression: str
    meaning: str

    def holds(self, value: Any) -> bool:
        """Whether the expression matches a text."""
        return re.fullmatch(self.expression, value) is not None

    def __str__(self) -> str:
        return self.meaning


@dataclass(frozen=True)
class LayerRange(Range):
    """A number of layers, each of which has tensors of its own."""


MOST_LABELS = 2**17

Size = Annotated[int, Range(1, 2**31 - 1)]
Count = Annotated[int, Range(0, 2**31 - 1)]
"""Of things that may be absent."""
Layers = Annotated[int, LayerRange(1, 4096)]
Repeats = Annotated[int, Range(1, 4096)]
"""Layers that may share their tensors."""
Distance = Annotated[int, Range(1, 2**20)]
"""In tokens; a table of all distances is made."""
TokenId = Annotated[int, Range(0, 2**31 - 1)]
Rate = Annotated[float, Range(0, 1)]
"""Of dropout."""
Epsilon = Annotated[float, Range(0, 1, above=True)]
Deviation = Annotated[float, Range(0, 1e6)]
"""Of random weights."""
Factor = Annotated[float, Range(1e-6, 1e6)]
"""Of all of these."""


def fits(kind: Any, value: Any) -> bool:
    """Whether a value is of a kind: a type, perhaps with a range, or a choice of several."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return fits(arguments[0], value) and all(limit.holds(value) for limit in arguments[1:])
    if origin in (Union, UnionType):
        return any(fits(each, value) for each in arguments)
    if origin is Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(fits(arguments[0], item) for item in value)
    if origin is dict:
        return isinstance(value, Mapping) and all(
            fits(arguments[0], key) and fits(arguments[1], item) for key, item in value.items()
        )
    if kind in (int, float):
        number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        return number and (kind is int or math.isfinite(value))
    return kind is Any or isinstance(value, kind)


def described(kind: Any) -> str:
    """The kind in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return ", ".join([described(arguments[0]), *map(str, arguments[1:])])
    if origin in (Union, UnionType):
        return " or ".join(described(each) for each in arguments)
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin in (list, dict):
        return f"{origin.__name__} of {' to '.join(described(each) for each in arguments)}"
    return "null" if kind is NoneType else "any value" if kind is Any else f"of type {kind.__name__}"


def is_layers(kind: Any) -> bool:
    """Whether a value of this kind counts layers with tensors of their own."""
    return any(isinstance(limit, LayerRange) or is_layers(limit) for limit in get_args(kind))

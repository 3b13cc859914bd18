"""Types of configuration values, which include the valid range.

A field declares both at once: `vocab_size: Size = hf("vocab_size", 30522)`.
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
    """Range of numbers from `low` to `high`, both included; `above` excludes `low`."""

    low: float
    high: float
    above: bool = False

    def holds(self, value: float) -> bool:
        """Whether a number is in the range; NaN is not."""
        return bool(self.low <= value <= self.high and not (self.above and value == self.low))

    def __str__(self) -> str:
        return f"{'above' if self.above else 'from'} {self.low:.10g} to {self.high:.10g}"


@dataclass(frozen=True)
class Pattern:
    """Strings that match a regular expression as a whole; `meaning` describes them in error messages."""

    expression: str
    meaning: str

    def holds(self, value: str) -> bool:
        """Whether the expression matches a string."""
        return re.fullmatch(self.expression, value) is not None

    def __str__(self) -> str:
        return self.meaning


@dataclass(frozen=True)
class LayerRange(Range):
    """Range of a number of layers that have separate weights."""


@dataclass(frozen=True)
class TokenIdRange(Range):
    """Range of ids of tokens."""


MOST_LABELS = 2**17
"""Maximum number of classes."""

Size = Annotated[int, Range(1, 2**31 - 1)]
Count = Annotated[int, Range(0, 2**31 - 1)]
"""Number that may be 0."""
Layers = Annotated[int, LayerRange(1, 4096)]
Repeats = Annotated[int, Range(1, 4096)]
"""Number of layers that may share weights."""
Distance = Annotated[int, Range(1, 2**20)]
"""Distance in tokens, limited because there is a table of all distances."""
TokenId = Annotated[int, TokenIdRange(0, 2**31 - 1)]
Rate = Annotated[float, Range(0, 1)]
"""Dropout rate."""
Epsilon = Annotated[float, Range(0, 1, above=True)]
Deviation = Annotated[float, Range(0, 1e6)]
"""Standard deviation of random weights."""
Positive = Annotated[float, Range(0, 1e9, above=True)]
Factor = Annotated[float, Range(1e-6, 1e6)]
"""Factor of the standard deviation of all random weights."""

FeedForwardKind = Annotated[str, Pattern("(gated-)?[^-]+", "such as 'relu' or 'gated-relu'")]
"""Activation of a feed-forward network, after `gated-` if the network is gated."""


def fits(hint: Any, value: Any) -> bool:
    """Whether a value has a type, which may include a range or be a union."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fits(arguments[0], value) and all(limit.holds(value) for limit in arguments[1:])
    if origin in (Union, UnionType):
        return any(fits(argument, value) for argument in arguments)
    if origin is Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(fits(arguments[0], item) for item in value)
    if origin is dict:
        return isinstance(value, Mapping) and all(
            fits(arguments[0], key) and fits(arguments[1], item) for key, item in value.items()
        )
    if hint in (int, float):
        number = isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
        return number and (hint is int or math.isfinite(value))
    return hint is Any or isinstance(value, hint)


def described(hint: Any) -> str:
    """Describes a type for error messages."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return ", ".join([described(arguments[0]), *map(str, arguments[1:])])
    if origin in (Union, UnionType):
        return " or ".join(described(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin in (list, dict):
        return f"{origin.__name__} of {' to '.join(described(argument) for argument in arguments)}"
    return "null" if hint is NoneType else "any value" if hint is Any else f"of type {hint.__name__}"


def is_layers(hint: object) -> bool:
    """Whether a type is a number of layers that have separate weights."""
    return _has_range(hint, LayerRange)


def is_token_id(hint: object) -> bool:
    """Whether a type is the id of a token, or a list of ids."""
    return _has_range(hint, TokenIdRange)


def _has_range(hint: object, range_type: type[Range]) -> bool:
    return any(isinstance(limit, range_type) or _has_range(limit, range_type) for limit in get_args(hint))

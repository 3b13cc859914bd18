"""Validation of public arguments: what a value may be, and one form of error message if it is not.

    top_k = check("top_k", top_k, optional(integer(1)))
    task = check("task", task, one_of("fill-mask", "text-generation"))

Values are returned as plain Python: NumPy scalars as numbers; lists, arrays and iterators as tuples. `True`, NaN and
infinity are not accepted as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from kerasformer.errors import InputError, KerasformerError

Arguments = dict[str, Any]
"""Arguments of a call by name; their types are those of the function's parameters."""

_Value = TypeVar("_Value")

_SHOWN = 80
"""Maximum number of characters of an invalid value in an error message."""


@dataclass(frozen=True)
class Kind:
    """Description of the values that an argument accepts.

    Attributes:
        expected: Text that follows "must be" in the error message.
        convert: Converts a value to its plain form; raises `TypeError`, `ValueError` or `OverflowError` for an invalid
            value.
    """

    expected: str
    convert: Callable[[Any], Any]

    def where(self, holds: Callable[[Any], bool], expected: str) -> Kind:
        """Returns this kind with an additional condition.

        Args:
            holds: Condition on the plain value.
            expected: New text for the error message.
        """
        return Kind(expected, lambda value: _require(self.convert(value), holds))


def check(name: str, value: object, kind: Kind, *, error: type[KerasformerError] = InputError, advice: str = "") -> Any:
    """Checks an argument and returns its value in plain form.

    Args:
        name: Name of the argument, for the error message.
        value: Value passed by the caller.
        kind: Values that are accepted.
        error: Type of the exception.
        advice: Sentence appended to the error message.
    Raises:
        KerasformerError: the value is not accepted; the type is `error`.
    """
    try:
        return kind.convert(value)
    except KerasformerError:  # already has a more specific message
        raise
    except (TypeError, ValueError, OverflowError):
        received = f"{name} must be {kind.expected}. Received: {name}={shown(value)}"
    raise error(f"{received}. {advice}" if advice else received)


def integer(low: int | None = None, high: int | None = None) -> Kind:
    """An integer within inclusive limits; `True` and `False` are not integers."""
    return Kind(f"an integer{_limits(low, high)}", lambda value: _within(_plain(value, int), low, high))


def number(low: float | None = None, high: float | None = None, *, above: float | None = None) -> Kind:
    """A finite number within limits.

    Args:
        low: Smallest allowed value.
        high: Largest allowed value.
        above: Exclusive lower limit.
    """

    def convert(value: object) -> int | float:
        plain = _plain(value, int, float)
        return _within(_require(plain, lambda v: math.isfinite(v) and (above is None or v > above)), low, high)

    limits = _limits(low, high) if above is None else f" above {above:g}"
    return Kind(f"a {'' if limits else 'finite '}number{limits}", convert)


def one_of(*values: object) -> Kind:
    """One of the given values; types must match too, so 1 is not `True`."""

    def convert(value: object) -> object:
        plain = _plain(value, *{type(each) for each in values})
        return values[[(type(each), each) for each in values].index((type(plain), plain))]

    names = [repr(value) if isinstance(value, str) else str(value) for value in values]
    return Kind(" or ".join(filter(None, [", ".join(names[:-1]), names[-1]])), convert)


def sequence(kind: Kind, least: int = 0) -> Kind:
    """Several values of a kind, returned as a tuple. Strings and mappings are not accepted as sequences.

    Args:
        kind: Kind of each item.
        least: Minimum number of items.
    """

    def convert(value: object) -> tuple[Any, ...]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError
        return _require(tuple(kind.convert(each) for each in value), lambda values: len(values) >= least)

    return Kind(f"a {'non-empty ' if least else ''}list, each item {kind.expected}", convert)


def optional(kind: Kind) -> Kind:
    """A value of the given kind, or `None`."""
    return Kind(f"{kind.expected}, or None", lambda value: None if value is None else kind.convert(value))


def instance(expected: str, *types: type) -> Kind:
    """An instance of one of the given types.

    Args:
        expected: Text for the error message.
        types: Types such as `str`; a NumPy scalar counts as the Python value that it holds.
    """
    return Kind(expected, lambda value: _plain(value, *types))


BOOLEAN = instance("True or False", bool)
STRING = instance("a string", str)
TEXT = Kind("a string without lone surrogates", lambda value: STRING.convert(value).encode().decode())
"""A string that can be encoded in UTF-8, as writing and tokenizing it require."""
FUNCTION = Kind("a function", lambda value: _require(value, callable))


def shown(value: object) -> str:
    """Returns a short representation of a value for error messages, even if its `repr` fails."""
    try:
        text = repr(value)
    except Exception:  # an integer of 5,000 digits has no repr; a user's class may raise anything
        text = f"{type(value).__name__} that cannot be shown"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _plain(value: object, *types: type) -> Any:
    """Returns a value of one of these types, a NumPy scalar as a Python value; `True` is not an integer."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError
    return value


def _within(value: Any, low: float | None, high: float | None) -> Any:
    return _require(value, lambda v: (low is None or v >= low) and (high is None or v <= high))


def _require(value: _Value, holds: Callable[[_Value], bool]) -> _Value:
    if not holds(value):
        raise ValueError
    return value


def _limits(low: float | None, high: float | None) -> str:
    texts = [f"{limit:g}" if isinstance(limit, float) else str(limit) for limit in (low, high) if limit is not None]
    if low is not None and high is not None:
        return f" from {texts[0]} to {texts[1]}"
    return f" of at {'most' if low is None else 'least'} {texts[0]}" if texts else ""

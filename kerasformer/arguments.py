"""The door that public arguments pass through: what a value may be, and one text for the error if it is not.

    top_k = check("top_k", top_k, optional(integer(1)))
    task = check("task", task, one_of("fill-mask", "text-generation"))

A value comes back in plain Python: NumPy's scalars as numbers, a list, array or iterator as a tuple. `True` is no
number, and NaN and infinity are none either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.errors import InputError, KerasformerError, argument

_SHOWN = 80
"""Characters of a refused value that an error shows."""


@dataclass(frozen=True)
class Kind:
    """What an argument may be.

    Attributes:
        expected: What follows "must be" in the error.
        convert: From a value to its plain form; raises `TypeError`, `ValueError` or `OverflowError` for any other.
    """

    expected: str
    convert: Callable[[Any], Any]

    def where(self, holds: Callable[[Any], bool], expected: str) -> Kind:
        """The same with one more condition on the plain value.

        Args:
            holds: The condition.
            expected: Replaces the description.
        """
        return Kind(expected, lambda value: _require(self.convert(value), holds))


def check(name: str, value: Any, kind: Kind, *, error: type[KerasformerError] = InputError, advice: str = "") -> Any:
    """The value in its plain form.

    Args:
        name: Of the argument, for the message.
        value: As it was given.
        kind: What it may be.
        error: What is raised.
        advice: A sentence that ends the message.
    Raises:
        KerasformerError: `error`, where the value is of another kind.
    """
    try:
        return kind.convert(value)
    except KerasformerError:  # is one that says more
        raise
    except (TypeError, ValueError, OverflowError):
        received = f"{argument(name)} must be {kind.expected}. Received: {argument(name, shown=shown(value))}"
    raise error(f"{received}. {advice}" if advice else received)


def integer(low: int | None = None, high: int | None = None) -> Kind:
    """An integer within limits, both included; `True` and `False` are none."""
    return Kind(f"an integer{_limits(low, high)}", lambda value: _within(_plain(value, int), low, high))


def number(low: float | None = None, high: float | None = None, *, above: float | None = None) -> Kind:
    """A finite number within limits, both included.

    Args:
        low: Smallest value.
        high: Largest value.
        above: A limit that is not itself allowed.
    """

    def convert(value: Any) -> int | float:
        plain = _plain(value, int, float)
        return _within(_require(plain, lambda v: math.isfinite(v) and (above is None or v > above)), low, high)

    limits = _limits(low, high) if above is None else f" above {above:g}"
    return Kind(f"a {'' if limits else 'finite '}number{limits}", convert)


def one_of(*values: Any) -> Kind:
    """One of some values, each with its own type: 1 is not `True`."""

    def convert(value: Any) -> Any:
        plain = _plain(value, *{type(each) for each in values})
        return values[[(type(each), each) for each in values].index((type(plain), plain))]

    names = [repr(value) if isinstance(value, str) else str(value) for value in values]
    return Kind(" or ".join(filter(None, [", ".join(names[:-1]), names[-1]])), convert)


def sequence(kind: Kind, least: int = 0) -> Kind:
    """Several values of a kind, as a tuple. A text or a mapping is no sequence.

    Args:
        kind: Of each.
        least: Fewest values.
    """

    def convert(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError
        return _require(tuple(kind.convert(each) for each in value), lambda values: len(values) >= least)

    return Kind(f"a {'non-empty ' if least else ''}list, each item {kind.expected}", convert)


def optional(kind: Kind) -> Kind:
    """The kind, or `None`."""
    return Kind(f"{kind.expected}, or None", lambda value: None if value is None else kind.convert(value))


def instance(expected: str, *types: type) -> Kind:
    """A value of one of some types.

    Args:
        expected: Describes it.
        types: Such as `str`; a NumPy scalar counts as the Python value that it holds.
    """
    return Kind(expected, lambda value: _plain(value, *types))


BOOLEAN = instance("True or False", bool)
STRING = instance("a string", str)
TEXT = Kind("a string without lone surrogates", lambda value: STRING.convert(value).encode().decode())
"""A string of whole characters, which alone can be written and tokenized."""
FUNCTION = Kind("a function", lambda value: _require(value, callable))


def shown(value: Any) -> str:
    """A value as an error shows it: short, and whatever its own `repr` does."""
    try:
        text = repr(value)
    except Exception:  # an integer of 5,000 digits has none; a caller's own class may raise anything
        text = f"{type(value).__name__} that cannot be shown"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _plain(value: Any, *types: type) -> Any:
    """The value of one of these types, a NumPy scalar as Python's; `True` is no integer."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError
    return value


def _within(value: Any, low: float | None, high: float | None) -> Any:
    return _require(value, lambda v: (low is None or v >= low) and (high is None or v <= high))


def _require(value: Any, holds: Callable[[Any], bool]) -> Any:
    if not holds(value):
        raise ValueError
    return value


def _limits(low: float | None, high: float | None) -> str:
    texts = [f"{limit:g}" if isinstance(limit, float) else str(limit) for limit in (low, high) if limit is not None]
    if low is not None and high is not None:
        return f" from {texts[0]} to {texts[1]}"
    return f" of at {'most' if low is None else 'least'} {texts[0]}" if texts else ""

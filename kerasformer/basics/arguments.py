"""Validation of public arguments: what a value may be, and one form of error message if it is not.

    top_k = check("top_k", top_k, optional(integer(1)))
    task = check("task", task, one_of("fill-mask", "text-generation"))
    manifest = check("", content_of_a_file, kind_of(Manifest))

Values are returned as plain Python: NumPy scalars as numbers; lists, arrays and iterators as tuples. `True`, NaN and
infinity are not accepted as numbers. The annotations of a dataclass describe the content of a JSON file; an error names
the item that is wrong, such as `info.labels[1]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

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

    def accepts(self, value: object) -> bool:
        """Whether a value is of this kind."""
        try:
            self.convert(value)
        except (TypeError, ValueError, OverflowError):
            return False
        return True


class _WrongItem(ValueError):
    """A value, or an item in it, that is not accepted; arguments: its place, what is expected there, and the item."""


def check(
    name: str, value: object, kind: Kind, *, error: Callable[[str], KerasformerError] = InputError, advice: str = ""
) -> Any:
    """Checks an argument and returns its value in plain form.

    Args:
        name: Name of the argument, for the error message; or where the value stands, and empty for a whole file.
        value: Value passed by the caller.
        kind: Values that are accepted.
        error: Type of the exception, or a function that creates it.
        advice: Sentence appended to the error message.
    Raises:
        KerasformerError: the value is not accepted; the type is `error`.
    """
    try:
        return _item(name, value, kind)
    except _WrongItem as wrong:
        place, expected, item = wrong.args
    place = place.lstrip(".") or "its content"
    named = f"{place}=" if place.isidentifier() else ""
    received = f"{place} must be {expected}. Received: {named}{shown(item)}"
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

    limits = _limits(low, high) if above is None else f" above {above:g}{'' if high is None else f', up to {high:g}'}"
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


def mapping(key: Kind, kind: Kind) -> Kind:
    """A dictionary, or an object of JSON, with keys and values of these kinds."""

    def convert(value: object) -> dict[Any, Any]:
        items = {f".{name}": (name, item) for name, item in _plain(value, Mapping).items()}
        return {_item(place, name, key): _item(place, item, kind) for place, (name, item) in items.items()}

    return Kind(f"an object, each value {kind.expected}", convert)


def optional(kind: Kind) -> Kind:
    """A value of the given kind, or `None`."""
    return Kind(f"{kind.expected}, or None", lambda value: None if value is None else kind.convert(value))


def any_of(*kinds: Kind) -> Kind:
    """A value of one of the given kinds, converted by the first that accepts it."""

    def convert(value: object) -> Any:
        for kind in kinds:
            with suppress(TypeError, ValueError, OverflowError):
                return kind.convert(value)
        raise TypeError

    return kinds[0] if len(kinds) == 1 else Kind(" or ".join(kind.expected for kind in kinds), convert)


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
ANYTHING = Kind("any value", lambda value: value)


@cache  # a manifest contains a thousand tensors, and evaluation would take most of the time to read it
def kind_of(hint: Any) -> Kind:
    """Values of an annotated type, such as that of a field that a JSON file sets. Integers become `float` where needed.

    Args:
        hint: A type; `Any`; `Literal`; a union; a list, tuple or dictionary of such; `Annotated` with a kind; or a
            dataclass, for an object with its fields.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind: Kind = arguments[1]
        return Kind(kind.expected, lambda value: float(kind.convert(value))) if arguments[0] is float else kind
    if origin in (Union, UnionType):
        kind = any_of(*(kind_of(argument) for argument in arguments if argument is not NoneType))
        return optional(kind) if NoneType in arguments else kind
    if origin is Literal:
        return one_of(*arguments)
    if origin in (list, tuple):
        return _list_of(kind_of(arguments[0]), origin)
    if origin is dict:
        return mapping(*map(kind_of, arguments))
    if is_dataclass(hint):
        return _object_of(hint)
    return _PLAIN[hint]


def _list_of(kind: Kind, create: Callable[[Iterable[Any]], Any]) -> Kind:
    def convert(value: object) -> Any:
        items = enumerate(_plain(value, list, tuple))
        return create(_item(f"[{index}]", item, kind) for index, item in items)

    return Kind(f"a list, each item {kind.expected}", convert)


def _object_of(created: Any) -> Kind:
    hints = get_type_hints(created, include_extras=True)
    kinds = {field.name: kind_of(hints[field.name]) for field in fields(created)}
    required = [f.name for f in fields(created) if f.default is MISSING and f.default_factory is MISSING]

    def convert(value: object) -> Any:
        content = _plain(value, Mapping)
        for name in content:
            if name not in kinds:
                raise _WrongItem(f".{name}", f"left out: the fields are {', '.join(kinds)}", content[name])
        for name in required:
            if name not in content:
                raise _WrongItem(f".{name}", f"present: {kinds[name].expected}", None)
        return created(**{name: _item(f".{name}", item, kinds[name]) for name, item in content.items()})

    return Kind("an object", convert)


def _item(place: str, item: object, kind: Kind) -> Any:
    """Converts an item of a value; the error has its place."""
    try:
        return kind.convert(item)
    except KerasformerError:  # already has a more specific message
        raise
    except _WrongItem as wrong:
        inner, *details = wrong.args
        raise _WrongItem(place + inner, *details) from None
    except (TypeError, ValueError, OverflowError):
        raise _WrongItem(place, kind.expected, item) from None


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


_PLAIN: Mapping[Any, Kind] = {
    Any: ANYTHING,
    bool: BOOLEAN,
    int: integer(),
    float: kind_of(Annotated[float, number()]),
    str: STRING,
    list: instance("a list", list),
    dict: instance("an object", dict),
}

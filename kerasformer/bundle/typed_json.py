"""Conversion of the JSON of a manifest to annotated dataclasses."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from kerasformer.errors import BundleError
from kerasformer.files.publishing import MANIFEST


def parse(kind: Any, value: Any, where: str) -> Any:
    """Converts a JSON value to an annotated type.

    Args:
        kind: The type: a dataclass, or the annotation of a field of one.
        value: The value.
        where: Dotted name of the field, for error messages.

    Raises:
        BundleError: the value is not of this type; the message names the field and the type.
    """
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal and value in arguments:
        return value
    if origin is UnionType:
        if value is None and NoneType in arguments:
            return None
        plain = tuple(argument for argument in arguments if argument is not NoneType)
        if len(plain) == 1:
            return parse(plain[0], value, where)
        if isinstance(value, plain) and not isinstance(value, bool):
            return value
    elif origin is tuple and isinstance(value, list):
        return tuple(parse(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    elif origin is dict and isinstance(value, dict):
        return {key: parse(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    elif isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    expected = kind.__name__ if isinstance(kind, type) and origin is None else str(kind)
    raise BundleError(f"{MANIFEST}: {where} must be {expected}. Received: {value!r}")


_type_hints = cache(get_type_hints)
"""Evaluated once for each class: a manifest contains a thousand tensors, and evaluation took most of the load time."""


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise BundleError(f"{MANIFEST}: {where} must be an object. Received: {value!r}")
    prefix = f"{where}." if where else ""
    hints = _type_hints(kind)
    if unknown := sorted(set(value) - set(hints)):
        raise BundleError(f"{MANIFEST}: unknown fields {[prefix + name for name in unknown]}. Expected: {list(hints)}")
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    if missing := [prefix + name for name in required if name not in value]:
        raise BundleError(f"{MANIFEST}: the fields {missing} are missing")
    return kind(**{name: parse(hints[name], item, prefix + name) for name, item in value.items()})

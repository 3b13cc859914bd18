"""What a setting may be: a field of `GenerationConfig` together with its check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerasformer.errors import GenerationError

Check = tuple[str, Callable[[Any], bool]]
"""What is expected, in words, and whether a value is that."""


def whole(low: int) -> Check:
    """A whole number."""
    return f"a whole number of at least {low}", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= low


def between(low: float, high: float) -> Check:
    """A number within limits."""
    return f"a number from {low:g} to {high:g}", lambda v: _is_number(v) and low <= v <= high


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _is_decay(value: Any) -> bool:
    start, factor = value
    return whole(0)[1](start) and POSITIVE[1](factor)


def _is_bias(value: Any) -> bool:
    return _is_number(value) or value == -np.inf


NUMBER: Check = ("a finite number", _is_number)
POSITIVE: Check = ("a number above 0", lambda v: _is_number(v) and v > 0)
# Below, logits would be divided beyond float32.
TEMPERATURE: Check = ("a number of at least 1e-06", lambda v: _is_number(v) and v >= 1e-6)
FLAG: Check = ("True or False", lambda v: isinstance(v, bool))
FUNCTION: Check = ("a function", callable)
EARLY: Check = ('True, False or "never"', lambda v: isinstance(v, bool) or v == "never")
DECAY: Check = ("a pair: a number of tokens and a factor above 0", _is_decay)
TOKEN: Check = whole(0)
TOKENS: Check = ("a token id or a list of them", lambda v: all(TOKEN[1](token) for token in v))
SEQUENCES: Check = ("a list of non-empty lists of token ids", lambda v: all(s and TOKENS[1](s) for s in v))
BIASES: Check = (
    "a list of [token ids, bias] pairs, a bias being finite or minus infinity",
    lambda v: all(s and TOKENS[1](s) and _is_bias(bias) for s, bias in v),
)
STRINGS: Check = ("a non-empty string or a list of them", lambda v: all(isinstance(s, str) and s for s in v))


def listed(value: Any) -> tuple[Any, ...]:
    """A single token or string counts as a list of one."""
    return (value,) if isinstance(value, int | str) else tuple(value)


def sequences(value: Any) -> tuple[Any, ...]:
    """Lists of lists as tuples of tuples."""
    return tuple(tuple(sequence) for sequence in value)


def biases(value: Any) -> tuple[Any, ...]:
    """A mapping or pairs as pairs; of several for one sequence the last counts."""
    pairs = value.items() if isinstance(value, Mapping) else value
    return tuple({tuple(sequence): bias for sequence, bias in pairs}.items())


def setting(
    default: Any, check: Check, convert: Callable[[Any], Any] | None = None, samples: bool = False, live: bool = False
) -> Any:
    """A field with its check.

    Args:
        default: Its value if nothing is given.
        check: What it may be, after `convert`.
        convert: Puts a value into its final form.
        samples: It means nothing to greedy search.
        live: No file can hold it.
    """
    about = {"check": check, "convert": convert, "samples": samples, "live": live}
    return dataclasses.field(default=default, metadata=about)


def checked(field: dataclasses.Field[Any], value: Any) -> Any:
    """The value of a field in its final form.

    Raises:
        GenerationError: a value that cannot be.
    """
    if value is None:
        return field.default
    expected, valid = field.metadata["check"]
    convert = field.metadata["convert"]
    plain = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    try:
        plain = convert(plain) if convert else plain
        right = valid(plain)
    except (TypeError, ValueError):
        right = False
    if not right:
        hint = " For the most probable token set do_sample=False." if field.name == "temperature" else ""
        raise GenerationError(f"{field.name} must be {expected}. Received: {field.name}={value!r}.{hint}")
    return plain

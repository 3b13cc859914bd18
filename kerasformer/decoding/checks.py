"""What a setting may be: a field of `GenerationConfig` together with its check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerasformer.arguments import STRING, Kind, check, integer, number, one_of, sequence
from kerasformer.errors import GenerationError


def single_or(several: Callable[[Any], tuple[Any, ...]], *types: type) -> Callable[[Any], tuple[Any, ...]]:
    """A value of one of these types counts as a list of one."""
    return lambda value: several((value,) if isinstance(value, types) else value)


def _sequences(value: Any) -> tuple[Any, ...]:
    return sequence(sequence(TOKEN, least=1)).convert(value)


def _biases(value: Any) -> tuple[Any, ...]:
    """A mapping or pairs as pairs; of several for one sequence the last counts."""
    pairs = value.items() if isinstance(value, Mapping) else value
    return tuple({_sequences([tokens])[0]: _bias(bias) for tokens, bias in pairs}.items())


def _bias(value: Any) -> float:
    return -np.inf if isinstance(value, float) and value == -np.inf else number().convert(value)


def _decay(value: Any) -> tuple[int, float]:
    start, factor = value
    return TOKEN.convert(start), POSITIVE.convert(factor)


MOST_ROWS = 4096
"""Hypotheses or results of one prompt: each has a cache of its own, and all are made at the first step."""
POSITIVE = number(above=0)
EARLY = one_of(True, False, "never")
TOKEN = integer(0, 2**31 - 1)  # ids are int32 in all engines
TOKENS = Kind("a token id or a list of them", single_or(sequence(TOKEN).convert, int, np.integer))
SEQUENCES = Kind("a list of non-empty lists of token ids", _sequences)
BIASES = Kind("a list of [token ids, bias] pairs, a bias being finite or minus infinity", _biases)
STRINGS = Kind(
    "a non-empty string or a list of them", single_or(sequence(STRING.where(bool, "a non-empty string")).convert, str)
)
DECAY = Kind("a pair: a number of tokens and a factor above 0", _decay)
# Below, logits would be divided beyond float32.
TEMPERATURE = number(1e-6)
SAMPLING_TEMPERATURE = number(0).where(
    lambda value: value == 0 or value >= 1e-6, "0, for the most probable token, or a number of at least 1e-06"
)


def setting(default: Any, kind: Kind, samples: bool = False, live: bool = False) -> Any:
    """A field with its check.

    Args:
        default: Its value if nothing is given.
        kind: What it may be.
        samples: It means nothing to greedy search.
        live: No file can hold it.
    """
    return dataclasses.field(default=default, metadata={"kind": kind, "samples": samples, "live": live})


def checked(field: dataclasses.Field[Any], value: Any) -> Any:
    """The value of a field in its final form.

    Raises:
        GenerationError: a value that cannot be.
    """
    if value is None:
        return field.default
    return check(field.name, value, field.metadata["kind"], error=GenerationError)

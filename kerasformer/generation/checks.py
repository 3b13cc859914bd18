"""Values that the fields of `GenerationConfig` accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerasformer.basics.arguments import STRING, Kind, integer, number, one_of, sequence


def allow_single(convert: Callable[[Any], tuple[Any, ...]], *types: type) -> Callable[[Any], tuple[Any, ...]]:
    """Extends the conversion of a list so that a value of one of these types is treated as a list of one item."""
    return lambda value: convert((value,) if isinstance(value, types) else value)


def _sequences(value: object) -> tuple[Any, ...]:
    return sequence(sequence(TOKEN, least=1)).convert(value)


def _biases(value: Any) -> tuple[Any, ...]:
    """Converts a mapping or a list of pairs to pairs; the last bias of a sequence wins."""
    pairs = value.items() if isinstance(value, Mapping) else value
    return tuple({_sequences([tokens])[0]: _bias(bias) for tokens, bias in pairs}.items())


def _bias(value: Any) -> float:
    return -np.inf if isinstance(value, float) and value == -np.inf else number().convert(value)


def _decay(value: Any) -> tuple[int, float]:
    start, factor = value
    return TOKEN.convert(start), POSITIVE.convert(factor)


MAX_ROWS = 4096
"""Largest number of beams or returned sequences: each needs its own cache, allocated at the first step."""
POSITIVE = number(above=0)
EARLY = one_of(True, False, "never")
TOKEN = integer(0, 2**31 - 1)  # ids are int32 in all engines
TOKENS = Kind("a token id or a list of token ids", allow_single(sequence(TOKEN).convert, int, np.integer))
SEQUENCES = Kind("a list of non-empty lists of token ids", _sequences)
BIASES = Kind("a list of [token ids, bias] pairs, where each bias is finite or minus infinity", _biases)
STRINGS = Kind(
    "a non-empty string or a list of non-empty strings",
    allow_single(sequence(STRING.where(bool, "a non-empty string")).convert, str),
)
DECAY = Kind("a pair of a number of tokens and a factor above 0", _decay)
# Dividing logits by a smaller temperature would overflow float32.
TEMPERATURE = number(1e-6)
SAMPLING_TEMPERATURE = number(0).where(
    lambda value: value == 0 or value >= 1e-6, "0 (greedy search) or a number of at least 1e-06"
)

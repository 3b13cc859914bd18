"""JSON of the vectors: compact, with the shortest float32 numbers, without characters that an editor could change."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import numpy as np


def dump(value: Any) -> str:
    """Returns compact JSON, with escapes for characters that are no visible letters or symbols of their own."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "".join(_escaped(letter) if _hides(letter) else letter for letter in text)


def _hides(letter: str) -> bool:
    return letter == "\ufffd" or (letter not in " \n" and unicodedata.category(letter)[0] in "CZ")


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def floats(values: Any) -> Any:
    """Returns float32 numbers as those float64 numbers whose JSON is shortest; infinities as text."""
    array = np.asarray(values, np.float32)
    if array.ndim:
        return [floats(each) for each in array]
    if not np.isfinite(array):
        return "-inf" if array < 0 else "inf"
    return float(np.format_float_scientific(array[()], unique=True, trim="-"))

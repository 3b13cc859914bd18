"""What `int8_static` has to know beforehand: between which values the inputs and outputs of each product lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranges:
    """Least and largest values of a product `x @ kernel + bias`, over all places where its kernel is used.

    Attributes:
        input: Of `x`.
        output: Of the result, bias included.
    """

    input: tuple[float, float]
    output: tuple[float, float]


Calibration = Mapping[str, Ranges]
"""Ranges by the path of the kernel's Keras variable."""

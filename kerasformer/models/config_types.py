"""Types of configuration values, which include the valid range.

A field declares both at once: `vocab_size: Size = hf("vocab_size", 30522)`.
"""

from __future__ import annotations

import re
from typing import Annotated

from kerasformer.basics.arguments import STRING, integer, number

MOST_LABELS = 2**17
"""Maximum number of classes."""

LAYERS = integer(1, 4096)
"""Number of layers that have separate weights."""
TOKEN_ID = integer(0, 2**31 - 1)

Size = Annotated[int, integer(1, 2**31 - 1)]
Count = Annotated[int, integer(0, 2**31 - 1)]
"""Number that may be 0."""
Layers = Annotated[int, LAYERS]
Repeats = Annotated[int, integer(1, 4096)]
"""Number of layers that may share weights."""
Distance = Annotated[int, integer(1, 2**20)]
"""Distance in tokens, limited because there is a table of all distances."""
TokenId = Annotated[int, TOKEN_ID]
Rate = Annotated[float, number(0, 1)]
"""Dropout rate."""
Epsilon = Annotated[float, number(above=0, high=1)]
Deviation = Annotated[float, number(0, 1e6)]
"""Standard deviation of random weights."""
Positive = Annotated[float, number(above=0, high=1e9)]
Factor = Annotated[float, number(1e-6, 1e6)]
"""Factor of the standard deviation of all random weights."""

FeedForwardKind = Annotated[
    str,
    STRING.where(
        lambda name: re.fullmatch("(gated-)?[^-]+", name) is not None, "a string such as 'relu', 'gated-relu'"
    ),
]
"""Activation of a feed-forward network, after `gated-` if the network is gated."""

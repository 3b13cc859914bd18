"""A double-array trie in the layout of Darts-clone, which TF Text's operators read.

A node is a 32-bit unit: the label by which it is reached in bits 0–7, whether a value hangs on it in bit 8, and from
bit 10 the offset whose XOR with its place and a label gives the place of a child; bit 9 scales that offset by 256. A
value is a unit with bit 31.

Reference: https://github.com/s-yata/darts-clone, and `darts_clone_trie_wrapper.h` of TF Text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_BLOCK = 256
_OPEN_BLOCKS = 8
"""Places are looked for in so many of the last blocks alone, which costs a little room."""
_LARGEST_OFFSET = 1 << 21
_VALUE = ""
"""Key of a node's value among its children, which are under bytes."""


def double_array(values: Mapping[bytes, int]) -> np.ndarray:
    """The units of a trie.

    Args:
        values: Keys, at least one byte long and without zero bytes, to numbers below 2^31.

    Returns:
        uint32 `(n,)`.
    """
    root: dict[Any, Any] = {}
    for key, value in values.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[_VALUE] = value
    return _Builder().build(root)


class _Builder:
    """Places nodes block by block, a free place at a time."""

    def __init__(self) -> None:
        self.units = np.zeros(0, np.uint32)
        self.used = np.zeros(0, bool)
        self.bases: set[int] = {0}  # not for the root: SentencePiece takes one with the offset 0 for damage

    def build(self, root: dict[Any, Any]) -> np.ndarray:
        self._grow()
        self.used[0] = True
        waiting = [(0, root)]
        while waiting:
            place, node = waiting.pop()
            labels = [0 if label == _VALUE else label for label in node]
            base = self._base(place, labels)
            self.bases.add(base)
            offset = place ^ base
            scaled = offset >= _LARGEST_OFFSET
            self.units[place] |= (offset >> 8 << 10 | 1 << 9) if scaled else offset << 10
            for label, child in node.items():
                at = base if label == _VALUE else base ^ label
                self.used[at] = True
                if label == _VALUE:
                    self.units[place] |= 1 << 8
                    self.units[at] = child | 1 << 31
                else:
                    self.units[at] = label
                    waiting.append((at, child))
        return self.units

    def _base(self, place: int, labels: list[int]) -> int:
        """A number of which the XOR with every label is a free place; no two nodes share one."""
        count = len(self.units) // _BLOCK
        for block in range(max(0, count - _OPEN_BLOCKS), count):
            start = block * _BLOCK
            free = ~self.used[start : start + _BLOCK]
            for base in self._fitting(free, labels):
                if start + base not in self.bases and _encodable(place ^ (start + base)):
                    return start + base
        self._grow()
        return self._base(place, labels)

    @staticmethod
    def _fitting(free: np.ndarray, labels: list[int]) -> Iterable[int]:
        bases = np.arange(_BLOCK)
        fits = np.ones(_BLOCK, bool)
        for label in labels:
            fits &= free[bases ^ label]
        return np.flatnonzero(fits).tolist()

    def _grow(self) -> None:
        self.units = np.concatenate([self.units, np.zeros(_BLOCK, np.uint32)])
        self.used = np.concatenate([self.used, np.zeros(_BLOCK, bool)])


def _encodable(offset: int) -> bool:
    return offset < _LARGEST_OFFSET or (offset % 256 == 0 and offset < 1 << 29)

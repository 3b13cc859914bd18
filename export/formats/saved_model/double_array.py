"""Double-array trie in the layout of Darts-clone, which TF Text's operators use.

A node is a 32-bit unit. Bits 0–7 contain the label by which it is reached, bit 8 whether it has a value, and the bits
from 10 an offset: the XOR of the offset, the node's index and a label is the index of a child. Bit 9 scales the offset
by 256. A value is a unit with bit 31 set.

Reference: https://github.com/s-yata/darts-clone, and `darts_clone_trie_wrapper.h` of TF Text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_BLOCK = 256
_OPEN_BLOCKS = 8
"""Number of blocks, from the last, in which free units are searched; searching all of them would save little space."""
_LARGEST_OFFSET = 1 << 21
_VALUE = ""
"""Key of a node's value; the keys of its children are bytes."""


def double_array(values: Mapping[bytes, int]) -> np.ndarray:
    """Builds a trie.

    Args:
        values: Numbers below 2^31 by keys of at least one byte, without zero bytes.

    Returns:
        The units, uint32 `(n,)`.
    """
    root: dict[Any, Any] = {}
    for key, value in values.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[_VALUE] = value
    return _Builder().build(root)


class _Builder:
    """Assigns nodes to free units, block by block."""

    def __init__(self) -> None:
        self.units = np.zeros(0, np.uint32)
        self.used = np.zeros(0, bool)
        self.bases: set[int] = {0}  # the root must not have the offset 0, which SentencePiece treats as corrupt

    def build(self, root: dict[Any, Any]) -> np.ndarray:
        self._grow()
        self.used[0] = True
        pending = [(0, root)]
        while pending:
            index, node = pending.pop()
            labels = [0 if label == _VALUE else label for label in node]
            base = self._base(index, labels)
            self.bases.add(base)
            offset = index ^ base
            scaled = offset >= _LARGEST_OFFSET
            self.units[index] |= (offset >> 8 << 10 | 1 << 9) if scaled else offset << 10
            for label, child in node.items():
                child_index = base if label == _VALUE else base ^ label
                self.used[child_index] = True
                if label == _VALUE:
                    self.units[index] |= 1 << 8
                    self.units[child_index] = child | 1 << 31
                else:
                    self.units[child_index] = label
                    pending.append((child_index, child))
        return self.units

    def _base(self, index: int, labels: list[int]) -> int:
        """Finds an unused base whose XOR with every label is the index of a free unit."""
        count = len(self.units) // _BLOCK
        for block in range(max(0, count - _OPEN_BLOCKS), count):
            start = block * _BLOCK
            free = ~self.used[start : start + _BLOCK]
            for base in self._fitting(free, labels):
                if start + base not in self.bases and _encodable(index ^ (start + base)):
                    return start + base
        self._grow()
        return self._base(index, labels)

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

"""Description of block-sparse attention, and the random blocks that it has in training.

Shape letters: `H` query heads, `N` number of blocks, `R` number of random blocks.

Reference: Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", arXiv:2007.14062;
`transformers.models.big_bird`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kerasformer.errors import InputError

_PAPER_LENGTHS = (1024, 3072, 4096)
"""Lengths in tokens, after padding to whole blocks, whose random blocks are chosen as in the pretraining."""
_PAPER_RANGE = 1024
"""Number of first tokens whose blocks are chosen from at these lengths."""


@dataclass(frozen=True)
class SparseBlocks:
    """Description of block-sparse attention, in which blocks of queries attend to a few blocks of keys.

    Attributes:
        size: Number of tokens in a block.
        num_random: Number of random blocks that each block attends to.
        max_length: Length of the longest text in tokens, on which random blocks depend.
        seed: Seed of the random blocks; the layers of the reference use their index.
    """

    size: int
    num_random: int
    max_length: int
    seed: int = 0

    @property
    def full_length(self) -> int:
        """Length of the longest text with full attention, in tokens: of five blocks, and twice the random ones."""
        return (5 + 2 * self.num_random) * self.size

    def random_blocks(self, num_heads: int, num_blocks: int) -> np.ndarray:
        """Draws the random blocks of training, which are the same in every step.

        They equal those of the reference, whose stream of random numbers starts with `seed` at each call. A block may
        occur several times among the keys of a query, which then count several times.

        Args:
            num_heads: Number of heads `H`, each with its own random blocks.
            num_blocks: Number of blocks `N` of the text; more than `5 + 2 * num_random`.

        Returns:
            Indices of the random blocks of all blocks but the first and the last, int32 `(H, N - 2, R)`.

        Raises:
            InputError: a text has too few blocks to choose from.
        """
        drawn: np.ndarray = _drawn(self, num_heads, num_blocks)
        return drawn


@lru_cache(maxsize=256)
def _drawn(blocks: SparseBlocks, num_heads: int, num_blocks: int) -> np.ndarray:
    stream = np.random.RandomState(blocks.seed)  # a stream of its own: the global one is the program's
    count = blocks.num_random
    heads: list[list[Sequence[int] | np.ndarray]]
    if num_blocks * blocks.size in _PAPER_LENGTHS:
        # The blocks of the longest text, of which a shorter one uses the first.
        longest = max(blocks.max_length // blocks.size, num_blocks)
        candidates = [_paper_candidates(blocks, longest, row) for row in range(1, longest - 1)]
        drawn = [[stream.permutation(row)[:count] for row in candidates] for _ in range(num_heads)]
        heads = [list(rows[: num_blocks - 2]) for rows in drawn]
    else:
        heads = [[] for _ in range(num_heads)]
        for row in range(1, num_blocks - 1):
            for head in heads:
                head.append(_allowed(stream.permutation(5 + 2 * count), row)[:count])
    if any(len(row) < count for head in heads for row in head):
        raise InputError(
            "A text has too few blocks to choose random ones from. Expected: fewer random blocks, or more blocks. "
            f"Received: num_random={count}, {num_blocks} blocks of {blocks.size} tokens"
        )
    return np.array(heads, "int32")


def _allowed(blocks: np.ndarray, row: int) -> list[int]:
    """Returns those of the blocks that a block `row` does not attend to anyway; and neither ends of both ranges."""
    last = len(blocks) - 1
    forbidden = {row - 1, row, row + 1, 0, last}
    if row == 1:
        forbidden.add(last - 1)
    if row == last - 1:
        forbidden.add(1)
    return [block for block in blocks.tolist() if block not in forbidden]


def _paper_candidates(blocks: SparseBlocks, num_blocks: int, row: int) -> np.ndarray:
    """Returns the blocks from which those of a block `row` are chosen at the lengths of the pretraining."""
    middle = np.arange(1, num_blocks - 1)
    last = (_PAPER_RANGE // blocks.size if _PAPER_RANGE > 2 * blocks.size else num_blocks) - 1
    if row <= 2:
        return middle[row + 1 : last]
    if row >= num_blocks - 3:
        return middle[:last]
    start = row - 2
    if start > last:
        return middle[:last]
    if row + 1 == last:
        return middle[:start]
    return np.concatenate([middle[:start], middle[row + 1 : last]])

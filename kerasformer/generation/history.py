"""The tokens that have been generated so far."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np


@dataclasses.dataclass
class History:
    """The tokens of `R` rows (with several beams or samples, a prompt has several rows).

    Tokens are appended in place, into an array with room for more, so that earlier ones are not copied at each step.

    Attributes:
        ids: `(R, L)` int32, left-padded: the prompt (or an encoder-decoder's start token) and the generated tokens.
        starts: `(R,)` column of each row's first real token.
        prefix_length: Number of columns before the first generated token.
        prompts: Real tokens of each prompt, `(P_b,)` int32 each; for an encoder-decoder, the encoder input.
        rows: `(R,)` index into `prompts` of the prompt that each row continues.
        max_new_tokens: Number of generated tokens at which each row ends.
    """

    ids: np.ndarray
    starts: np.ndarray
    prefix_length: int
    prompts: tuple[np.ndarray, ...]
    rows: np.ndarray
    max_new_tokens: int = sys.maxsize
    _buffer: np.ndarray | None = dataclasses.field(default=None, init=False, repr=False)

    @property
    def num_new(self) -> int:
        """Number of tokens generated so far, the same for each row."""
        return self.ids.shape[1] - self.prefix_length

    def row(self, index: int) -> np.ndarray:
        """Returns all tokens of one row without padding, `(N,)`, so that rules do not depend on the batch."""
        return self.ids[index, self.starts[index] :]

    def before(self, index: int) -> np.ndarray:
        """Returns the tokens of one row before its first generated token, without padding, `(N,)`."""
        return self.ids[index, self.starts[index] : self.prefix_length]

    def new(self, index: int) -> np.ndarray:
        """Returns the generated tokens of one row, `(num_new,)`."""
        return self.ids[index, self.prefix_length :]

    def take(self, rows: np.ndarray) -> History:
        """Selects rows in the given order; rows may be repeated or omitted."""
        selected = self.ids[rows], self.starts[rows], self.prefix_length, self.prompts, self.rows[rows]
        return History(*selected, self.max_new_tokens)

    def append(self, tokens: np.ndarray) -> None:
        """Adds one token to each row, `(R,)`."""
        length = self.ids.shape[1]
        if self._buffer is None or length == self._buffer.shape[1]:
            self._buffer = np.empty((len(self.ids), 2 * length + _ROOM), np.int32)
            self._buffer[:, :length] = self.ids
        self._buffer[:, length] = tokens
        self.ids = self._buffer[:, : length + 1]


_ROOM = 64
"""Number of tokens for which even a short history gets room."""

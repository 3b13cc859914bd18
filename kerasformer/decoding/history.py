"""What has been said so far: the rows of tokens that rules look at."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class History:
    """The tokens of each row being generated (`R` rows; a prompt has several with beams or samples).

    Attributes:
        ids: `(R, L)` int32, left-padded: the prompt (an encoder-decoder's start token) and what was generated.
        starts: `(R,)` column of each row's first real token.
        width: Columns before the first generated token.
        prompts: The real tokens of each prompt, `(P_b,)` int32 each; what an encoder-decoder's encoder read.
        rows: `(R,)` the prompt that each row continues, an index into `prompts`.
    """

    ids: np.ndarray
    starts: np.ndarray
    width: int
    prompts: tuple[np.ndarray, ...]
    rows: np.ndarray

    @property
    def num_new(self) -> int:
        """Tokens generated so far, the same for each row."""
        return self.ids.shape[1] - self.width

    def row(self, index: int) -> np.ndarray:
        """All real tokens of one row, `(N,)`: padding never reaches a rule, so batches change nothing."""
        return self.ids[index, self.starts[index] :]

    def before(self, index: int) -> np.ndarray:
        """Real tokens of one row before its first generated one, `(N,)`."""
        return self.ids[index, self.starts[index] : self.width]

    def new(self, index: int) -> np.ndarray:
        """Generated tokens of one row, `(num_new,)`."""
        return self.ids[index, self.width :]

    def take(self, rows: np.ndarray) -> History:
        """The rows `rows`, in that order; they may be repeated or left out."""
        return History(self.ids[rows], self.starts[rows], self.width, self.prompts, self.rows[rows])

    def append(self, tokens: np.ndarray) -> History:
        """One more token per row, `(R,)`."""
        longer = np.concatenate([self.ids, tokens[:, None].astype(np.int32, copy=False)], axis=1)
        return History(longer, self.starts, self.width, self.prompts, self.rows)

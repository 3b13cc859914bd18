"""What generation returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class GenerationOutput:
    """Generated tokens, `num_return_sequences` after each other for each prompt.

    Attributes:
        sequences: New tokens of each sequence, int32, the end token included, without prompt and padding.
        finish_reasons: For each sequence `"eos"`, `"stop"` (a string or callback), `"length"` or `"capacity"`.
        scores: Beam search: `(B * num_return_sequences,)` float32, log-probability over length to the power
            `length_penalty`; otherwise `None`.
    """

    sequences: list[np.ndarray]
    finish_reasons: list[str]
    scores: np.ndarray | None = None

"""Runtime controls of generation: functions, models and arrays that a settings file cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kerasformer.engines.protocols import Step
from kerasformer.generation.prefix_cache import TextCache
from kerasformer.generation.rules import Rule
from kerasformer.generation.stopping import Decode, Stop


@dataclass(frozen=True)
class Controls:
    """Everything that a run needs besides a `GenerationConfig`.

    Attributes:
        stop: Called with the new tokens of a row after each token; returning true ends the row.
        decode: Converts token ids to text; required for stop strings.
        rules: Custom logits rules, applied after the built-in rules and before the sampling filters.
        cancelled: Called after each token; returning true ends all rows.
        negative_ids: `(B, Q)` or `(1, Q)` token ids of the negative prompt for guidance, padded on either side.
        negative_mask: Mask of the same shape, 1 for real tokens; `None` means that all tokens are real.
        assistant: Smaller model with the same vocabulary, which proposes several tokens at a time.
        cache: Keeps the caches of texts for those that begin with the same tokens; `None` for no reuse.
        record: Whether to record the most probable candidates of each token; see `GenerationOutput.record`.
        output_scores: Whether to also record all scores, `V` numbers per token; see `GenerationOutput.scores`.
        output_logits: Whether to also record the model's logits; see `GenerationOutput.logits`.
    """

    stop: Stop | None = None
    decode: Decode | None = None
    rules: tuple[Rule, ...] = ()
    cancelled: Callable[[], bool] | None = None
    negative_ids: np.ndarray | None = None
    negative_mask: np.ndarray | None = None
    assistant: Step | None = None
    cache: TextCache | None = None
    record: bool = False
    output_scores: bool = False
    output_logits: bool = False

    @property
    def records(self) -> bool:
        """Whether anything is recorded beside the tokens."""
        return self.record or self.output_scores or self.output_logits

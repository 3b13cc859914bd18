"""What steers a run beside its settings: functions, models and arrays, which no file of settings can hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kerasformer.decoding.protocols import Step
from kerasformer.decoding.rules import Rule
from kerasformer.decoding.stopping import Decode, Stop


@dataclass(frozen=True)
class Controls:
    """Beside a `GenerationConfig`, all that a run is given.

    Attributes:
        stop: Ends a row when it returns true for its new tokens.
        decode: Makes text of tokens, for stop strings.
        rules: Logits rules of the caller's own; they come after all others and before the cuts of sampling.
        cancelled: Asked after every token; `True` ends all rows.
        negative_ids: `(B, Q)` or `(1, Q)` integers, what guidance leads away from; padding may be on either side.
        negative_mask: Likewise, 1 for real tokens; `None`: all are real.
        assistant: A smaller model with the same vocabulary, whose guesses are checked several at a time.
        record: Remembers for every token the most probable choices; see `GenerationOutput.record`.
        output_scores: Remembers whole rows of scores too: `V` numbers a token; see `GenerationOutput.scores`.
        output_logits: Likewise the model's own logits; see `GenerationOutput.logits`.
    """

    stop: Stop | None = None
    decode: Decode | None = None
    rules: tuple[Rule, ...] = ()
    cancelled: Callable[[], bool] | None = None
    negative_ids: np.ndarray | None = None
    negative_mask: np.ndarray | None = None
    assistant: Step | None = None
    record: bool = False
    output_scores: bool = False
    output_logits: bool = False

"""Classifier-free guidance: `negative + scale * (positive - negative)` of the log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kerasformer.engines.distribution import log_softmax
from kerasformer.engines.protocols import State, Step
from kerasformer.errors import CapacityError
from kerasformer.generation.alignment import left_padded
from kerasformer.generation.wrapped_step import WrappedStep

PROMPT, NEGATIVE = 1, -1
"""Mask values of the tokens of the prompt and of the negative prompt."""


def side_by_side(
    inputs: np.ndarray, mask: np.ndarray, negative_ids: np.ndarray, negative_mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Concatenates each prompt (1 in the mask) with its negative prompt (-1 in the mask).

    Returns:
        Ids and mask, each `(B, P + Q)`.
    """
    ids = np.concatenate([inputs, negative_ids], axis=1)
    return ids, np.concatenate([PROMPT * mask, NEGATIVE * negative_mask], axis=1)


@dataclass(frozen=True)
class _State:
    """State of `R` rows.

    Attributes:
        inner: State of the engine, which has `2 R` rows: those of the prompts, then those of the negative prompts.
        negative_last: `(R, 1)` last token of each negative prompt, for the first step; `None` for an encoder-decoder.
        rows: `R`.
        num_read: Number of tokens that steps have read.
    """

    inner: State
    negative_last: np.ndarray | None
    rows: int
    num_read: int = 0


class Guided(WrappedStep):
    """Engine with classifier-free guidance.

    It implements `Step` and runs each row twice in one batch, after its prompt and after its negative prompt, so that
    all decoding methods work with it. With `p` the model's probabilities, the logits are
    `log p(x | negative) + scale * (log p(x | prompt) - log p(x | negative))`.

    Args:
        engine: Engine to guide.
        scale: Guidance scale; above 1 leads away from the negative prompt, below 1 towards it.
        length: Length of the longest prompt in tokens; only used for decoders.
        negative_length: Length of the longest negative prompt in tokens; only used for decoders.
    Raises:
        CapacityError: the negative prompt leaves no room for a new token.
    Reference: Sanchez et al. 2023, "Stay on topic with Classifier-Free Guidance", arXiv:2306.17806, section 3.1.
    """

    def __init__(self, engine: Step, scale: float, length: int, negative_length: int) -> None:
        super().__init__(engine)
        self._scale = np.float32(scale)
        if self.is_encoder_decoder:
            return
        if negative_length >= engine.capacity:
            raise CapacityError(
                f"The negative prompt leaves no room for a new token. Expected at most {engine.capacity - 1} tokens. "
                f"Received: {negative_length}. Shorten it, or load or export the model with a larger capacity."
            )
        # All rows are padded to the length of the longer prompt.
        self.capacity = engine.capacity - max(0, negative_length - length)

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """Reads both prompts of each row, in the format of `side_by_side`; see `Step.start`."""
        ids = np.concatenate([inputs, inputs])
        real = np.concatenate([mask == PROMPT, mask == NEGATIVE]).astype(np.int32)
        if self.is_encoder_decoder:
            ids, real = left_padded(ids[:, ::-1], real[:, ::-1], fill=0)  # reversed, to pad on the right
            ids, real = (np.ascontiguousarray(each[:, ::-1]) for each in (ids, real))
            return _State(self.engine.start(ids, real), None, len(inputs))
        ids, real = left_padded(ids, real, fill=0)
        return _State(self.engine.start(ids, real), ids[len(inputs) :, -1:], len(inputs))

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Returns guided logits `(R, T, V)`; see `Step.step`."""
        negative_tokens = tokens
        if state.negative_last is not None and state.num_read == 0:
            negative_tokens = np.concatenate([state.negative_last, tokens[:, 1:]], axis=1)
        logits, inner = self.engine.step(np.concatenate([tokens, negative_tokens]), state.inner)
        positive, negative = log_softmax(logits[: state.rows]), log_softmax(logits[state.rows :])
        guided = negative + self._scale * (positive - negative)
        return guided, replace(state, inner=inner, num_read=state.num_read + tokens.shape[1])

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """See `Step.reorder`."""
        rows = np.asarray(rows)
        inner = self.engine.reorder(state.inner, np.concatenate([rows, rows + state.rows]))
        last = None if state.negative_last is None else state.negative_last[rows]
        return replace(state, inner=inner, negative_last=last, rows=len(rows))

    def rewind(self, state: _State, count: int) -> _State:
        """See `Step.rewind`."""
        return replace(state, inner=self.engine.rewind(state.inner, count), num_read=state.num_read - count)

    def fork(self, state: _State) -> _State:
        """See `Step.fork`."""
        return replace(state, inner=self.engine.fork(state.inner))

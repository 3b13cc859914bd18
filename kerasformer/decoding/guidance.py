"""Classifier-free guidance: away from a negative prompt, `negative + scale * (positive - negative)`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kerasformer.decoding.alignment import left_padded
from kerasformer.decoding.distribution import log_softmax
from kerasformer.decoding.protocols import State, Step
from kerasformer.errors import CapacityError

PROMPT, NEGATIVE = 1, -1
"""What a mask says of a token that stands in one of two prompts."""


def side_by_side(
    inputs: np.ndarray, mask: np.ndarray, negative_ids: np.ndarray, negative_mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask `(B, P + Q)`: each prompt, 1 in the mask, and beside it its negative prompt, -1 in the mask."""
    ids = np.concatenate([inputs, negative_ids], axis=1)
    return ids, np.concatenate([PROMPT * mask, NEGATIVE * negative_mask], axis=1)


@dataclass(frozen=True)
class _State:
    """One of `R` rows.

    Attributes:
        inner: The engine's, of `2 R` rows: the guided ones, then the negative ones.
        last: `(R, 1)` last token of each negative prompt, which the first step reads; `None` for an encoder-decoder.
        rows: `R`.
        read: Tokens that steps have read.
    """

    inner: State
    last: np.ndarray | None
    rows: int
    read: int = 0


class Guided:
    """An engine whose logits are led away from those that follow a negative prompt.

    It is itself a `Step`, which runs each row twice in one batch: after its own prompt and after the negative one. So
    every method works with it as with any engine. With `p` the model's probabilities, the logits are
    `log p(x | negative) + scale * (log p(x | prompt) - log p(x | negative))`.

    Args:
        step: The engine.
        scale: Above 1 leads away from the negative prompt, below 1 towards it.
        length: Tokens of the longest prompt; for a decoder.
        negative_length: Tokens of the longest negative prompt; for a decoder.
    Raises:
        CapacityError: the negative prompt leaves no place for a new token.
    Reference: Sanchez et al. 2023, "Stay on topic with Classifier-Free Guidance", arXiv:2306.17806, section 3.1.
    """

    def __init__(self, step: Step, scale: float, length: int, negative_length: int) -> None:
        self.step_lengths = step.step_lengths
        self.is_encoder_decoder = step.is_encoder_decoder
        self.vocab_size = step.vocab_size
        if not step.is_encoder_decoder and negative_length >= step.capacity:
            raise CapacityError(
                f"The negative prompt leaves no place for a new token. Expected at most {step.capacity - 1} tokens. "
                f"Received: {negative_length}. Shorten it, or load or export with a larger capacity."
            )
        # Both kinds of rows are padded to the longer prompt.
        self.capacity = step.capacity - (0 if step.is_encoder_decoder else max(0, negative_length - length))
        self._step, self._scale = step, np.float32(scale)

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """Reads both prompts of each row, given `side_by_side`; see `Step.start`."""
        ids = np.concatenate([inputs, inputs])
        real = np.concatenate([mask == PROMPT, mask == NEGATIVE]).astype(np.int32)
        if self.is_encoder_decoder:
            ids, real = left_padded(ids[:, ::-1], real[:, ::-1], fill=0)  # in a mirror: padding goes to the right
            ids, real = (np.ascontiguousarray(each[:, ::-1]) for each in (ids, real))
            return _State(self._step.start(ids, real), None, len(inputs))
        ids, real = left_padded(ids, real, fill=0)
        return _State(self._step.start(ids, real), ids[len(inputs) :, -1:], len(inputs))

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Guided logits `(R, T, V)`; see `Step.step`."""
        other = tokens
        if state.last is not None and state.read == 0:
            other = np.concatenate([state.last, tokens[:, 1:]], axis=1)
        logits, inner = self._step.step(np.concatenate([tokens, other]), state.inner)
        wanted, unwanted = log_softmax(logits[: state.rows]), log_softmax(logits[state.rows :])
        guided = unwanted + self._scale * (wanted - unwanted)
        return guided, replace(state, inner=inner, read=state.read + tokens.shape[1])

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """See `Step.reorder`."""
        rows = np.asarray(rows)
        inner = self._step.reorder(state.inner, np.concatenate([rows, rows + state.rows]))
        return replace(state, inner=inner, last=None if state.last is None else state.last[rows], rows=len(rows))

    def rewind(self, state: _State, count: int) -> _State:
        """See `Step.rewind`."""
        return replace(state, inner=self._step.rewind(state.inner, count), read=state.read - count)

    def fork(self, state: _State) -> _State:
        """See `Step.fork`."""
        return replace(state, inner=self._step.fork(state.inner))

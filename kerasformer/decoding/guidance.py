"""Classifier-free guidance: away from a negative prompt, `negative + scale * (positive - negative)`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kerasformer.decoding.alignment import left_padded
from kerasformer.decoding.distribution import log_softmax
from kerasformer.decoding.protocols import State, Step


@dataclass(frozen=True)
class _State:
    """Of the engine, and the last token of each row's negative prompt until the first step has read it."""

    inner: State
    last: np.ndarray | None
    rows: int


class Guided:
    """An engine whose logits are led away from those that follow a negative prompt.

    It is itself a `Step`, which runs each row twice in one batch: after its own prompt and after the negative one. So
    every method works with it as with any engine. With `p` the model's probabilities, the logits are
    `log p(x | negative) + scale * (log p(x | prompt) - log p(x | negative))`.

    Args:
        step: The engine.
        scale: Above 1 leads away from the negative prompt.
        negative_ids: `(B, Q)` int32.
        negative_mask: `(B, Q)` int32, 1 for real tokens.
        length: Tokens of the longest prompt, for a decoder.
    Reference: Sanchez et al. 2023, "Stay on topic with Classifier-Free Guidance", arXiv:2306.17806, section 3.1.
    """

    def __init__(
        self, step: Step, scale: float, negative_ids: np.ndarray, negative_mask: np.ndarray, length: int
    ) -> None:
        self.step_lengths = step.step_lengths
        self.is_encoder_decoder = step.is_encoder_decoder
        self.vocab_size = step.vocab_size
        longer = 0 if step.is_encoder_decoder else max(0, int(negative_mask.sum(axis=1).max()) - length)
        self.capacity = step.capacity - longer
        self._step, self._scale = step, np.float32(scale)
        self._negative = negative_ids, negative_mask

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """Reads both prompts of each row; see `Step.start`."""
        width = max(inputs.shape[1], self._negative[0].shape[1])
        both = [
            np.concatenate([_widened(own, width), _widened(other, width)])
            for own, other in zip((inputs, mask), self._negative, strict=True)
        ]
        if self.is_encoder_decoder:
            return _State(self._step.start(*both), None, len(inputs))
        ids, real = left_padded(both[0], both[1], int(inputs[0, -1]))
        return _State(self._step.start(ids, real), ids[len(inputs) :, -1:], len(inputs))

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Guided logits `(B, T, V)`; see `Step.step`."""
        other = tokens
        if state.last is not None:
            other = np.concatenate([state.last, tokens[:, 1:]], axis=1)
        logits, inner = self._step.step(np.concatenate([tokens, other]), state.inner)
        wanted, unwanted = log_softmax(logits[: state.rows]), log_softmax(logits[state.rows :])
        return unwanted + self._scale * (wanted - unwanted), _State(inner, None, state.rows)

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """See `Step.reorder`."""
        both = np.concatenate([rows, np.asarray(rows) + state.rows])
        last = None if state.last is None else state.last[rows]
        return _State(self._step.reorder(state.inner, both), last, len(rows))

    def rewind(self, state: _State, count: int) -> _State:
        """See `Step.rewind`; the first token given to `step` cannot be taken back."""
        return _State(self._step.rewind(state.inner, count), state.last, state.rows)

    def fork(self, state: _State) -> _State:
        """See `Step.fork`."""
        return _State(self._step.fork(state.inner), state.last, state.rows)


def _widened(array: np.ndarray, width: int) -> np.ndarray:
    """Zeros to the right, up to a width."""
    padded: np.ndarray = np.pad(array, ((0, 0), (0, width - array.shape[1])))
    return padded

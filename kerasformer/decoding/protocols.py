"""What every engine offers: a Keras model, a LiteRT bundle and an ONNX bundle alike. NumPy goes in and comes out.

Shape letters: `B` batch, `T` tokens of one call, `P` prompt length, `S` cache capacity, `V` vocabulary.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

DEFAULT_CAPACITY = 1024
"""Slots of a decoder cache, in tokens, where nobody asks for a number."""
MAX_CAPACITY = 65_536
"""Most slots of a cache, and longest text: all of them take memory from the start."""

State = Any
"""What an engine remembers between steps. It is opaque and is used once: after `step`, `reorder` or `rewind`
the old state is dead, because its buffers are reused."""


def default_capacity(limit: int | None) -> int:
    """Slots of a decoder cache for a model with `limit` positions, `None` for a model without a limit."""
    return DEFAULT_CAPACITY if limit is None else min(limit, DEFAULT_CAPACITY)


@runtime_checkable
class Forward(Protocol):
    """A model that maps arrays to arrays in one call: encoders and their heads."""

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`(B, T)` int32 arrays under their Hugging Face names in, named float32 arrays out."""
        ...


@runtime_checkable
class Step(Protocol):
    """A model that generates: `start` once, then `step` as often as wanted.

    Attributes:
        is_encoder_decoder: `start` reads the encoder's input; `step` begins with the decoder's start token.
        capacity: Positions of the decoder cache, prompt and generated tokens together.
        vocab_size: Width of the logits.
        step_lengths: The `T` that `step` accepts, ascending; `1` is always among them.
    """

    is_encoder_decoder: bool
    capacity: int
    vocab_size: int
    step_lengths: tuple[int, ...]

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> State:
        """Reads the prompt.

        Args:
            inputs: `(B, P)` int32 ids. A decoder gets a left-padded prompt and prefills all but its last token,
                which the caller then gives to the first `step`. An encoder-decoder gets the (right-padded)
                encoder input, encodes it and fills its cross caches.
            mask: `(B, P)` int32, 1 for real tokens.
        Raises:
            CapacityError: the prompt does not fit.
        """
        ...

    def step(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """Reads some tokens of each row.

        Args:
            tokens: `(B, T)` int32; `T` is one of `step_lengths`. Several are read in less time than one by one, and the
                answers are the same, up to what rounding does (`docs/bundles.md` tells of int8).
            state: Dead afterwards, unless an error was raised.

        Returns:
            float32 logits `(B, T, V)` after each token, and the next state.

        Raises:
            CapacityError: the tokens do not fit. Nothing was read.
            InputError: tokens of another shape.
        """
        ...

    def reorder(self, state: State, rows: np.ndarray) -> State:
        """State of rows `rows` `(B',)` int, in that order; rows may be repeated or left out (beams, finished rows).

        Rows that change places are not copied where an engine can help it, second copies of one row are.
        """
        ...

    def rewind(self, state: State, count: int) -> State:
        """State as it was before the last `count` tokens of `step` (speculation).

        Raises:
            InputError: `step` has read fewer.
        """
        ...

    def fork(self, state: State) -> State:
        """An independent copy; both states stay usable."""
        ...

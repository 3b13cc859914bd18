"""How probable a model finds a text that is given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerasformer.decoding.distribution import log_softmax
from kerasformer.decoding.protocols import State, Step
from kerasformer.errors import CapacityError

_MOST = 64
"""Tokens of one step: their logits are as many numbers as the vocabulary has tokens, each."""


def log_probabilities(step: Step, state: State, first: np.ndarray, targets: Sequence[np.ndarray]) -> list[np.ndarray]:
    """`log p(target)` of given tokens, each after all before it: for each row `(N_b,)` float32.

    Args:
        step: The engine; it reads several tokens at once if it can.
        state: Where the targets begin; dead afterwards.
        first: `(B,)` int32, the token that is read before the first target.
        targets: For each row `(N_b,)` ids.

    Raises:
        CapacityError: the targets do not fit.
    """
    count = max(map(len, targets))
    # Short rows are filled on the right: what comes later changes nothing before it.
    wanted = np.stack([np.pad(row, (0, count - len(row))) for row in targets]).astype(np.int32)
    read = np.concatenate([first[:, None], wanted[:, :-1]], axis=1).astype(np.int32)
    logs = np.zeros(wanted.shape, np.float32)
    place = 0
    while place < count:
        width = max(length for length in step.step_lengths if length <= min(count - place, _MOST))
        part = slice(place, place + width)
        logits, state = step.step(read[:, part], state)
        logs[:, part] = np.take_along_axis(log_softmax(logits), wanted[:, part, None], axis=2)[..., 0]
        place += width
    return [row[: len(target)] for row, target in zip(logs, targets, strict=True)]


def next_log_probabilities(step: Step, inputs: np.ndarray, mask: np.ndarray, first: np.ndarray) -> np.ndarray:
    """`log p` of every token of the vocabulary after each prompt: `(B, V)` float32.

    Args:
        step: The engine.
        inputs: `(B, P)` int32, as `Step.start` wants them.
        mask: `(B, P)` int32, 1 for real tokens.
        first: `(B,)` int32: a decoder's last token of the prompt, or an encoder-decoder's start token.
    """
    logits, _ = step.step(first[:, None], step.start(inputs, mask))
    return log_softmax(logits[:, -1])


def check_capacity(step: Step, length: int) -> None:
    """That so many tokens fit.

    Raises:
        CapacityError: they do not.
    """
    if length > step.capacity:
        raise CapacityError(
            f"The text is longer than the cache. Expected at most {step.capacity} tokens. Received: {length}. "
            "Shorten it, or load or export with a larger capacity."
        )

"""Log-probabilities of given texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kerasformer.engines.arrays import token_array
from kerasformer.engines.distribution import log_softmax
from kerasformer.engines.protocols import State, Step
from kerasformer.errors import GenerationError

_MAX_STEP_LENGTH = 64
"""Maximum number of tokens per step, which limits the memory for logits: each token has one per vocabulary entry."""


def log_probabilities(step: Step, state: State, first: np.ndarray, targets: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the log-probability of each target token given all tokens before it.

    Args:
        step: The engine; several tokens are read at once if it supports that.
        state: State before the first target; unusable afterwards.
        first: `(B,)` int32, the token that is read before the first target.
        targets: Token ids of each row, `(N_b,)`.

    Returns:
        Log-probabilities of each row, `(N_b,)` float32.
    Raises:
        CapacityError: the targets do not fit into the cache.
        GenerationError: logits are not finite.
    """
    # Short rows are padded on the right, where padding does not affect the tokens before it.
    count = max(map(len, targets))
    padded = np.stack([np.pad(row, (0, count - len(row))) for row in targets]).astype(np.int32)
    logs = np.zeros(padded.shape, np.float32)
    for columns, distributions in next_distributions(step, state, first, padded):
        logs[:, columns] = np.take_along_axis(distributions, padded[:, columns, None], axis=2)[..., 0]
    return [row[: len(target)] for row, target in zip(logs, targets, strict=True)]


def next_distributions(
    step: Step, state: State, first: np.ndarray, targets: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields the distributions from which target tokens come, for several tokens at a time.

    Args:
        step: The engine; several tokens are read at once if it supports that.
        state: State before the first target; unusable afterwards.
        first: `(B,)` int32, the token that is read before the first target.
        targets: `(B, N)` int32 token ids.

    Yields:
        Columns of `targets`, and the log-probabilities of all tokens of the vocabulary there, `(B, T, V)` float32.
    Raises:
        CapacityError: the targets do not fit into the cache.
        GenerationError: logits are not finite.
        InputError: ids outside the vocabulary.
    """
    inputs = token_array("tokens", np.concatenate([first[:, None], targets], axis=1), step.vocab_size)[:, :-1]
    start, count = 0, targets.shape[1]
    while start < count:
        limit = min(count - start, _MAX_STEP_LENGTH)
        length = max(length for length in step.step_lengths if length <= limit)
        columns = slice(start, start + length)
        logits, state = step.step(inputs[:, columns], state)
        yield columns, _log_softmax(logits)
        start += length


def next_log_probabilities(step: Step, inputs: np.ndarray, mask: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities of all tokens of the vocabulary after each prompt.

    Args:
        step: The engine.
        inputs: `(B, P)` int32, padded as for `Step.start`.
        mask: `(B, P)` int32, 1 for real tokens.
        first: `(B,)` int32: the last token of a decoder's prompt, or an encoder-decoder's start token.
    Returns:
        `(B, V)` float32.
    Raises:
        GenerationError: logits are not finite.
    """
    logits, _ = step.step(first[:, None], step.start(inputs, mask))
    return _log_softmax(logits[:, -1])


def losses(step: Step, texts: Sequence[Sequence[int] | np.ndarray]) -> list[np.ndarray]:
    """Returns the negative log-likelihoods, in nats, of all tokens of each text except the first.

    Tokens are processed one by one, as in generation, and logits are not checked.

    Args:
        step: Engine of a decoder-only model.
        texts: Token ids of each text, at least two; all texts are processed as one batch.
    """
    count = max(map(len, texts))
    ids = token_array("texts", np.stack([np.pad(text, (0, count - len(text))) for text in texts]), step.vocab_size)
    state, columns = step.start(ids[:, :1], np.ones_like(ids[:, :1])), []
    for position in range(count - 1):
        logits, state = step.step(ids[:, position : position + 1], state)
        columns.append(-np.take_along_axis(log_softmax(logits[:, -1]), ids[:, position + 1, None], axis=1))
    return [row[: len(text) - 1] for row, text in zip(np.concatenate(columns, axis=1), texts, strict=True)]


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    greatest = logits.max(axis=-1)
    if not np.isfinite(greatest).all():
        raise GenerationError(
            "the logits of a token must be finite. Received: "
            f"{greatest[~np.isfinite(greatest)][0]}. Check the weights of the model: sums of them exceed the range of "
            "its numbers"
        )
    return log_softmax(logits)

"""Ends that a token id alone does not tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kerasformer.decoding.config import GenerationConfig
from kerasformer.errors import GenerationError

Stop = Callable[[np.ndarray], bool]
"""New tokens of one row `(N,)` in, the last one just generated; `True` ends the row after it."""


def stop_at(strings: Sequence[str], decode: Callable[[np.ndarray], str]) -> Stop:
    """Ends a row as soon as its new text holds one of `strings`, which may span tokens.

    Args:
        strings: Texts to stop at; the row keeps them.
        decode: Token ids `(N,)` to text.
    """
    # A byte-level token holds a byte or more, so the end of the row is enough; the margin is for tokens without text.
    window = max(len(string.encode()) for string in strings) + 16

    def stop(tokens: np.ndarray) -> bool:
        text = decode(tokens[-window:])
        return any(string in text for string in strings)

    return stop


def end_of(tokens: np.ndarray, config: GenerationConfig, stop: Stop | None) -> str | None:
    """Why a row ends after its last token: `"eos"`, `"stop"`, or `None` if it goes on."""
    if int(tokens[-1]) in config.eos_token_id:
        return "eos"
    return "stop" if stop is not None and stop(tokens) else None


def check_stop(config: GenerationConfig, stop: Stop | None) -> None:
    """Refuses stop strings that nobody would look for.

    Raises:
        GenerationError: `stop_strings` without a `stop`.
    """
    if config.stop_strings and stop is None:
        raise GenerationError(
            "stop_strings need a tokenizer, which generation over tokens does not have. "
            f"Received: stop_strings={list(config.stop_strings)}. Pass Controls(stop=stop_at(strings, decode))."
        )

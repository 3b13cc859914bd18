"""Ends that a token id alone does not tell."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence

import numpy as np

from kerasformer.decoding.generation_config import GenerationConfig
from kerasformer.errors import GenerationError, argument

Stop = Callable[[np.ndarray], bool]
"""New tokens of one row `(N,)` in, the last one just generated; `True` ends the row after it."""

Decode = Callable[[np.ndarray], str]
"""Token ids `(N,)` in, their text out."""

_MARGIN = 16
"""Tokens that a window is longer than it need be, for there are tokens without text."""


def end_of(
    before: np.ndarray, tokens: np.ndarray, config: GenerationConfig, stop: Stop | None, decode: Decode | None
) -> str | None:
    """Why a row ends after its last token: `"eos"`, `"stop"`, or `None` if it goes on.

    Args:
        before: `(M,)` the row's tokens before its first new one.
        tokens: `(N,)` its new tokens.
        config: For end tokens and stop strings.
        stop: The caller's own function.
        decode: What makes text of tokens, for stop strings.
    """
    if int(tokens[-1]) in config.eos_token_id:
        return "eos"
    if stop is not None and stop(tokens):
        return "stop"
    if decode is not None and config.stop_strings and says(config.stop_strings, before, tokens, decode):
        return "stop"
    return None


def says(strings: Sequence[str], before: np.ndarray, tokens: np.ndarray, decode: Decode) -> bool:
    """Whether the last new token completes one of `strings`, which may span tokens and begin in the prompt.

    Args:
        strings: Texts to stop at; the row keeps them, and what its last token says after them.
        before: `(M,)` the row's tokens before its first new one.
        tokens: `(N,)` its new tokens, before whose last one no string was complete.
        decode: Token ids to text.
    Reference: `transformers.StopStringCriteria`, which asks the same of the bytes of each token.
    """
    # A token with text holds a byte or more, so the end of the row is enough.
    window = max(len(string.encode()) for string in strings) + _MARGIN
    row = np.concatenate([before, tokens])
    said, text = row[-window:], decode(row[-window:])
    if text.startswith("\ufffd"):  # the window begins within a character, and a whole run of bytes may be unreadable
        said, text = row, decode(row)
    old = max(0, len(said) - len(tokens))
    # A string that was already there before the first new token ends nothing.
    known = len(os.path.commonprefix([decode(said[:old]), text])) if old else 0
    return any(text.find(string, max(0, known - len(string) + 1)) >= 0 for string in strings)


def check_stop(config: GenerationConfig, decode: Decode | None) -> None:
    """Refuses stop strings that nobody would look for.

    Raises:
        GenerationError: `stop_strings` without a `decode`.
    """
    if config.stop_strings and decode is None:
        raise GenerationError(
            "stop_strings need a tokenizer, which generation over tokens does not have. "
            f"Received: {argument('stop_strings', list(config.stop_strings))}. Pass Controls(decode=tokenizer.decode)."
        )

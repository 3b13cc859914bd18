"""Conditions that end a sequence: end tokens, stop strings and custom functions."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence

import numpy as np

from kerasformer.errors import GenerationError
from kerasformer.generation.generation_config import GenerationConfig

Stop = Callable[[np.ndarray], bool]
"""Function of the new tokens of one row `(N,)`, called after each token; returning `True` ends the row."""

Decode = Callable[[np.ndarray], str]
"""Converts token ids `(N,)` to text."""

_MARGIN = 16
"""Additional tokens to decode when searching for stop strings, because some tokens have no text."""


def finish_reason(
    before: np.ndarray, tokens: np.ndarray, config: GenerationConfig, stop: Stop | None, decode: Decode | None
) -> str | None:
    """Returns why a row ends after its last token, `"eos"` or `"stop"`, or `None` if it continues.

    Args:
        before: `(M,)` tokens of the row before its first new token.
        tokens: `(N,)` new tokens of the row.
        config: Settings with end tokens and stop strings.
        stop: Custom stopping function.
        decode: Converts tokens to text, for stop strings.
    """
    if int(tokens[-1]) in config.eos_token_id:
        return "eos"
    if stop is not None and stop(tokens):
        return "stop"
    if decode is not None and config.stop_strings and has_stop_string(config.stop_strings, before, tokens, decode):
        return "stop"
    return None


def has_stop_string(strings: Sequence[str], before: np.ndarray, tokens: np.ndarray, decode: Decode) -> bool:
    """Whether the last new token completes one of `strings`, which may span tokens and start in the prompt.

    Args:
        strings: Texts to stop at. They stay in the output, as does the text that the last token adds after them.
        before: `(M,)` tokens of the row before its first new token.
        tokens: `(N,)` new tokens of the row; without the last one, no string is complete.
        decode: Converts token ids to text.
    Reference: `transformers.StopStringCriteria`, which does the same with the bytes of each token.
    """
    # A token with text has at least one byte, so that the end of the row is sufficient.
    tail_length = max(len(string.encode()) for string in strings) + _MARGIN
    row = np.concatenate([before, tokens])
    tail, text = row[-tail_length:], decode(row[-tail_length:])
    if text.startswith("\ufffd"):  # the tail starts within a character, and the bytes after it may be unreadable too
        tail, text = row, decode(row)
    num_before = max(0, len(tail) - len(tokens))
    # A string that is complete before the first new token does not end the row.
    known = len(os.path.commonprefix([decode(tail[:num_before]), text])) if num_before else 0
    return any(text.find(string, max(0, known - len(string) + 1)) >= 0 for string in strings)


def check_stop(config: GenerationConfig, decode: Decode | None) -> None:
    """Checks that stop strings can be found.

    Raises:
        GenerationError: `stop_strings` without `decode`.
    """
    if config.stop_strings and decode is None:
        raise GenerationError(
            "stop_strings need a tokenizer, which generation from token ids does not have. "
            f"Received: stop_strings={list(config.stop_strings)!r}. Pass Controls(decode=tokenizer.decode)."
        )

"""The texts that a tokenizer is called with: texts, pairs of texts, and lists of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import tokenizers

from kerasformer.errors import InputError


def pair_up(text: object, pair: Any, split: bool = False) -> list[tokenizers.EncodeInput]:
    """Converts texts or pairs of texts to the format of the Rust library.

    Args:
        text: A text or a list of texts.
        pair: Second text or texts, or `None`.
        split: Whether each text is a list of words.

    Raises:
        InputError: no texts, values that are not texts, or different numbers of first and second texts.
    """
    convert = _lists_of_words if split else _texts
    firsts, single = convert("text", text)
    if pair is None:
        return firsts
    present = [second for second in pair if second is not None] if isinstance(pair, list | tuple) else pair
    seconds, single_pair = convert("text_pair", present)
    if isinstance(pair, list | tuple) and len(present) < len(pair):
        remaining = iter(seconds)
        seconds = [None if second is None else next(remaining) for second in pair]
    if single != single_pair or len(firsts) != len(seconds):
        raise InputError(
            f"text and text_pair must have the same number of texts. Received: {len(firsts)} and {len(seconds)}"
        )
    pairs = zip(firsts, seconds, strict=True)
    return [first if second is None else (first, second) for first, second in pairs]


def _texts(name: str, value: Any, expected: str = "a str or a list of str") -> tuple[list[Any], bool]:
    """Returns a list of texts, and whether the value is a single text."""
    single = isinstance(value, str)
    texts = [value] if single else value
    if isinstance(texts, (list, tuple, np.ndarray)) and np.ndim(texts) and all(isinstance(row, str) for row in texts):
        if len(texts) == 0:
            raise InputError(f"{name} must contain at least one text. Received: an empty batch")
        return [str(text) for text in texts], single
    types = {type(item).__name__ for item in texts} if isinstance(texts, (list, tuple)) else {type(texts).__name__}
    raise InputError(f"{name} must be {expected}. Received: {', '.join(sorted(types))}")


def _lists_of_words(name: str, value: Any) -> tuple[list[Any], bool]:
    """Like `_texts`, for texts that are lists of words."""
    expected = "a list of words or a list of such lists, for is_split_into_words=True"
    several = isinstance(value, (list, tuple)) and len(value) > 0 and not isinstance(value[0], str)
    rows = value if several else [value]
    if any(isinstance(row, str) for row in rows):
        raise InputError(f"{name} must be {expected}. Received: str")
    return [_texts(name, words, expected)[0] for words in rows], not several

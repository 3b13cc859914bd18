"""Cutting token sequences to a length: which tokens stay, which windows cover the rest, how much was lost.

It works on finished sequences, special tokens included, and never asks the Rust tokenizer to truncate: that would be
a setting on an object shared by all threads, and would not say how many tokens went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kerasformer.errors import InputError

Strategy = Literal["only_first", "only_second", "longest_first"]
Side = Literal["left", "right"]


class TruncationWarning(UserWarning):
    """Text was cut: the model does not see the tokens that the message counts."""


@dataclass(frozen=True)
class TruncationSettings:
    """How sequences are shortened.

    Attributes:
        limit: Tokens that may stay, special tokens included.
        strategy: Which of the two texts gives way; `"longest_first"` takes from the longer one.
        stride: Tokens that neighbouring windows share.
        side: The end that is cut off.
    """

    limit: int
    strategy: Strategy
    stride: int = 0
    side: Side = "right"


def windows(sequence_ids: np.ndarray, cut: TruncationSettings) -> list[np.ndarray]:
    """Positions that stay in each of the windows that together cover a sequence.

    Args:
        sequence_ids: `(T,)`: 0 and 1 for tokens of the first and second text, -1 for special tokens.
        cut: How to shorten it. Special tokens stay in every window.

    Returns:
        Ascending positions, one array per window. The first window alone is the truncated sequence.

    Raises:
        InputError: no room is left for the text, or both texts would be cut into windows.
    """
    counts = [int(np.count_nonzero(sequence_ids == text)) for text in (0, 1)]
    room = _room(counts, cut, int(np.count_nonzero(sequence_ids < 0)))
    if room == tuple(counts):
        return [np.arange(len(sequence_ids))]
    first, second = _spans(counts[0], room[0], cut), _spans(counts[1], room[1], cut)
    if len(first) > 1 and len(second) > 1:
        # Both texts are cut: only the truncated sequence has a meaning, not a product of windows.
        first, second = first[:1], second[:1]
    longest = max(len(first), len(second))
    spans = zip(first * (longest if len(first) == 1 else 1), second * (longest if len(second) == 1 else 1), strict=True)
    return [_positions(sequence_ids, pair) for pair in spans]


def check_windows(cut: TruncationSettings, has_pairs: bool) -> None:
    """Refuses settings under which windows would not cover the text.

    Raises:
        InputError: pairs are cut by `"longest_first"`, which shortens both texts.
    """
    if has_pairs and cut.strategy == "longest_first":
        raise InputError(
            "windows over a pair need to know which text is cut: truncation='only_first' or 'only_second'. "
            "Received: truncation='longest_first' with return_overflowing_tokens=True"
        )


def loss_message(lost: Sequence[tuple[int, int, int]], limit: int) -> str:
    """Says what truncation took.

    Args:
        lost: `(index of the text, tokens lost, tokens it had)` of every text that was cut.
        limit: Tokens that may stay, special tokens included.
    """
    named = ", ".join(f"text {index} lost {gone} of {had} tokens" for index, gone, had in lost[:5])
    more = f", and {len(lost) - 5} more texts were cut" if len(lost) > 5 else ""
    return f"truncated to {limit} tokens: {named}{more}"


def _room(counts: list[int], cut: TruncationSettings, special: int) -> tuple[int, int]:
    """Tokens of each text that may stay."""
    budget = cut.limit - special
    first, second = counts
    if first + second <= budget:
        return first, second
    if cut.strategy == "only_first":
        first = kept = budget - second
    elif cut.strategy == "only_second":
        second = kept = budget - first
    else:
        # The shorter text keeps up to half; on equal lengths the second gets the odd token.
        shorter = min(first, second, budget // 2)
        first, second = (shorter, budget - shorter) if first <= second else (budget - shorter, shorter)
        kept = budget
    if kept < 1:
        raise InputError(
            f"max_length leaves no room: {special} special tokens and texts of {counts[0]} and {counts[1]} tokens "
            f"cannot be cut to it by {cut.strategy!r}. Received: max_length={cut.limit}. Give a larger one"
        )
    return first, second


def _spans(count: int, keep: int, cut: TruncationSettings) -> list[tuple[int, int]]:
    """`[start, end)` among the tokens of one text, for each window."""
    if keep >= count:
        return [(0, count)]
    if keep == 0:
        return [(0, 0)]
    step = keep - cut.stride
    if step < 1:
        raise InputError(
            f"stride must be smaller than the {keep} tokens of text that fit into a window. Received: "
            f"stride={cut.stride}, max_length={cut.limit}"
        )
    # The first start whose window reaches the end is the last one.
    starts = range(0, max(count - keep, 0) + step, step)
    spans = [(start, min(start + keep, count)) for start in starts if start < count]
    return spans if cut.side == "right" else [(count - end, count - start) for start, end in spans]


def _positions(sequence_ids: np.ndarray, spans: tuple[tuple[int, int], tuple[int, int]]) -> np.ndarray:
    stays = sequence_ids < 0
    for text, (start, end) in enumerate(spans):
        stays[np.flatnonzero(sequence_ids == text)[start:end]] = True
    return np.flatnonzero(stays)

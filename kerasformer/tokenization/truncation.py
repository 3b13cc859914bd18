"""Truncation of token sequences, and splitting into overlapping chunks.

It works on complete sequences with special tokens. The truncation of the Rust library is not used, because it is a
setting of an object that all threads share, and does not report how many tokens were lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from kerasformer.basics.arguments import check, integer, one_of
from kerasformer.errors import InputError

Strategy = Literal["only_first", "only_second", "longest_first"]
Side = Literal["left", "right"]
Truncation = bool | Strategy | Literal["do_not_truncate"]


class TruncationWarning(UserWarning):
    """Tokens were lost by truncation; the message contains their number."""


@dataclass(frozen=True)
class TruncationSettings:
    """Settings of truncation.

    Attributes:
        limit: Maximum number of tokens, including special tokens.
        strategy: Text to shorten; `"longest_first"` shortens the longer one first.
        stride: Number of tokens that neighbouring chunks share.
        side: Side at which tokens are removed.
    """

    limit: int
    strategy: Strategy
    stride: int = 0
    side: Side = "right"


def truncation_settings(
    truncation: Truncation, limit: int | None, stride: int, side: Side, overflowing: bool, has_pairs: bool
) -> TruncationSettings | None:
    """Returns the settings of a call of a tokenizer; `None` if it does not truncate.

    Args:
        truncation: See `Tokenizer.__call__`.
        limit: Maximum number of tokens, including special tokens; `None` if it is unknown.
        stride: Number of tokens that neighbouring chunks share.
        side: Side at which tokens are removed.
        overflowing: Whether texts are split into chunks.
        has_pairs: Whether there are pairs of texts.

    Raises:
        InputError: an argument is invalid, or has no effect.
    """
    kinds = one_of(True, False, *get_args(Strategy), "do_not_truncate")
    truncation = check("truncation", truncation, kinds)
    check("stride", stride, integer(0))
    if truncation in (False, "do_not_truncate"):
        if overflowing or stride:
            raise InputError(
                "return_overflowing_tokens and stride require truncation. Received: truncation=False. Set truncation"
            )
        return None
    strategy: Any = "longest_first" if truncation is True else truncation
    if limit is None:
        raise InputError("truncation requires max_length, because the tokenizer has no maximum length")
    settings = TruncationSettings(limit, strategy, stride, checked_side("truncation_side", side))
    if overflowing:
        check_chunks(settings, has_pairs)
    return settings


def checked_side(name: str, value: str) -> Side:
    """Returns the value of an argument that is a side.

    Raises:
        InputError: another value.
    """
    if value not in get_args(Side):
        raise InputError(f"{name} must be 'left' or 'right'. Received: {value!r}")
    return value  # type: ignore[return-value]


def chunks(sequence_ids: np.ndarray, truncation: TruncationSettings) -> list[np.ndarray]:
    """Splits a sequence into overlapping chunks.

    Args:
        sequence_ids: `(T,)`: 0 and 1 for tokens of the first and second text, -1 for special tokens.
        truncation: Maximum length, strategy and stride. Each chunk contains all special tokens.

    Returns:
        Ascending positions of the tokens of each chunk. The first chunk is the truncated sequence.

    Raises:
        InputError: no room is left for the text, or the stride is too large.
    """
    counts = [int(np.count_nonzero(sequence_ids == text)) for text in (0, 1)]
    room = _room(counts, truncation, int(np.count_nonzero(sequence_ids < 0)))
    if room == tuple(counts):
        return [np.arange(len(sequence_ids))]
    first, second = _spans(counts[0], room[0], truncation), _spans(counts[1], room[1], truncation)
    if len(first) > 1 and len(second) > 1:
        # If both texts are shortened, only the truncated sequence is meaningful.
        first, second = first[:1], second[:1]
    longest = max(len(first), len(second))
    spans = zip(first * (longest if len(first) == 1 else 1), second * (longest if len(second) == 1 else 1), strict=True)
    return [_positions(sequence_ids, pair) for pair in spans]


def check_chunks(truncation: TruncationSettings, has_pairs: bool) -> None:
    """Checks that the chunks of each text will contain all of its tokens.

    Raises:
        InputError: pairs with the strategy `"longest_first"`, which shortens both texts.
    """
    if has_pairs and truncation.strategy == "longest_first":
        raise InputError(
            "return_overflowing_tokens requires truncation='only_first' or 'only_second' for pairs of texts. "
            "Received: truncation='longest_first'"
        )


def loss_message(losses: Sequence[tuple[int, int, int]], limit: int) -> str:
    """Returns the message of a `TruncationWarning`.

    Args:
        losses: `(index of the text, tokens lost, tokens in total)` of each truncated text; special tokens count.
        limit: Maximum number of tokens, including special tokens.
    """
    listed = ", ".join(f"text {index} lost {lost} of {total} tokens" for index, lost, total in losses[:5])
    more = f", and {len(losses) - 5} more texts were truncated" if len(losses) > 5 else ""
    return f"truncated to {limit} tokens: {listed}{more}"


def _room(counts: list[int], truncation: TruncationSettings, special: int) -> tuple[int, int]:
    """Returns the number of tokens of each text that fit."""
    budget = truncation.limit - special
    first, second = counts
    if first + second <= budget:
        return first, second
    if truncation.strategy == "only_first":
        first = room = budget - second
    elif truncation.strategy == "only_second":
        second = room = budget - first
    else:
        # The shorter text keeps up to half of the budget; for equal lengths, the second gets the odd token.
        shorter = min(first, second, budget // 2)
        first, second = (shorter, budget - shorter) if first <= second else (budget - shorter, shorter)
        room = budget
    if room < 1:
        raise InputError(
            f"max_length is too small: {special} special tokens and texts of {counts[0]} and {counts[1]} tokens cannot "
            f"be truncated to it with {truncation.strategy!r}. Received: max_length={truncation.limit}. Increase it"
        )
    return first, second


def _spans(count: int, size: int, truncation: TruncationSettings) -> list[tuple[int, int]]:
    """Returns `(start, end)` of each chunk among the `count` tokens of one text, of which `size` fit into a chunk."""
    if size >= count:
        return [(0, count)]
    if size == 0:
        return [(0, 0)]
    step = size - truncation.stride
    if step < 1:
        raise InputError(
            f"stride must be smaller than the {size} tokens of text that fit into a chunk. Received: "
            f"stride={truncation.stride}, max_length={truncation.limit}"
        )
    # The last chunk is the first one that reaches the end.
    starts = range(0, max(count - size, 0) + step, step)
    spans = [(start, min(start + size, count)) for start in starts if start < count]
    return spans if truncation.side == "right" else [(count - end, count - start) for start, end in spans]


def _positions(sequence_ids: np.ndarray, spans: tuple[tuple[int, int], tuple[int, int]]) -> np.ndarray:
    selected = sequence_ids < 0
    for text, (start, end) in enumerate(spans):
        selected[np.flatnonzero(sequence_ids == text)[start:end]] = True
    return np.flatnonzero(selected)

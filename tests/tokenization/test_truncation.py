"""Truncation: chunks contain all tokens, overlap by the stride and respect the maximum length."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasformer.errors import InputError
from kerasformer.tokenization.truncation import TruncationSettings, chunks, loss_message


def sequence(first: int, second: int = 0) -> np.ndarray:
    """[CLS] first [SEP] second [SEP]"""
    return np.array([-1, *[0] * first, -1, *([1] * second + [-1] if second else [])])


@pytest.mark.parametrize("side", ["right", "left"])
def test_chunks_contain_all_tokens(side):
    for count, limit, stride in itertools.product(range(1, 25), range(4, 12), range(0, 5)):
        ids = sequence(count)
        settings = TruncationSettings(limit, "only_first", stride, side)
        if count > limit - 2 and stride >= limit - 2:
            with pytest.raises(InputError, match="stride must be smaller"):
                chunks(ids, settings)
            continue
        result = chunks(ids, settings)
        text = [set(positions[ids[positions] == 0].tolist()) for positions in result]
        assert set().union(*text) == set(range(1, count + 1))
        assert all(len(positions) <= limit and {0, count + 1} <= set(positions.tolist()) for positions in result)
        assert all(len(a & b) == stride for a, b in itertools.pairwise(text))
        assert (1 in text[0]) if side == "right" else (count in text[0])


def test_the_longer_text_is_shortened_first():
    ids = sequence(3, 20)
    positions, *_ = chunks(ids, TruncationSettings(13, "longest_first"))
    assert (ids[positions] == 0).sum() == 3
    assert (ids[positions] == 1).sum() == 7


def test_a_text_without_room_raises():
    with pytest.raises(InputError, match=r"is too small.*Received: max_length=8"):
        chunks(sequence(20, 3), TruncationSettings(8, "only_second"))
    with pytest.raises(InputError, match="is too small"):
        chunks(sequence(5), TruncationSettings(1, "longest_first"))


def test_the_message_lists_five_texts_and_counts_the_rest():
    message = loss_message([(index, 10, 20) for index in range(7)], 12)
    assert message.startswith("truncated to 12 tokens: text 0 lost 10 of 20 tokens, text 1")
    assert message.endswith("and 2 more texts were truncated")
